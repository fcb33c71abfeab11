"""How does a metric stand on a page? Its section of the report: question, key figures, drawings, tables, notes; or why it has none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dash import html

from dashboard.components.controls import bar, step_choice
from dashboard.components.drawings import house, of_metric
from dashboard.components.figure import WIDE, card
from dashboard.components.query import chosen_steps, narrowed, run_page, text
from dashboard.components.states import unavailable
from dashboard.components.table import table
from dashboard.components.text import facts, folded, grid, tags
from dashboard.reading import View
from tracekit.report.parts import Section
from tracekit.report.sections import SECTIONS, other
from tracekit.wording import label

log = logging.getLogger(__name__)

#: Figures that do not follow from measured numbers alone.
_HOW = {
    "bubble_causes": ("measured", "simulated", "theory"),
    "bubble_by_microbatches": ("measured", "theory"),
    "schedule": ("measured", "simulated"),
    "in_flight": ("measured", "theory"),
}


#: Said where something is chosen: what a summary says of a run cannot be narrowed afterwards.
_WHOLE = "What is chosen narrows figures and tables; key figures and “Numbers” stay those of the whole run."


def stays(query: Mapping[str, str]) -> list[Any]:
    """What a choice does not change, where there is one."""
    return [html.P(_WHOLE, className="where")] if query else []


def worded(view: View, metric: str) -> Section | None:
    """A metric's section of the report; None where it is not available."""
    document = view.document((metric,))
    if not document["metrics"][metric]["available"]:
        return None
    return SECTIONS[metric](document) if metric in SECTIONS else other(document, metric)


def figures(view: View, metric: str, how: tuple[str, ...], here: str, query: Mapping[str, str]) -> list[Any]:
    """The cards of a metric's figures that have something to draw."""
    steps, only = chosen_steps(view, query.get("step")), tuple((k, v) for k, v in query.items() if k != "step")
    todo, failed = [], []
    for drawing in of_metric(metric):
        try:
            drawn = house(view, drawing, steps, only)
        except Exception:  # one figure that fails must not take the page's numbers with it
            log.exception("figure %s of run %s failed", drawing.name, view.id)
            failed.append(unavailable(label(drawing.name).capitalize(), "this figure could not be drawn; the server's log has the reason"))
            continue
        if drawn is not None:
            todo.append((drawing, drawn))
    wide = widened([d.name for d, _ in todo])
    made: list[Any] = []
    for drawing, drawn in todo:
        made.append(
            card(
                drawing.name,
                label(drawing.name).capitalize(),
                drawing.caption + ("" if drawing.follows or not query else " Of the whole run, whatever is chosen."),
                f"/api/runs/{view.id}/figures/{drawing.name}",
                drawn.height,
                _how(view, drawing.name, how),
                definition=f"/definitions#metric-{metric}",
                here=here,
                query={**query, "g": view.generation},
                wide=drawing.name in wide,
            )
        )
    return [*made, *failed]


def widened(names: Sequence[str]) -> set[str]:
    """Which figures, in the order of the page, take a whole row: those of many lanes, and one that would leave half of its row empty.

    >>> sorted(widened(["memory_peak", "memory_curve", "activations", "in_flight"]))
    ['memory_curve', 'memory_peak']
    """
    wide: set[str] = set()
    for many, beside in groupby(names, WIDE.__contains__):
        group = list(beside)
        wide |= set(group if many else group[: len(group) % 2])
    return wide


def section(
    view: View, metric: str, page: str, query: Mapping[str, str], *, tables: list[Any] | None = None, level: int = 2, brief: bool = False, controls: Any = None
) -> html.Section:
    """A metric on a page.

    Args:
        view: the run.
        metric: which one.
        page: the page's name in the address.
        query: the page's state.
        tables: components below the figures.
        brief: whether its tables are folded even where it has no figure.
        controls: choices that narrow it, under its title.
        level: 1 where the section is the page's first and its title the page's.
    """
    found = worded(view, metric)
    anchor = f"metric-{metric}"
    if found is None:
        about = view.metric(metric)
        title = [html.H1(about["title"])] if level == 1 else []
        return html.Section([*title, unavailable(about["title"], str(about["reason"] or "no reason was given"))], id=anchor)
    drawn = figures(view, metric, found.tags, run_page(view.id, page, **query), query)
    head = html.Header(
        [
            html.Div([html.H1(found.title) if level == 1 else html.H2(found.title), tags(found.tags)], className="title"),
            html.P([found.question, " ", html.A("Definition", href=f"/definitions#{anchor}", className="quiet-link")], className="question"),
        ]
    )
    worded_tables: list[Any] = []
    if found.grids:
        worded_tables = [folded(found.grids) if drawn or brief else html.Div([grid(g) for g in found.grids], className="card plain")]
    notes = [html.P(f"{found.obtained}.", className="note"), *(html.P(n, className="note") for n in found.notes)]
    parts = [
        head,
        *([controls] if controls is not None else []),
        *(stays(query) if level == 1 else []),
        *_facts(found),
        html.Div(drawn, className="figures"),
        *worded_tables,
        *(tables or []),
        html.Div(notes, className="notes"),
    ]
    return html.Section(parts, id=anchor, className="metric")


def frame(view: View, metric: str, query: Mapping[str, str], tables: Sequence[tuple[str, str, Sequence[str], str]], *rest: Any) -> html.Div:
    """The page of a metric that is available: a choice of steps, its section, its tables.

    Args:
        view: the run.
        metric: whose page; its name in the address is the metric's.
        query: the page's state, of which the step counts, and how its tables are sorted and filtered.
        tables: (table, title, first columns, column to sort by) of each table.
        rest: components below the section.
    """
    only = {k: v for k, v in narrowed(query, view.steps()).items() if k == "step"}
    made = [table(view, metric, name, title, columns, only, sort=sort, query=query) for name, title, columns, sort in tables]
    controls = bar(step_choice(view.steps(), view.steady(), text(query.get("step"))))
    return html.Div([section(view, metric, metric, only, tables=made, level=1, controls=controls), *rest], className="page")


def _how(view: View, figure: str, how: tuple[str, ...]) -> tuple[str, ...]:
    """The tags of a figure: those of its section, unless it has its own; emulated stays."""
    own = _HOW.get(figure, how)
    if figure == "recompute_saving":
        layers = view.table("recompute", "layers")
        formed = layers is not None and bool((layers["saved_source"].eq("closed_form") & layers["recompute_runs"].gt(0)).any())
        own = ("measured", "theory") if formed else ("measured",)
    return tuple(dict.fromkeys((*own, *(t for t in how if t == "emulated"))))


def _facts(found: Section, shown: int = 10) -> list[Any]:
    """The key figures of a section; past the first ones they are folded."""
    if len(found.facts) <= shown + 2:
        return [facts(found.facts)] if found.facts else []
    return [
        facts(found.facts[:shown]),
        html.Details([html.Summary(f"{len(found.facts) - shown} more figures"), facts(found.facts[shown:])], className="fold facts-more"),
    ]
