"""How large is the pipeline bubble, what causes it, and what would another schedule take?"""

from __future__ import annotations

from typing import Any

from dash import html

from dashboard.components.figure import card
from dashboard.components.guard import Query, run_page
from dashboard.components.query import narrowed
from dashboard.components.query import run_page as address_of
from dashboard.components.section import frame
from dashboard.components.states import elsewhere, state
from dashboard.components.text import facts, grid, tags
from dashboard.extras import alternatives, what_if_of
from dashboard.reading import View

_ACTIONS = ["step", "pipeline", "rank", "stage", "action", "microbatch", "start_ns", "end_ns", "compute_ns", "exposed_collective_ns", "inner_gap_ns"]


def draw(view: View, query: Query) -> html.Div:
    """The pipeline of a run."""
    about = view.metric("pipeline")
    if not about["available"]:
        return state("No pipeline in this run", str(about["reason"] or "no reason was given"), elsewhere(view.id))
    only = {k: v for k, v in narrowed(query).items() if k == "step"}
    return frame(view, "pipeline", query, [("actions", "Every action", _ACTIONS, "")], _what_if(view, only))


def _what_if(view: View, only: dict[str, str]) -> html.Section:
    head = [html.H2("What if"), tags(("simulated", *(("emulated",) if view.document(())["run"].get("emulated") else ())))]
    result = what_if_of(view)
    if result is None:
        line = "Alternatives are simulated from the traces themselves, which this server has not kept for this run. This command gives them:"
        return html.Section(
            [
                html.Header(html.Div(head, className="title")),
                html.P(line, className="question"),
                html.Pre(html.Code("tracekit simulate RUN"), className="command"),
            ],
            className="metric",
            id="metric-what_if",
        )
    if not result.available:
        return html.Section(
            [html.Header(html.Div(head, className="title")), html.P(str(result.reason), className="question")], className="metric", id="metric-what_if"
        )
    from tracekit.report.what_if import worded

    said, advice, found = worded(result, bool(view.document(())["run"].get("emulated")))
    drawn = alternatives(view)
    cards: list[Any] = []
    if drawn is not None:
        caption = "Time of a step per microbatch under each alternative: work, and bubble."
        here = address_of(view.id, "pipeline", **only)
        cards = [
            card(
                "what_if",
                "Alternatives",
                caption,
                f"/api/runs/{view.id}/figures/what_if",
                drawn.height,
                found.tags,
                definition="/definitions#metric-what_if",
                here=here,
                query={"g": view.generation},
                wide=True,
            )
        ]
    parts = [html.Header([html.Div(head, className="title"), html.P([said, " ", html.B(advice)], className="question")]), facts(found.facts), *cards]
    folded = html.Details([html.Summary("Numbers"), *(grid(g) for g in found.grids)], className="fold")
    return html.Section(
        [*parts, folded, html.Div([html.P(n, className="note") for n in found.notes], className="notes")], className="metric", id="metric-what_if"
    )


layout = run_page(draw)
