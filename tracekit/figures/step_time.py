"""How is step time drawn? A bar per rank, its median step, and a dot for each step; steps that do not count are hollow."""

from __future__ import annotations

from collections.abc import Collection

import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result


def step_times(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars and dots of the metric ``step_time``, table ``steps``: a step's window of each rank in ms.

    Args:
        result: table ``steps``: rank, step, window_ns, complete, warmup.
        steps: steps that the bars are medians of; all where None, or where the table has none of them.
    """
    table = result.tables.get("steps")
    if table is None or not len(table) or table.window_ns.isna().all():
        return None
    table = table[table.window_ns.notna()]
    counted = table.step.isin(list(steps)) if steps is not None and table.step.isin(list(steps)).any() else table.step.notna()
    medians = table[counted].groupby("rank").window_ns.median().astype("float64") / 1e6
    note = ""
    if len(medians) > theme.RANK_LIMIT:
        note = f"{theme.RANK_LIMIT} of {len(medians)} ranks: the slowest"
        medians = medians.loc[medians.nlargest(theme.RANK_LIMIT).index.sort_values()]
    rows = [f"rank {r}" for r in medians.index]
    several = bool(table.groupby(["rank"]).size().max() > 1)
    fig = theme.figure("ms per step", height=theme.lane_height(len(rows)), rows=rows, note=note, legend=several)
    fig.add_bar(
        y=rows, x=medians.to_numpy(), name="median of the steps that count", orientation="h",
        marker={"color": theme.lighter(theme.BLUE, 0.35), "line": {"width": 0}}, hovertemplate="%{y}: %{x:,.4r} ms<extra></extra>",
    )  # fmt: skip
    for name, part, symbol in (("a step", table[counted], "circle"), ("left out: cut, warm-up or not chosen", table[~counted], "circle-open")):
        part = part[part["rank"].isin(medians.index)]
        if several and len(part):
            fig.add_scatter(
                y=("rank " + part["rank"].astype(str)).to_list(), x=(part.window_ns.astype("float64") / 1e6).to_numpy(), mode="markers", name=name,
                marker={"symbol": symbol, "size": 8, "color": theme.SOFT, "line": {"width": 1, "color": theme.SOFT}},
                customdata=part.step.to_list(), hovertemplate="%{y}, step %{customdata}: %{x:,.4r} ms<extra></extra>",
            )  # fmt: skip
    fig.update_xaxes(rangemode="tozero")
    return theme.fit_legend(fig) if several else fig
