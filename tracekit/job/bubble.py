"""Which time of each rank is pipeline bubble, and how much of it is not the schedule's own?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from tracekit.intervals import EMPTY, Ints, Union, measure, merge, subtract, union
from tracekit.job.base import Job
from tracekit.job.pipeline_window import bubble_pieces, window
from tracekit.job.pipelines import Pipeline, pipelines
from tracekit.job.replay import Replay, causes, replays


@dataclass(frozen=True)
class Bubble:
    """The waiting of every rank of every pipeline whose window is known.

    Attributes:
        waiting: (rank, capture) -> when it waited, all steps together.
        arriving: (rank, capture) -> when it waited no more and the bytes came.
        early: (rank, capture) -> before the pipeline's first action, in its own step: a rank that drained early begins its next step early, and
            a receive of that step that is posted then waits for the pipeline as well.
        avoidable: (rank, capture, step) -> the part of it that the order of the schedule does not cause: uneven stages, uneven times,
            hand-overs, by simulation; absent where that cannot be told.
        inferred: whether the actions, or who belongs to a pipeline, were inferred.
        unknown: whether some pipeline's window is not known (ranks missing, clocks apart).
    """

    waiting: dict[tuple[int, int], Union]
    arriving: dict[tuple[int, int], Union]
    early: dict[tuple[int, int], Union]
    avoidable: dict[tuple[int, int, int | None], float]
    inferred: bool = False
    unknown: bool = False

    def inside(self, rows: pd.DataFrame, start: str, end: str, when: Literal["waiting", "arriving", "early"] = "waiting") -> Ints:
        """That time in the windows of a table with rank and capture, in ns per row."""
        times = {"waiting": self.waiting, "arriving": self.arriving, "early": self.early}[when]
        out = np.zeros(len(rows), np.int64)
        keys: Any = rows.groupby(["rank", "capture"], sort=False).indices if len(rows) else {}
        for (rank, capture), at in keys.items():
            part = rows.iloc[at]
            out[at] = measure(times.get((int(rank), int(capture)), EMPTY), part[start].to_numpy(np.int64), part[end].to_numpy(np.int64))
        return out


def bubble(job: Job) -> Bubble:
    """The bubble of the job's pipelines; without times where it has none."""
    several = [(p, played) for p, played in zip(pipelines(job), replays(job), strict=True) if len(p.ranks) > 1]
    found = [p for p, _ in several]
    pieces = [bubble_pieces(p).assign(capture=p.capture) for p in found]
    table = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=["rank", "capture", "start_ns", "end_ns", "piece"])
    moved = table["piece"].eq("p2p_transfer")
    avoidable: dict[tuple[int, int, int | None], float] = {}
    for one, played in several:
        share = _avoidable(played)
        if share is not None:
            avoidable |= {(rank, one.capture, one.step): share for rank in one.ranks}
    inferred = any(p.by_order or p.actions["source"].eq("inferred").any() for p in found)
    waiting = _unions(table[~moved])
    return Bubble(waiting, _unions(table[moved]), _early(job, found, waiting), avoidable, inferred, any(not (p.complete and p.causal) for p in found))


def _early(job: Job, found: list[Pipeline], waiting: dict[tuple[int, int], Union]) -> dict[tuple[int, int], Union]:
    """From the start of a rank's step to that of its pipeline's window, where the rank's first action needs what another sends."""
    steps = job.table("steps").set_index(["rank", "capture", "step"])["window_start_ns"].to_dict()
    out: dict[tuple[int, int], Union] = {}
    for one in found:
        bounds = window(one)
        first = one.actions.drop_duplicates("rank")
        for rank in first.loc[first["needs_receive"].to_numpy(bool), "rank"].tolist() if bounds is not None else ():
            start = steps.get((rank, one.capture, one.step))
            if bounds is not None and start is not None:
                key = (int(rank), one.capture)
                before = subtract(union([int(start)], [bounds[0]]), waiting.get(key, EMPTY))
                out[key] = merge(out.get(key, EMPTY), before)
    return out


def _unions(pieces: pd.DataFrame) -> dict[tuple[int, int], Union]:
    keys: Any = pieces.groupby(["rank", "capture"]).indices if len(pieces) else {}
    start, end = pieces["start_ns"].to_numpy(np.int64), pieces["end_ns"].to_numpy(np.int64)
    return {(int(rank), int(capture)): union(start[at], end[at]) for (rank, capture), at in keys.items()}


def _avoidable(played: Replay | None) -> float | None:
    """Share of a pipeline's bubble that its order with even stages and nothing between actions would not have; None where no simulation tells."""
    if played is None or not played.trusted:
        return None
    shares = causes(played)
    whole = sum(shares.values())
    return None if whole <= 0 else min(1.0, max(0.0, 1 - shares["schedule"] / whole))
