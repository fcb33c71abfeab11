"""How is a pipeline's schedule drawn? One lane per rank of one pipeline and one step: F, B, I, W, waits, transfers, bubble."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from tracekit.figures import theme
from tracekit.metrics.base import Result
from tracekit.wording import duration

LANES = 16
#: Bars that a browser draws at ease; with more microbatches the drawing shows the beginning of the step.
BAR_LIMIT = 2_400


def schedule(result: Result, *, steps: Collection[int] | None = None) -> go.Figure | None:
    """Lanes of the metric ``pipeline``, table ``actions``; time in ms since the window's start.

    Args:
        result: table ``actions``: step, stage, rank, action, microbatch, start_ns, end_ns, and where known pipeline,
            transfer_start_ns and transfer_end_ns of the receive that the action needs.
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
        note = "; ".join(n for n in (note, f"its first {BAR_LIMIT:,} actions") if n)
    actions = actions.assign(chunk=actions.groupby("rank").stage.rank(method="dense") - 1)
    ranks = sorted(actions["rank"].unique(), key=lambda r: (actions.stage[actions["rank"] == r].min(), r))
    lane = {r: _lane(r, actions) for r in ranks}
    rows = [lane[r] for r in ranks]
    several = actions.stage.nunique() > len(ranks)
    if several:
        note = "; ".join(n for n in (note, "a rank's later stages are paler") if n)
    fig = theme.figure("ms since the first action", height=theme.lane_height(len(rows)) + 20, rows=rows, note="; ".join(n for n in (note, one) if n))
    for action in [a for a in theme.ACTIONS if (actions.action == a).any()]:
        _actions(fig, actions[actions.action == action], action, lane, start, several)
    _on_paper(fig, result.tables.get("ideal_actions"), actions, lane)
    found = gaps(actions, start, end)
    for kind, (name, colour, hatch) in _GAPS.items():
        part = found[found.kind == kind]
        if len(part):
            _bars(fig, part, name, colour, lane, start, pattern=hatch)
    fig.update_layout(barmode="overlay", bargap=0.14)
    fig.update_xaxes(range=[0, (end - start) / 1e6])
    return theme.fit_legend(fig)


def _on_paper(fig: go.Figure, ideal: pd.DataFrame | None, actions: pd.DataFrame, lane: dict[int, str]) -> None:
    """Thin bars at the foot of each lane: the same order with even stages and nothing between actions."""
    if ideal is None or not len(ideal) or "pipeline" not in actions:
        return
    mine = ideal[ideal["rank"].isin(list(lane)) & ideal["step"].isin(actions["step"].unique()) & ideal["pipeline"].isin(actions["pipeline"].unique())]
    mine = mine.nsmallest(BAR_LIMIT, "start_ns")
    for number, action in enumerate(a for a in theme.ACTIONS if (mine["action"] == a).any()):
        part = mine[mine["action"] == action]
        fig.add_bar(
            y=part["rank"].map(lane).to_list(),
            x=((part["end_ns"] - part["start_ns"]) / 1e6).to_numpy(),
            base=(part["start_ns"] / 1e6).to_numpy(),
            name="on paper: even stages, free sends",
            legendgroup="paper",
            showlegend=number == 0,
            orientation="h",
            width=0.1,
            offset=-0.45,
            marker={"color": theme.ACTIONS[action], "opacity": 0.6, "line": {"width": 0.7, "color": "white"}},
            customdata=_told("microbatch " + part["microbatch"].astype(str), part["end_ns"] - part["start_ns"], part["start_ns"]),
            hovertemplate="on paper: " + theme.ACTION_WORDS[action] + " of %{customdata}<extra></extra>",
        )


#: Kind of a gap -> name, colour, hatching.
_GAPS = {
    "wait": ("bubble: waits to receive", "#D9A0A6", "/"),
    "transfer": ("bubble: transfer", theme.PURPLE, ""),
    "gap": ("bubble: other gap", theme.GREY, ""),
    "edge": ("bubble: fill and drain", "#F1E3E5", ""),
}


