"""How is the time breakdown drawn? One bar per rank: compute, communication hidden and exposed, copies, idle."""

from __future__ import annotations

from collections.abc import Collection

import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result

#: column or difference of columns -> name, colour; in the order of the bar. They add up to the span.
_PARTS = (
    ("alone_ns", "compute alone", theme.BLUE),
    ("overlap_ns", "compute hiding communication", "#88AACC"),
    ("exposed_comm_ns", "exposed communication", theme.RED),
    ("exposed_memcpy_ns", "exposed copies", theme.CYAN),
    ("undivided_ns", "whole CUDA graphs, not divided", "#77AADD"),
    ("idle_ns", "idle", theme.GREY),
)


def time_breakdown(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``breakdown``: mean step of each rank's device in ms; the parts add up to the span."""
    table = result.tables.get("devices")
    if table is None or not len(table):
        return None
    chosen = table[table.step.isin(list(steps))] if steps is not None else table[table.step.notna()]
    if not len(chosen):
        chosen = table[table.step.isna()]
    chosen = chosen.assign(alone_ns=chosen.compute_ns - chosen.overlap_ns.fillna(0))
    whole = chosen.compute_ns.isna()
    if whole.any():  # busy time with whole CUDA graphs in it stands for all its parts
        parts = {c: chosen[c].mask(whole, 0) for c in ("alone_ns", "overlap_ns", "exposed_comm_ns", "exposed_memcpy_ns")}
        chosen = chosen.assign(**parts, undivided_ns=chosen.busy_ns.where(whole, 0))
    columns = [c for c, _, _ in _PARTS if c in chosen]
    means = chosen.groupby(["rank", "device"])[columns].mean().astype("float64")
    note = ""
    if len(means) > theme.RANK_LIMIT:
        note = f"{theme.RANK_LIMIT} of {len(means)} ranks: those with the most exposed communication"
        means = means.loc[means.exposed_comm_ns.nlargest(theme.RANK_LIMIT).index.sort_values()]
    several = means.index.get_level_values("rank").duplicated().any()
    rows = [f"rank {r}, device {d}" if several else f"rank {r}" for r, d in means.index]
    fig = theme.figure("ms per step" if chosen.step.notna().any() else "ms, whole recording", height=theme.lane_height(len(rows)), rows=rows, note=note)
    for column, name, colour in _PARTS:
        if column in means and means[column].fillna(0).any():
            fig.add_bar(
                y=rows,
                x=(means[column] / 1e6).to_numpy(),
                name=name,
                orientation="h",
                marker={"color": colour, "line": {"width": 0.5, "color": "white"}},
                hovertemplate="%{y}: %{fullData.name}<br>%{x:,.4r} ms<extra></extra>",
            )
    fig.update_layout(barmode="stack")
    return theme.fit_legend(fig)
