"""How is the cost of recomputation drawn? Forward, repeated forward and backward of each rank, stacked; by layer beside what it saves."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tracekit.figures import theme
from tracekit.metrics.base import Result

#: Layers whose bars and names can be told apart.
LAYER_LIMIT = 48


def recompute_cost(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``recompute``, table ``ranks``: mean ms per step and rank."""
    table = result.tables.get("ranks")
    if table is None or not len(table):
        return None
    chosen, note = theme.of_steps(table, steps)
    means = chosen.groupby("rank")[["forward_ns", "recompute_ns", "backward_ns"]].mean().astype("float64")
    if len(means) > theme.RANK_LIMIT:
        note += "; " if note else ""
        note += f"{theme.RANK_LIMIT} of {len(means)} ranks: those that recompute the longest"
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
            hovertemplate="%{y}: %{fullData.name}<br>%{x:,.4r} ms<extra></extra>",
        )  # fmt: skip
    fig.update_layout(barmode="stack")
    return theme.fit_legend(fig)


def recompute_saving(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Bars of the metric ``recompute``, table ``layers``: ms repeated beside bytes saved of each layer, means over ranks and steps.

    None where no layer was repeated; a layer of which it is not known what it saves has no bar on that side, and the note says so.
    """
    table = result.tables.get("layers")
    if table is None or not len(table):
        return None
    chosen, other = theme.of_steps(table, steps)
    again = chosen[chosen.recompute_runs.gt(0)]
    means = again.groupby(["layer", "layer_index"], dropna=False, sort=False).agg(
        again_ns=("recompute_ns", lambda n: n.astype("Float64").mean(skipna=False)),
        saved=("saved_bytes", lambda n: n.astype("Float64").mean(skipna=False)),
    )
    means = means.reset_index().sort_values(["layer_index", "layer"], kind="stable")
    if not means.saved.notna().any():
        return None
    notes = [other] if other else []
    if len(means) > LAYER_LIMIT:
        notes.append(f"{LAYER_LIMIT} of {len(means)} layers: those that repeat the longest")
        means = means.loc[means.again_ns.astype("float64").nlargest(LAYER_LIMIT).index.sort_values()]
    if means.saved.isna().any():
        notes.append(f"what {int(means.saved.isna().sum())} of {len(means)} layers save is unknown")
    sources = {"measured": "measured against a kept layer", "closed_form": "by the closed form"}
    notes.append("saved: " + ", ".join(words for source, words in sources.items() if again.saved_source.eq(source).any()))
    rows = theme.labels(means.layer, 40)
    panels = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    fig = theme.figure("", height=theme.lane_height(len(rows)), rows=rows, note="; ".join(notes), panels=panels)
    _side(fig, 1, rows, means.again_ns / 1e6, "forward again (recomputation)", "ms", theme.PURPLE)
    unit, size = theme.bytes_unit(float(means.saved.astype("float64").max()))
    _side(fig, 2, rows, means.saved / unit, "activation memory saved at the peak", size, theme.BLUE)
    fig.update_xaxes(title_text="ms repeated per step", col=1)
    fig.update_xaxes(title_text=f"{size} saved", col=2)
    return theme.fit_legend(fig)


def _side(fig: go.Figure, column: int, rows: list[str], values: pd.Series, name: str, unit: str, colour: str) -> None:
    x = [None if pd.isna(v) else float(v) for v in values]
    hover = f"%{{y}}: {name}<br>%{{x:,.4r}} {unit}<extra></extra>"
    fig.add_trace(go.Bar(y=rows, x=x, name=name, orientation="h", marker={"color": colour}, hovertemplate=hover), row=1, col=column)
