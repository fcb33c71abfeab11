"""How is a pipeline's schedule drawn? One lane per rank of one pipeline and one step: F, B, I, W, waits, transfers, bubble."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result

LANES = 16
#: Bars that a browser draws at ease; with more microbatches the drawing shows the beginning of the step.
BAR_LIMIT = 2_400


def schedule(result: Result, *, p2p: pd.DataFrame | None = None, steps: Collection[int] | None = None) -> go.Figure | None:
    """Lanes of the metric ``pipeline``, table ``actions``; time in ms since the window's start.

    Args:
        result: table ``actions``: step, stage, rank, action, microbatch, start_ns, end_ns.
        p2p: the collectives' table ``p2p``; where it has ``end_ns``, transfers are drawn at the end of each receive's wait.
        steps: steady steps, of which the first is drawn.
    """
    table = result.tables.get("actions")
    if table is None or not len(table):
        return None
    actions, note = _one_step(table, steps)
    actions, one = _one_pipeline(actions)
    start, end = int(actions.start_ns.min()), int(actions.end_ns.max())
    if len(actions) > BAR_LIMIT:
        actions = actions.nsmallest(BAR_LIMIT, "start_ns")
        end = int(actions.end_ns.max())
        note = f"{note}; its first {BAR_LIMIT:,} actions"
    ranks = sorted(actions["rank"].unique(), key=lambda r: (actions.stage[actions["rank"] == r].min(), r))
    lane = {r: _lane(r, actions) for r in ranks}
    rows = [lane[r] for r in ranks]
    fig = theme.figure("ms since the first action", height=theme.lane_height(len(rows)) + 20, rows=rows, note="; ".join(n for n in (note, one) if n))
    _gaps(fig, actions, lane, start, end)
    several = actions.stage.nunique() > len(ranks)
    for action in [a for a in theme.ACTIONS if (actions.action == a).any()]:
        _actions(fig, actions[actions.action == action], action, lane, start, several)
    if p2p is not None:
        _transfers(fig, p2p, actions, lane, start, end)
    fig.update_layout(barmode="overlay", bargap=0.14)
    fig.update_xaxes(range=[0, (end - start) / 1e6])
    return fig


def gaps(actions: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """What no action of a rank covers: rows rank, kind (fill, wait, drain), start_ns, end_ns; with the actions' union they tile the window."""
    ordered = actions.sort_values(["rank", "start_ns"])
    reach = ordered.groupby("rank").end_ns.cummax()
    before = reach.groupby(ordered["rank"]).shift().fillna(start).astype("int64")
    first = ~ordered["rank"].duplicated()
    inner = pd.DataFrame({"rank": ordered["rank"], "kind": np.where(first, "fill", "wait"), "start_ns": before, "end_ns": ordered.start_ns})
    last = reach.groupby(ordered["rank"]).max()
    drain = pd.DataFrame({"rank": last.index, "kind": "drain", "start_ns": last.to_numpy(), "end_ns": end})
    both = pd.concat([inner, drain], ignore_index=True)
    return both[both.end_ns > both.start_ns].reset_index(drop=True)


def _gaps(fig: go.Figure, actions: pd.DataFrame, lane: dict[int, str], start: int, end: int) -> None:
    found = gaps(actions, start, end)
    colours = {"fill": "#F1E3E5", "wait": "#D9A0A6", "drain": "#F1E3E5"}
    words = {"fill": "bubble: fill", "wait": "bubble: waiting for a receive", "drain": "bubble: drain"}
    for kind in ("fill", "wait", "drain"):
        part = found[found.kind == kind]
        if len(part):
            _bars(fig, part, words[kind], colours[kind], lane, start, pattern="/" if kind == "wait" else "")


def _actions(fig: go.Figure, part: pd.DataFrame, action: str, lane: dict[int, str], start: int, several: bool) -> None:
    text = part.microbatch.astype("Int64").astype(str)
    hover = "stage " + part.stage.astype(str) + ", microbatch " + text
    _bars(fig, part, theme.ACTION_WORDS[action], theme.ACTIONS[action], lane, start, text=text.to_list(), hover=hover.to_list(), shade=part.stage if several else None)


def _transfers(fig: go.Figure, p2p: pd.DataFrame, actions: pd.DataFrame, lane: dict[int, str], start: int, end: int) -> None:
    if not len(p2p) or not {"end_ns", "transfer_ns", "dst"} <= set(p2p.columns):
        return
    part = p2p[p2p.dst.isin(list(lane)) & p2p.src.isin(list(lane)) & p2p.transfer_ns.notna() & p2p.end_ns.notna()]
    part = part[(part.end_ns > start) & (part.end_ns <= end)]
    if len(part):
        ends = part.end_ns.astype("int64")
        frame = pd.DataFrame({"rank": part.dst.astype("int64"), "start_ns": ends - part.transfer_ns.astype("int64"), "end_ns": ends})
        _bars(fig, frame, "receive: transfer", theme.PURPLE, lane, start, width=0.3)


def _bars(
    fig: go.Figure,
    part: pd.DataFrame,
    name: str,
    colour: str,
    lane: dict[int, str],
    start: int,
    *,
    text: list[str] | None = None,
    hover: list[str] | None = None,
    shade: pd.Series | None = None,
    pattern: str = "",
    width: float | None = None,
) -> None:
    lengths = (part.end_ns - part.start_ns).to_numpy() / 1e6
    marker = {"color": colour, "line": {"width": 0.7, "color": "white"}, "pattern": {"shape": pattern, "fgcolor": "white", "size": 5}}
    if shade is not None:
        marker["opacity"] = (1 - 0.45 * (shade - shade.min()) / max(1, shade.max() - shade.min())).to_numpy()
    fig.add_bar(
        y=part["rank"].map(lane).to_list(),
        x=lengths,
        base=(part.start_ns - start).to_numpy() / 1e6,
        name=name,
        orientation="h",
        width=width,
        marker=marker,
        text=text,
        textposition="inside" if text else "none",
        insidetextanchor="middle",
        textangle=0,
        constraintext="inside",
        insidetextfont={"color": "black" if colour == theme.YELLOW else "white", "size": 11},
        customdata=hover if hover is not None else [""] * len(part),
        hovertemplate="%{y}: %{fullData.name} %{customdata}<br>%{x:.2f} ms, from %{base:.2f} ms<extra></extra>",
    )


def _lane(rank: int, actions: pd.DataFrame) -> str:
    stages = sorted(actions.stage[actions["rank"] == rank].unique())
    return f"rank {rank} · stage {', '.join(map(str, stages))}"


def _one_step(table: pd.DataFrame, steps: Collection[int] | None) -> tuple[pd.DataFrame, str]:
    have = sorted(set(table.step.dropna()))
    if not have:
        return table, ""
    steady = [s for s in have if steps is None or s in steps] or have
    return table[table.step == steady[0]], f"step {steady[0]}"


def _one_pipeline(actions: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The actions of one pipeline: ranks with the same stages are replicas, the first of each kind makes the first pipeline."""
    stages = actions.groupby("rank").stage.agg(lambda s: tuple(sorted(set(s))))
    first = stages.reset_index().drop_duplicates("stage")["rank"]
    pipelines = len(stages) // max(1, len(first))
    note = f"1 of {pipelines} pipelines" if pipelines > 1 else ""
    if len(first) > LANES:
        first = first.iloc[np.linspace(0, len(first) - 1, LANES).round().astype(int)]
        note = "; ".join(n for n in (note, f"{LANES} of {stages.nunique()} ranks of the pipeline, evenly spaced") if n)
    return actions[actions["rank"].isin(first)], note
