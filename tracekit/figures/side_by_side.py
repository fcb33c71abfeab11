"""How are several runs drawn beside each other? One bar per run, 100 % of its step, by the parts of the budget."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.figures.budget import order


def budgets(parts: Mapping[str, Mapping[str, float]]) -> go.Figure | None:
    """Shares of a step by part.

    Args:
        parts: run -> part -> mean ns per step; runs are drawn in this order, shares of each add up to 100 %.
    """
    frame = pd.DataFrame(parts).T.fillna(0.0).astype("float64")
    if not frame.size:
        return None
    frame = frame.reindex(list(parts))
    whole = frame.sum(axis=1)
    shares = 100 * frame.div(whole.where(whole > 0), axis=0)
    rows = theme.labels(frame.index)
    fig = theme.figure("% of the step", height=theme.lane_height(len(rows)), rows=rows)
    for part in order(shares):
        fig.add_bar(
            y=rows, x=shares[part].to_numpy(), name=theme.label(part), orientation="h", marker=theme.part_marker(part),
            customdata=(frame[part] / 1e6).to_numpy(), hovertemplate="%{y}: %{fullData.name}<br>%{x:.1f} %, %{customdata:,.4r} ms<extra></extra>",
        )  # fmt: skip
    fig.update_layout(barmode="stack")
    fig.update_xaxes(range=[0, 100])
    return theme.fit_legend(fig)
