"""Which time of each rank is pipeline bubble, and how much of it is not the schedule's own?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from tracekit.intervals import EMPTY, Ints, Union, measure, merge, subtract, union
from tracekit.job.base import Job
from tracekit.job.pipeline_window import bubble_times
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
        starts, ends = rows[start].to_numpy(np.int64), rows[end].to_numpy(np.int64)
        for (rank, capture), at in keys.items():
            out[at] = measure(times.get((int(rank), int(capture)), EMPTY), starts[at], ends[at])
        return out


def bubble(job: Job) -> Bubble:
    """The bubble of the job's pipelines; without times where it has none."""
    several = [(p, played) for p, played in zip(pipelines(job), replays(job), strict=True) if len(p.ranks) > 1]
    found = [p for p, _ in several]
    times: dict[tuple[int, int], list[tuple[Union, Union]]] = {}
    for one in found:
        for rank, both in bubble_times(one).items():
            times.setdefault((rank, one.capture), []).append(both)
    waiting, arriving = ({key: merge(*(both[k] for both in steps)) for key, steps in times.items()} for k in (0, 1))
    avoidable: dict[tuple[int, int, int | None], float] = {}
    for one, played in several:
        share = _avoidable(played)
        if share is not None:
            avoidable |= {(rank, one.capture, one.step): share for rank in one.ranks}
    inferred = any(p.by_order or p.actions["source"].eq("inferred").any() for p in found)
    return Bubble(waiting, arriving, _early(job, found, waiting), avoidable, inferred, any(not (p.complete and p.causal) for p in found))


def _early(job: Job, found: list[Pipeline], waiting: dict[tuple[int, int], Union]) -> dict[tuple[int, int], Union]:
    """From the start of a rank's step to that of its pipeline's window, where the rank's first action needs what another sends."""
    steps = job.table("steps").set_index(["rank", "capture", "step"])["window_start_ns"].to_dict()
    out: dict[tuple[int, int], Union] = {}
    for one in found:
        if one.window is None:
            continue
        ranks, first = np.unique(one.actions["rank"].to_numpy(np.int64), return_index=True)
        for rank in ranks[one.actions["needs_receive"].to_numpy(bool)[first]].tolist():
            start, key = steps.get((rank, one.capture, one.step)), (rank, one.capture)
            if start is not None:
                before = subtract(union([int(start)], [one.window[0]]), waiting.get(key, EMPTY))
                out[key] = merge(out.get(key, EMPTY), before)
    return out


def _avoidable(played: Replay | None) -> float | None:
    """Share of a pipeline's bubble that its order with even stages and nothing between actions would not have; None where no simulation tells."""
    if played is None or not played.trusted:
        return None
    shares = causes(played)
    whole = sum(shares.values())
    return None if whole <= 0 else min(1.0, max(0.0, 1 - shares["schedule"] / whole))
