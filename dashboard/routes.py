"""Which plain HTTP answers do pages fetch beside Dash's own? Figures as JSON, figures and tables as CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from flask import Blueprint, Response, abort, request

from dashboard.components import csv
from dashboard.components.drawings import SCHEMES, coloured, drawing, house, themed
from dashboard.components.query import ONLY, chosen_steps, matching
from dashboard.components.table import holding, with_words
from dashboard.extras import ASKED, EXTRAS, asked
from dashboard.reading import NotReady, UnknownRun, View, open_run
from tracekit.errors import InputError

blueprint = Blueprint("pages", __name__, url_prefix="/api")

#: The generation stands in the address: what was fetched stays right for as long as it is kept.
_KEPT = "private, max-age=3600"


def _opened(answer: Callable[..., Response]) -> Callable[..., Response]:
    """The route with the run opened; 404 where there is none, 409 where it is not analysed yet, or what was stored of it is damaged."""

    @wraps(answer)
    def wrapped(run_id: str, **rest: Any) -> Response:
        try:
            return answer(open_run(run_id), **rest)
        except UnknownRun:
            abort(404, "there is no such run")
        except NotReady:
            abort(409, "this run is not analysed yet")
        except InputError as error:
            abort(409, f"what was stored of this run cannot be read ({error.reason}); read it again")

    return wrapped


@blueprint.get("/runs/<run_id>/figures/<name>.json")
@_opened
def figure_json(view: View, name: str) -> Response:
    """A figure in the colours of the page."""
    scheme = request.args.get("theme", "light")
    made = themed(view, (name, *_asked(view), *_what_if()), scheme if scheme in SCHEMES else "light", lambda: _house(view, name))
    if made is None:
        abort(404, "there is nothing to draw")
    return Response(made, mimetype="application/json", headers={"Content-Encoding": "gzip", "Cache-Control": _KEPT, "Vary": "Accept-Encoding"})


@blueprint.get("/runs/<run_id>/figures/<name>.csv")
@_opened
def figure_csv(view: View, name: str) -> Response:
    """The numbers that a figure draws."""
    made = _house(view, name)
    if made is None:
        abort(404, "there is nothing to draw")
    return attachment(csv.drawn(made.json), f"{view.id}-{name}.csv")


@blueprint.get("/runs/<run_id>/tables/<metric>/<table>.csv")
@_opened
def table_csv(view: View, metric: str, table: str) -> Response:
    """A whole table of a metric, filtered as on the page."""
    frame = view.table(metric, table)
    if frame is None:
        abort(404, "there is no such table")
    rows = with_words(matching(frame, _filters()), holding(request.args, table))
    return attachment(csv.frame(rows), f"{view.id}-{metric}-{table}.csv")


def attachment(body: Iterator[str], name: str) -> Response:
    """A CSV file that is saved, never shown; its name holds letters, digits, dots and dashes only."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name)
    headers = {"Content-Disposition": f'attachment; filename="{safe}"', "X-Content-Type-Options": "nosniff"}
    return Response(body, mimetype="text/csv; charset=utf-8", headers=headers)


def _house(view: View, name: str) -> Any:
    of = drawing(name)
    steps, only = _asked(view)
    if of is not None:
        return house(view, of, steps, only)
    extra = EXTRAS.get(name)
    if extra is None:
        abort(404, "there is no such figure")
    return extra(view, asked(request.args))


def _asked(view: View) -> tuple[frozenset[int], tuple[tuple[str, str], ...]]:
    return chosen_steps(view, request.args.get("step")), tuple((k, v) for k, v in _filters() if k != "step")


def _what_if() -> tuple[str, ...]:
    """What is asked of a what-if, as it is written in the address."""
    return tuple(request.args.get(name, "")[:40] for name in ASKED)


def _filters() -> list[tuple[str, str]]:
    return [(k, request.args[k][:200]) for k in ONLY if request.args.get(k)]


@blueprint.get("/compare/<a>/<b>/budgets.<form>")
def compare_budgets(a: str, b: str, form: str) -> Response:
    """Where the steps of two runs went, as JSON in the colours of the page or as CSV."""
    from dashboard.pages.compare import budgets

    try:
        first, second = open_run(a), open_run(b)
    except (UnknownRun, NotReady):
        abort(404, "there is no such run, or it is not analysed yet")
    made = budgets(first, second)
    if made is None or form not in ("json", "csv"):
        abort(404, "there is nothing to draw")
    if form == "csv":
        return attachment(csv.drawn(made.json), "compare-budgets.csv")
    scheme = request.args.get("theme", "light")
    body = coloured(made, scheme)
    return Response(body, mimetype="application/json", headers={"Content-Encoding": "gzip", "Cache-Control": _KEPT, "Vary": "Accept-Encoding"})
