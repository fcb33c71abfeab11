"""How is a bubble drawn by what causes it? The measured bubble as one bar, divided; the closed form and the simulation beside it."""

from __future__ import annotations

import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result

#: Cause -> words and colour.
_CAUSES = {
    "schedule": ("the schedule itself", theme.BLUE),
    "handover": ("hand-overs and launches", theme.PURPLE),
    "imbalance": ("uneven stages", theme.YELLOW),
    "variation": ("single late actions", theme.RED),
}


def bubble_causes(result: Result) -> go.Figure | None:
    """Bars of the metric ``pipeline``, summary: % of ranks x window.

    A cause that makes the bubble smaller is drawn below 0. None where the simulation does not meet the measurement.
    """
    s = result.summary
    shares = {cause: s.get(f"bubble_from_{cause}_ratio") for cause in _CAUSES}
    measured, simulated, closed = (s.get(f"{name}bubble_ratio") for name in ("", "simulated_", "closed_form_"))
    if measured is None or simulated is None or any(share is None for share in shares.values()):
        return None
    rows = ["measured", "closed form"] if closed is not None else ["measured"]
    fig = theme.figure("% of ranks x window that is bubble", height=theme.lane_height(len(rows)) + 10, rows=rows)
    parts = {**{_CAUSES[c]: float(share or 0) for c, share in shares.items()}, ("not met by the simulation", theme.GREY): measured - simulated}
    for (name, colour), share in parts.items():
        fig.add_bar(
            y=["measured"],
            x=[100 * share],
            name=name,
            orientation="h",
            marker={"color": colour, "line": {"width": 0.5, "color": "white"}},
            hovertemplate="%{fullData.name}: %{x:.2f} %<extra></extra>",
        )
    if closed is not None:
        fig.add_bar(
            y=["closed form"], x=[100 * closed], orientation="h", marker={"color": theme.BLUE, "opacity": 0.45}, showlegend=False,
            hovertemplate="closed form: %{x:.2f} %<extra></extra>",
        )  # fmt: skip
    fig.update_layout(barmode="relative")
    return theme.fit_legend(fig)
