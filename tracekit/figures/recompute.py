"""How is the cost of recomputation drawn? Forward, repeated forward and backward of each rank, stacked."""

from __future__ import annotations

from collections.abc import Collection

import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result


def recompute_cost(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``recompute``, table ``ranks``: mean ms per step and rank."""
    table = result.tables.get("ranks")
    if table is None or not len(table):
        return None
    chosen = table[table.step.isin(list(steps))] if steps is not None and table.step.isin(list(steps)).any() else table
    means = chosen.groupby("rank")[["forward_ns", "recompute_ns", "backward_ns"]].mean().astype("float64")
    note = ""
    if len(means) > theme.RANK_LIMIT:
        note = f"{theme.RANK_LIMIT} of {len(means)} ranks: those that recompute the longest"
        means = means.loc[means.recompute_ns.nlargest(theme.RANK_LIMIT).index.sort_values()]
    rows = [f"rank {r}" for r in means.index]
    fig = theme.figure("ms per step", height=theme.lane_height(len(rows)), rows=rows, note=note)
    for column, name, colour in (
        ("forward_ns", "forward", theme.BLUE),
        ("recompute_ns", "forward again (recomputation)", theme.PURPLE),
        ("backward_ns", "backward", theme.GREEN),
    ):
        fig.add_bar(
            y=rows, x=(means[column] / 1e6).to_numpy(), name=name, orientation="h", marker={"color": colour, "line": {"width": 0.5, "color": "white"}},
            hovertemplate="%{y}: %{fullData.name}<br>%{x:.2f} ms<extra></extra>",
        )  # fmt: skip
    fig.update_layout(barmode="stack")
    return theme.fit_legend(fig)
