"""What fills the memory at its peak, on which rank, and in which layer?"""

from __future__ import annotations

from dash import html

from dashboard.components import what_if
from dashboard.components.guard import Query, run_page
from dashboard.components.section import frame
from dashboard.components.states import elsewhere, state
from dashboard.reading import View
from tracekit.report.sections.common import sentence

_PEAKS = [
    "rank",
    "device_type",
    "device",
    "step",
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "parameter_bytes",
    "gradient_bytes",
    "optimizer_state_bytes",
    "activation_bytes",
]
_LAYERS = ["rank", "device_type", "device", "step", "layer", "layer_index", "activation_bytes"]


def draw(view: View, query: Query) -> html.Div:
    """The memory of a run."""
    about = view.metric("memory")
    if not about["available"]:
        return state("No memory was recorded", sentence(str(about["reason"] or "no reason was given")), elsewhere(view.id))
    tables = [
        ("peaks", "The peak of every rank and step", _PEAKS, "allocated_peak_bytes"),
        ("by_layer", "Activations of every rank and layer", _LAYERS, "activation_bytes"),
    ]
    return frame(view, "memory", query, tables, what_if.memory(view, query))


layout = run_page(draw)
