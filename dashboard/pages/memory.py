"""What fills the memory at its peak, on which rank, and in which layer?"""

from __future__ import annotations

from dash import html

from dashboard.components.controls import bar, step_choice
from dashboard.components.guard import Query, run_page
from dashboard.components.query import narrowed
from dashboard.components.section import section
from dashboard.components.states import elsewhere, state
from dashboard.components.table import table
from dashboard.reading import View

_PEAKS = [
    "rank",
    "device",
    "step",
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "parameter_bytes",
    "gradient_bytes",
    "optimizer_state_bytes",
    "activation_bytes",
]
_LAYERS = ["rank", "step", "layer", "layer_index", "activation_bytes"]


def draw(view: View, query: Query) -> html.Div:
    """The memory of a run."""
    about = view.metric("memory")
    if not about["available"]:
        return state("No memory was recorded", str(about["reason"] or "no reason was given"), elsewhere(view.id))
    only = {k: v for k, v in narrowed(query).items() if k == "step"}
    tables = [
        table(view, "memory", "peaks", "The peak of every rank and step", _PEAKS, only, sort="allocated_peak_bytes"),
        table(view, "memory", "by_layer", "Activations of every rank and layer", _LAYERS, only, sort="activation_bytes"),
    ]
    controls = step_choice(view.steps(), view.steady(), only.get("step", ""))
    return html.Div([section(view, "memory", "memory", only, tables=tables, level=1, controls=bar(controls))], className="page")


layout = run_page(draw)
