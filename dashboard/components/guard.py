"""What stands between a page and a blank screen? Every page is opened here: unknown runs, unready runs and failures become states."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from dash import html
from dash.development.base_component import Component

from dashboard.components import states
from dashboard.components.query import text
from dashboard.reading import NotReady, UnknownRun, View, open_run
from dashboard.store.rows import RunRow, State
from tracekit.errors import InputError, TracekitError

log = logging.getLogger(__name__)

Query = Mapping[str, str]


def run_page(draw: Callable[[View, Query], Component]) -> Callable[..., Any]:
    """A page of a run: ``draw(view, query)``, kept per run, generation and address.

    The result is a layout for Dash Pages: called with ``run_id`` and the names of the query, answers with components as JSON knows them.
    """

    @wraps(draw)
    def layout(run_id: str | None = None, **query: Any) -> Any:
        asked = {k: text(v) for k, v in sorted(query.items()) if text(v)}

        def made() -> Any:
            try:
                return opened()
            except UnknownRun:
                return states.no_run(text(run_id))
            except NotReady as error:
                return states.not_ready(error.args[0])
            except InputError as error:
                log.warning("what was stored of run %s cannot be read: %s", text(run_id), error)
                return states.damaged(text(run_id), error.reason)

        def opened() -> Any:
            view = open_run(text(run_id))
            # the name stands on pages; the state of the run changes without a new analysis, so what it says is never kept
            key = ("page", draw.__module__, view.run.name, tuple(asked.items()))
            drawn = view.cached(key, lambda: kept(draw(view, asked)), lambda pair: 3 * pair[1])[0]
            return html.Div([some_ranks(view.run), drawn]) if view.run.partial else drawn

        return guarded(made, draw.__module__)

    return layout


def some_ranks(run: RunRow) -> Component:
    """The line above what is said of a run of which only some ranks were analysed: whether more will come."""
    job = f"/job/{run.id}"
    if not run.state.ended:
        rest: list[Any] = ["The others are still being read; numbers will change. ", html.A("Watch it", href=job)]
    else:
        why = "was cancelled" if run.state is State.CANCELLED else "failed"
        rest = [f"Reading this run {why} before the others were in; nothing more will come unless it is read again. ", html.A("What happened", href=job)]
    return html.Div([html.B("Some ranks only. "), *rest], className="banner", role="status")


def page(draw: Callable[[Query], Component]) -> Callable[..., Any]:
    """A page of no single run."""

    @wraps(draw)
    def layout(**query: Any) -> Any:
        return guarded(lambda: draw({k: text(v) for k, v in sorted(query.items()) if text(v)}), draw.__module__)

    return layout


def guarded(make: Callable[[], Any], what: str) -> Any:
    """What is made; where that fails, a page that says so, and the failure in the log."""
    try:
        return make()
    except Exception as error:  # the last stand: whatever a page fails on, its reader gets a page
        reference = uuid.uuid4().hex[:8]
        log.exception("page %s failed, reference %s", what, reference)
        return states.broken(str(error)[:300] if isinstance(error, TracekitError) else f"Drawing it failed ({type(error).__name__})", reference)


def kept(component: Component) -> tuple[Any, int]:
    """Components as plain dicts, which cost nothing to send again, and their size."""
    whole = as_json(component)
    return whole, len(json.dumps(whole))


def as_json(node: Any) -> Any:
    """A tree of components as JSON knows it; values that are numbers of numpy become numbers of Python.

    >>> as_json(html.B("a"))["props"]
    {'children': 'a'}
    """
    if isinstance(node, Component):
        return as_json(node.to_plotly_json())
    if isinstance(node, Mapping):
        return {k: as_json(v) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return [as_json(v) for v in node]
    return node.item() if hasattr(node, "item") else node


__all__ = ["Query", "as_json", "guarded", "kept", "page", "run_page", "some_ranks"]
