"""How is the cost of each layer's collectives drawn? Waiting and moving bytes, stacked, one bar per layer and direction."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import span_of_layers

LIMIT = 40
_DIRECTIONS = ["forward", "backward", "recompute", "parameter", "gradient", "optimizer"]


def layer_cost(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``collectives``, table ``by_layer``: wait and transfer in ms, per step where the table tells.

    Sublayers (``layers.3.attention``) are summed into their layer. What has no layer stands as ``no layer``.
    """
    table = result.tables.get("by_layer")
    if table is None or not len(table):
        return None
    costs, per_step = layer_costs(table, steps)
    note = ""
    if len(costs) > LIMIT:
        note = f"{LIMIT} of {len(costs)} layers and directions: the dearest"
        costs = costs.loc[(costs.wait_ns.fillna(0) + costs.transfer_ns.fillna(0)).nlargest(LIMIT).index].sort_index()
    unknown = int(costs[["wait_ns", "transfer_ns"]].isna().any(axis=1).sum())
    if unknown:
        note = f"{note}; " if note else ""
        note += f"the split is unknown for {unknown} bars, drawn as far as known"
    layers = [theme.label(name) for name in costs.name]
    directions = list(costs.direction.astype(str))
    fig = theme.figure("", height=390, note=note)
    for column, name, colour in (("wait_ns", "waiting for the last rank", theme.RED), ("transfer_ns", "transfer", theme.YELLOW)):
        fig.add_bar(
            x=[directions, layers],
            y=(costs[column] / 1e6).to_numpy(),
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            customdata=costs["count"].to_numpy(),
            hovertemplate="%{x}<br>%{fullData.name}: %{y:.3f} ms in %{customdata:.0f} collectives<extra></extra>",
        )
    fig.update_layout(barmode="stack", margin={"b": 90 + (22 if note else 0)}, bargap=0.25)
    fig.update_xaxes(showgrid=False, tickangle=-60 if len(layers) > 10 else 0)
    fig.update_yaxes(title_text="ms per step" if per_step else "ms, all steps")
    return fig


def layer_costs(table: pd.DataFrame, steps: Collection[int] | None = None) -> tuple[pd.DataFrame, bool]:
    """Frame of one row per (direction, layer): name, count, wait_ns, transfer_ns; and whether they are per step.

    A sum with an unknown member is unknown.
    """
    chosen = table[table.step.isin(list(steps))] if steps is not None and "step" in table else table.iloc[:0]
    per_step = len(chosen) > 0
    if not per_step:
        chosen = table[table.step.isna()] if table.step.isna().any() else table
    index = chosen.layer_index.astype("Int64") if "layer_index" in chosen else pd.Series(pd.NA, index=chosen.index, dtype="Int64")
    own = chosen.layer.astype(object).where(chosen.layer.notna(), "no layer").astype(str)
    name = own.where(index.isna(), own.str.extract(r"^(.*?\d+)(?:\.|$)", expand=False).fillna(own))
    if "layer_last" in chosen:
        spans = pd.Series([span_of_layers(one, to) for one, to in zip(own, chosen.layer_last, strict=True)], index=chosen.index)
        name = name.where(chosen.layer_last.isna(), spans)
    direction = chosen.direction.astype(object).where(chosen.direction.notna(), "unknown").astype(str)
    rank = direction.map({d: i for i, d in enumerate(_DIRECTIONS)}).fillna(len(_DIRECTIONS)).astype(int)
    order = index.astype("float64").fillna(float("inf"))
    keyed = chosen.assign(name=name, direction=direction, _d=rank, _i=order)
    parts = keyed.groupby(["_d", "_i", "name", "direction"], dropna=False)[["count", "wait_ns", "transfer_ns"]]
    sums = parts.sum().astype("float64").where(parts.count() == parts.count().max(axis=1).to_numpy()[:, None])
    divided = sums / (len(set(chosen.step)) if per_step else 1)
    return divided.reset_index().drop(columns=["_d", "_i"]), per_step
