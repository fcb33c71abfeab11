"""How does a step add up, from its work to its whole length? The mean account of the budget as a waterfall."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracekit.account_lines import WORTH, smaller, together
from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import duration, part, percent

#: From this share of the width on a label stands inside its bar; one that begins beyond the other, left of it.
_INSIDE, _LEFT = 0.3, 0.45


def step_waterfall(result: Result, *, rank: int | None = None) -> go.Figure | None:
    """Bars of the metric ``budget``: each part begins where the one before it ends; the last bar is the whole step.

    Args:
        result: table ``account`` with rank, part, axis, duration_ns, of_step_ratio, recoverable_ns.
        rank: whose mean step; the job's where None.
    """
    table = result.tables.get("account")
    if table is None or not len(table):
        return None
    rows = _rows(table[table["rank"].isna() if rank is None else table["rank"].eq(rank)])
    whole = float(rows["duration_ns"].sum())
    if whole <= 0:
        return None
    names = [*rows["name"], "step"]
    fig = theme.figure("ms", height=100 + 36 * len(names), rows=[theme.label(n) for n in names])
    start = rows["duration_ns"].cumsum().shift(fill_value=0.0)
    back = rows["recoverable_ns"].fillna(0.0).astype("float64")
    back = back.where(back >= WORTH * whole, 0.0)
    kept = rows["duration_ns"] - back
    lanes = [theme.label(n) for n in rows["name"]]
    told = [f"{duration(ns)} · {percent(ns / whole)}" for ns in rows["duration_ns"]]
    come = [
        f"<br>up to {duration(b)} could come back: {theme.words(w) if isinstance(w, str) else ''}" if b else "" for b, w in zip(back, rows["what"], strict=True)
    ]
    hover = [f"{n}: {t}{c}" for n, t, c in zip(lanes, told, come, strict=True)]
    as_told = "%{customdata}<extra></extra>"
    colours = [theme.part_colour(n) for n in rows["name"]]
    fig.add_bar(
        y=[*lanes, "step"], x=[*kept / 1e6, whole / 1e6], base=[*start / 1e6, 0.0], orientation="h", showlegend=False, name="stays",
        marker={"color": [*colours, theme.SOFT], "line": {"width": 0}}, customdata=[*hover, f"step: {duration(whole)}"], hovertemplate=as_told,
    )  # fmt: skip
    if back.gt(0).any():
        pattern = {"shape": "/", "fillmode": "replace", "fgcolor": colours, "bgcolor": [theme.lighter(c, 0.7) for c in colours], "size": 7, "solidity": 0.35}
        fig.add_bar(
            y=lanes, x=back / 1e6, base=(start + kept) / 1e6, orientation="h", showlegend=False, name="could come back at best",
            marker={"color": colours, "pattern": pattern, "line": {"width": 0}}, customdata=hover, hovertemplate=as_told,
        )  # fmt: skip
        fig.add_bar(y=[None], x=[None], name="could come back at best", orientation="h", marker=_hatched(theme.SOFT))
    _labels(fig, [*lanes, "step"], [*start, 0.0], [*rows["duration_ns"], whole], [*told, duration(whole)], back.to_list(), whole)
    for at, edge in enumerate((start + rows["duration_ns"]).to_list()):
        fig.add_shape(
            type="line", x0=edge / 1e6, x1=edge / 1e6, y0=len(names) - 1 - at, y1=len(names) - 2 - at, line={"color": theme.GREY, "width": 1, "dash": "dot"}
        )
    fig.update_layout(barmode="overlay", showlegend=bool(back.gt(0).any()))
    fig.update_xaxes(range=[0, whole / 1e6 * 1.01])
    return fig


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    """Parts with their names, the small ones put together where there are several."""
    axis = table["axis"].astype(object).where(table["axis"].notna(), None)
    table = table.assign(name=[part(p, a) for p, a in zip(table["part"], axis, strict=True)])
    table = table[table["duration_ns"].gt(0)].reset_index(drop=True)
    small = np.array(together(table["part"].tolist(), table["duration_ns"].tolist()), bool)
    columns = ["name", "duration_ns", "recoverable_ns", "what"]
    if not small.any():
        return table[columns]
    rest = pd.DataFrame({"name": [smaller(int(small.sum()))], "duration_ns": [float(table.loc[small, "duration_ns"].sum())]})
    return pd.concat([table.loc[~small, columns].astype(object), rest.astype(object)], ignore_index=True).astype(
        {"duration_ns": "float64", "recoverable_ns": "Float64"}
    )


def _hatched(colour: str) -> dict[str, object]:
    return {
        "color": colour,
        "pattern": {"shape": "/", "fillmode": "replace", "fgcolor": colour, "bgcolor": theme.lighter(colour, 0.7), "size": 7, "solidity": 0.35},
    }


def _labels(fig: go.Figure, lanes: list[str], start: list[float], length: list[float], told: list[str], back: list[float], whole: float) -> None:
    """Length and share beside each bar, inside it where it is long enough."""
    groups: dict[str, list[int]] = {"middle center": [], "middle left": [], "middle right": []}
    for i in range(len(lanes)):
        inside, left = length[i] >= _INSIDE * whole and not (i < len(back) and back[i]), start[i] > _LEFT * whole
        groups["middle center" if inside else "middle left" if left else "middle right"].append(i)
    places = {"middle center": lambda i: start[i] + length[i] / 2, "middle left": lambda i: start[i], "middle right": lambda i: start[i] + length[i]}
    for position, at in groups.items():
        if at:
            back_of = {i: f"  <i>up to {duration(back[i])} back</i>" if i < len(back) and back[i] else "" for i in at}
            fig.add_scatter(
                x=[places[position](i) / 1e6 for i in at], y=[lanes[i] for i in at], mode="text", textposition=position, showlegend=False, hoverinfo="skip",
                text=[f" {told[i]}{back_of[i]} " for i in at], textfont={"size": 12, "color": "white" if position == "middle center" else theme.INK},
                cliponaxis=False,
            )  # fmt: skip
