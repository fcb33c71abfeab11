"""Which pipeline action does a CPU event run in? Sets ``stage``, ``action`` and ``microbatch`` from action ranges.

The range of an action stands on the thread that drives the schedule while its backward may run on another one, so
events are led to actions by time, the innermost range first. Two overlapped actions in one range are told apart later
by the phase of each event, which this pass leaves to ``layers``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import choose, integers
from tracekit.intervals import parents
from tracekit.passes.link import on_cpu_thread
from tracekit.trace import RankTrace
from tracekit.vocabulary import GPIPE_RANGE, Kind, parse_actions


def actions(trace: RankTrace) -> RankTrace:
    """Fill ``stage``, ``action`` and ``microbatch`` of CPU events inside an action's range."""
    events = trace.events
    ranges = _ranges(events, named=_parse_action)
    if not len(ranges):
        ranges = _ranges(events, named=_parse_gpipe)
    if not len(ranges):
        return trace
    at = _innermost(ranges, events["ts"].to_numpy())
    inside = (at >= 0) & on_cpu_thread(events)
    at = np.maximum(at, 0)
    stage, microbatch = (integers(ranges[c])[at] for c in ("stage", "microbatch"))
    action = choose(inside, ranges["action"].to_numpy(object)[at], None)
    return trace.with_events(
        stage=pd.arrays.IntegerArray(stage, ~inside | (stage < 0)),
        microbatch=pd.arrays.IntegerArray(microbatch, ~inside | (microbatch < 0)),
        action=pd.Categorical(action, categories=["F", "B", "I", "W"]),
    )


def _parse_action(name: str) -> tuple[int | None, str, int] | None:
    found = parse_actions(name)
    return found[0] if len(found) == 1 else None


def _parse_gpipe(name: str) -> tuple[int | None, str, int] | None:
    m = GPIPE_RANGE.match(name)
    return (None, m["what"][0], int(m["microbatch"])) if m else None


def _ranges(events: pd.DataFrame, named: Callable[[str], tuple[int | None, str, int] | None]) -> pd.DataFrame:
    """Action ranges in order of start: start_ns, end_ns, stage, action, microbatch, and row of the enclosing one."""
    meaning = {c: found for c in events["name"].cat.categories if (found := named(str(c)))}
    rows = events[events["kind"].eq(Kind.RANGE).to_numpy() & events["name"].isin(list(meaning)).to_numpy()]
    rows = rows.sort_values(["ts", "dur"], ascending=[True, False], kind="stable")
    rows_of = [meaning[n] for n in rows["name"]]
    frame = pd.DataFrame(
        {
            "start_ns": rows["ts"].to_numpy(np.int64),
            "end_ns": (rows["ts"] + rows["dur"]).to_numpy(np.int64),
            "stage": pd.array([stage for stage, _, _ in rows_of], dtype="Int64"),
            "action": [action for _, action, _ in rows_of],
            "microbatch": pd.array([microbatch for _, _, microbatch in rows_of], dtype="Int64"),
        }
    )
    frame["outer"] = parents(np.zeros(len(frame)), frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
    return frame


def _innermost(ranges: pd.DataFrame, ts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row of the innermost range that holds each time; -1 outside all."""
    at = np.searchsorted(ranges["start_ns"].to_numpy(), ts, "right") - 1
    end, outer = ranges["end_ns"].to_numpy(), ranges["outer"].to_numpy()
    while True:
        over = np.flatnonzero((at >= 0) & (ts >= end[np.maximum(at, 0)]))
        if not len(over):
            return at.astype(np.int64)
        at[over] = outer[at[over]]
