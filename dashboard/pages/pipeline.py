"""How large is the pipeline bubble, what causes it, and what would another schedule take?"""

from __future__ import annotations

from dash import html

from dashboard.components import what_if
from dashboard.components.guard import Query, run_page
from dashboard.components.section import frame
from dashboard.components.states import elsewhere, state
from dashboard.reading import View
from tracekit.report.sections.common import sentence

_ACTIONS = ["step", "pipeline", "rank", "stage", "action", "microbatch", "start_ns", "end_ns", "compute_ns", "exposed_collective_ns", "inner_gap_ns"]


def draw(view: View, query: Query) -> html.Div:
    """The pipeline of a run."""
    about = view.metric("pipeline")
    if not about["available"]:
        return state("There is no pipeline to show", sentence(str(about["reason"] or "no reason was given")), elsewhere(view.id))
    return frame(view, "pipeline", query, [("actions", "Every action", _ACTIONS, "")], what_if.pipeline(view, query))


layout = run_page(draw)
