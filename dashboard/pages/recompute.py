"""What does activation recomputation cost, and what does it save?"""

from __future__ import annotations

from dash import html

from dashboard.components.guard import Query, run_page
from dashboard.components.section import frame
from dashboard.components.states import elsewhere, state
from dashboard.reading import View
from tracekit.report.sections.common import sentence

_RANKS = ["rank", "step", "forward_ns", "backward_ns", "recompute_ns", "overhead_of_step_compute_ratio", "overhead_of_backward_ratio"]
_LAYERS = ["rank", "step", "layer", "layer_index", "forward_ns", "recompute_ns", "backward_ns", "forward_runs", "recompute_runs"]


def draw(view: View, query: Query) -> html.Div:
    """The recomputation of a run."""
    about = view.metric("recompute")
    ways = [("Memory of this run", f"/runs/{view.id}/memory"), *elsewhere(view.id)]
    if not about["available"]:
        return state("Recomputation is unknown", sentence(str(about["reason"] or "no reason was given")), ways)
    if about["summary"].get("mode") == "none":
        line = "No forward operator ran again inside the backward of these steps: activations were all kept."
        return state("Nothing was recomputed", line, ways)
    tables = [("ranks", "Every rank and step", _RANKS, "recompute_ns"), ("layers", "Every rank and layer", _LAYERS, "recompute_ns")]
    return frame(view, "recompute", query, tables)


layout = run_page(draw)
