"""How is the step budget drawn? One bar per rank, its parts add up to the rank's step."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import WORK, part


def step_budget(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``budget``: mean step of each rank in ms, stacked by part.

    Args:
        result: table ``ranks`` with rank, step, part, axis, duration_ns.
        steps: steps to average over; all where None, or where the table has none of them.
    """
    table = result.tables.get("ranks")
    if table is None or not len(table):
        return None
    means = mean_parts(table, steps)
    ranks, note = _choose(means)
    rows = [f"rank {r}" for r in ranks]
    fig = theme.figure("ms per step" if table.step.notna().any() else "ms, whole recording", height=theme.lane_height(len(rows)), rows=rows, note=note)
    for name in order(means):
        values = means[name].reindex(ranks)
        fig.add_bar(
            y=rows,
            x=(values / 1e6).to_numpy(),
            name=theme.label(name),
            orientation="h",
            marker=theme.part_marker(name),
            customdata=(100 * values / means.loc[ranks].sum(axis=1)).to_numpy(),
            hovertemplate="%{y}: %{fullData.name}<br>%{x:,.4r} ms, %{customdata:.1f} % of the step<extra></extra>",
        )
    fig.update_layout(barmode="stack")
    return theme.fit_legend(fig)


def mean_parts(table: pd.DataFrame, steps: Collection[int] | None = None) -> pd.DataFrame:
    """Frame rank × part, mean ns per step; a part that a step has no row of took none of its time."""
    if steps is not None and table.step.isin(list(steps)).any():
        table = table[table.step.isin(list(steps))]
    axis = table.axis.astype(object).where(table.axis.notna(), None) if "axis" in table else pd.Series(None, index=table.index, dtype=object)
    names = {pair: part(*pair) for pair in set(zip(table.part, axis, strict=True))}
    name = [names[pair] for pair in zip(table.part, axis, strict=True)]
    sums = table.assign(name=name).pivot_table(index="rank", columns="name", values="duration_ns", aggfunc="sum", observed=True, fill_value=0)
    accounts = table[["rank", *(c for c in ("capture", "device", "step") if c in table)]].drop_duplicates()
    count = accounts.groupby("rank").size()
    means = sums.astype("float64").div(count.reindex(sums.index), axis=0)
    return means.loc[:, (means != 0).any()]


def order(means: pd.DataFrame) -> list[str]:
    """Work first in the order of a step, then the losses from the largest to the smallest, so that bars compare at their left."""
    work = [p for p in (part(w) for w in WORK) if p in means]
    return work + sorted((str(c) for c in means.columns if c not in work), key=lambda c: -float(means[c].to_numpy().mean()))


def _choose(means: pd.DataFrame) -> tuple[list[int], str]:
    ranks = list(means.index)
    if len(ranks) <= theme.RANK_LIMIT:
        return ranks, ""
    work = means[[c for c in means if c in {part(w) for w in WORK}]].sum(axis=1)
    chosen = (means.sum(axis=1) - work).nlargest(theme.RANK_LIMIT).index
    return sorted(chosen), f"{theme.RANK_LIMIT} of {len(ranks)} ranks: those that lose the most time"
