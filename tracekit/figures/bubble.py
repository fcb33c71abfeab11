"""How is a bubble drawn? Divided by what causes it, beside the closed form; and on the curve over the number of microbatches."""

from __future__ import annotations

import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.schedule.closed import window_bubble_ratio

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


def bubble_by_microbatches(result: Result) -> go.Figure | None:
    """Lines of the schedule's closed form over the number of microbatches, for the run's ranks, half and twice as many; the run as a point.

    None where the schedule has no closed form, or what ran is not known.
    """
    s = result.summary
    schedule, p, m, measured = (s.get(name) for name in ("schedule", "pipeline_ranks", "microbatches", "bubble_ratio"))
    if schedule is None or not isinstance(p, int) or not isinstance(m, int) or measured is None:
        return None
    v = s.get("virtual_stages") or 1
    means = [s.get(f"{name}_mean_ns") for name in ("forward", "input_gradient", "weight_gradient")]
    f, i, w = (float(ns or 1) for ns in means) if all(means) else (1.0, 1.0, 1.0)
    counts = sorted({max(1, p // 2), p, 2 * p})
    lines = {
        n: [(k, r) for k in range(1, 4 * max(m, 2 * p) + 1) if (r := window_bubble_ratio(schedule, n, k, v, f, i, w)) is not None] for n in counts if n > 1
    }
    if not any(lines.values()):
        return None
    fig = theme.figure("microbatches per step", height=320)
    for n, points in lines.items():
        if points:
            own = n == p
            fig.add_scatter(
                x=[k for k, _ in points],
                y=[100 * r for _, r in points],
                mode="lines",
                name=f"{schedule} on {n} ranks, closed form",
                line={"color": theme.BLUE if own else theme.GREY, "width": 2.5 if own else 1.2, "dash": "solid" if own else "dot" if n < p else "dash"},
                hovertemplate="%{fullData.name}<br>%{x} microbatches: %{y:.1f} %<extra></extra>",
            )
    fig.add_scatter(
        x=[m], y=[100 * measured], mode="markers", name=f"measured: {p} ranks", marker={"color": theme.RED, "size": 11, "line": {"width": 1, "color": "white"}},
        hovertemplate="measured<br>%{x} microbatches: %{y:.1f} %<extra></extra>",
    )  # fmt: skip
    fig.update_yaxes(title_text="bubble, % of ranks x window", rangemode="tozero")
    return theme.fit_legend(fig)