def gaps(actions: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """What no action of a rank covers: rows rank, kind, start_ns, end_ns; with the union of the actions they tile the window.

    ``edge`` lies before a rank's first action (fill) or after its last (drain). Between actions, where the next one's
    receive is known, ``wait`` is until its transfer starts, ``transfer`` until that ends, ``gap`` the rest; where it is
    not known, all of it is ``wait`` in a pipeline whose actions wait for each other.
    """
    ordered = actions.sort_values(["rank", "start_ns"])
    reach = ordered.groupby("rank").end_ns.cummax()
    before = reach.groupby(ordered["rank"]).shift()
    first = before.isna().to_numpy()
    lo, hi = before.fillna(start).astype("int64").to_numpy(), ordered.start_ns.to_numpy("int64")
    hi = np.maximum(hi, lo)
    begin, done = _receive(ordered, "transfer_start_ns", hi).clip(lo, hi), _receive(ordered, "transfer_end_ns", hi).clip(lo, hi)
    rank = ordered["rank"].to_numpy()
    pieces = [
        pd.DataFrame({"rank": rank[first], "kind": "edge", "start_ns": lo[first], "end_ns": hi[first]}),
        *(
            pd.DataFrame({"rank": rank[~first], "kind": kind, "start_ns": a[~first], "end_ns": b[~first]})
            for kind, a, b in (("wait", lo, begin), ("transfer", begin, done), ("gap", done, hi))
        ),
    ]
    last = reach.groupby(ordered["rank"]).max()
    pieces.append(pd.DataFrame({"rank": last.index, "kind": "edge", "start_ns": last.to_numpy(), "end_ns": end}))
    both = pd.concat(pieces, ignore_index=True)
    return both[both.end_ns > both.start_ns].reset_index(drop=True)


def _receive(actions: pd.DataFrame, column: str, otherwise: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A time of the receive that an action needs. Without a receive nothing was waited for: all of the gap comes after it."""
    if column not in actions:
        return otherwise
    times = actions[column].astype("Int64")
    known = times.notna().to_numpy()
    needs = actions.needs_receive.fillna(True).to_numpy(bool) if "needs_receive" in actions else np.ones(len(actions), bool)
    nothing = np.iinfo(np.int64).min
    return np.where(known, times.fillna(0).to_numpy("int64"), np.where(needs, otherwise, nothing))


def _actions(fig: go.Figure, part: pd.DataFrame, action: str, lane: dict[int, str], start: int, several: bool) -> None:
    text = part.microbatch.astype("Int64").astype(str)
    hover = "stage " + part.stage.astype(str) + ", microbatch " + text
    _bars(
        fig,
        part,
        theme.ACTION_WORDS[action],
        theme.ACTIONS[action],
        lane,
        start,
        text=text.to_list(),
        hover=hover.to_list(),
        shade=part.chunk if several else None,
    )


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
) -> None:
    lengths = (part.end_ns - part.start_ns).to_numpy() / 1e6
    marker = {
        "color": colour,
        "line": {"width": 0.7, "color": "white"},
        "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "white", "size": 6, "solidity": 0.25},
    }
    dark = colour in (theme.BLUE, theme.GREEN)
    letters = ["white" if dark else "black"] * len(part)
    if shade is not None:
        marker["opacity"] = (1 - 0.35 * shade / max(1, shade.max())).to_numpy()
        letters = ["white" if dark and chunk == 0 else "black" for chunk in shade]
    fig.add_bar(
        y=part["rank"].map(lane).to_list(),
        x=lengths,
        base=(part.start_ns - start).to_numpy() / 1e6,
        name=name,
        orientation="h",
        width=0.72,
        offset=-0.32,
        marker=marker,
        text=text,
        textposition="inside" if text else "none",
        insidetextanchor="middle",
        textangle=0,
        constraintext="inside",
        insidetextfont={"color": letters, "size": 11},
        customdata=_told(pd.Series("" if hover is None else hover, index=part.index), part.end_ns - part.start_ns, part.start_ns - start),
        hovertemplate="%{y}: %{fullData.name} %{customdata}<extra></extra>",
    )


def _told(what: pd.Series, lengths: pd.Series, starts: pd.Series) -> list[str]:
    """What is said of a bar: how long it is and where it begins. The ``x`` of a bar that does not begin at 0 is its end, where it is pointed at."""
    return [f"{w}<br>{duration(length)}, from {duration(at)}" for w, length, at in zip(what, lengths.tolist(), starts.tolist(), strict=True)]


def _lane(rank: int, actions: pd.DataFrame) -> str:
    stages = sorted(actions.stage[actions["rank"] == rank].unique())
    return f"rank {rank} · stage {', '.join(map(str, stages))}"


def _one_step(table: pd.DataFrame, steps: Collection[int] | None) -> tuple[pd.DataFrame, str]:
    have = sorted(set(table.step.dropna()))
    if not have:
        return table, ""
    steady = [s for s in have if steps is None or s in steps] or have
    chosen = table[table.step == steady[0]]
    if "capture" in chosen:
        chosen = chosen[chosen.capture == chosen.capture.min()]
    return chosen, f"step {steady[0]}"


def _one_pipeline(actions: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The actions of one pipeline: ranks with the same stages are replicas, the first of each kind makes the first pipeline."""
    if "pipeline" in actions and actions.pipeline.nunique() > 1:
        many = actions.pipeline.nunique()
        actions = actions[actions.pipeline == actions.pipeline.min()]
        chosen, note = _one_pipeline(actions)
        return chosen, "; ".join(n for n in (f"1 of {many} pipelines", note) if n)
    stages = {rank: tuple(sorted(set(of))) for rank, of in actions.groupby("rank").stage}
    first = list({of: rank for rank, of in reversed(stages.items())}.values())[::-1]
    pipelines = len(stages) // max(1, len(first))
    note = f"1 of {pipelines} pipelines" if pipelines > 1 else ""
    if len(first) > LANES:
        note = "; ".join(n for n in (note, f"{LANES} of {len(first)} ranks of the pipeline, evenly spaced") if n)
        first = [first[i] for i in np.linspace(0, len(first) - 1, LANES).round().astype(int)]
    return actions[actions["rank"].isin(first)], note
