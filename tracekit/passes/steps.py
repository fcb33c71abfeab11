"""Which step does an event belong to? Sets ``step`` from the ProfilerStep ranges.

CPU events belong to the step in which they start. Device work and gloo executions belong to the step that launched
them, however late they ran. Device work without a launch lies between two pieces of one step on its stream, then it belongs to that
step too (a stream keeps the order of launches); and where the trace holds no launch call at all, it belongs to the step it ran in.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Rows, integers, nullable
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind
from tracekit.windows import step_ranges
from tracekit.work import WORK


def steps(trace: RankTrace) -> RankTrace:
    """Fill ``step``; null outside every step and for device work of which neither launch, stream nor time tells."""
    events, ranges = trace.events, step_ranges(trace.events)
    if not len(events):
        return trace
    if not len(ranges):
        return trace.with_finding("no_steps", "info", "no ProfilerStep range: call prof.step() once per training step to get figures per step")
    by_time = _step_at(events["ts"].to_numpy(), ranges)
    launch = integers(events["launch"])
    on_device = events["device"].notna().to_numpy()
    at = np.where(launch >= 0, by_time[launch], np.where(on_device, -1, by_time))
    unlinked = on_device & (launch < 0) & events["kind"].isin(WORK).to_numpy()
    if unlinked.any() and (on_device & (launch >= 0)).any():
        at = _between(events, at, on_device, unlinked)
    elif unlinked.any() and not events["kind"].eq(Kind.LAUNCH).any():
        trace, at = _by_time(trace, ranges, at, unlinked, by_time)
    number = np.where(at >= 0, ranges["step"].to_numpy()[at], 0)
    return trace.with_events(step=nullable(np.where(at >= 0, number, -1)))


def _step_at(ts: Rows, ranges: pd.DataFrame) -> Rows:
    """Row of the range that holds each time; -1 outside."""
    row = np.searchsorted(ranges["start_ns"].to_numpy(), ts, "right") - 1
    inside = (row >= 0) & (ts < ranges["end_ns"].to_numpy()[np.maximum(row, 0)])
    return np.where(inside, row, -1).astype(np.int64)


def _between(events: pd.DataFrame, at: Rows, on_device: Mask, unlinked: Mask) -> Rows:
    """Unlinked work between two linked pieces of one step on its stream, given to that step."""
    rows = np.flatnonzero(on_device & events["kind"].isin(WORK).to_numpy())
    frame = pd.DataFrame({"device": integers(events["device"])[rows], "stream": integers(events["stream"])[rows], "ts": events["ts"].to_numpy()[rows]})
    frame["at"] = pd.array(at[rows], "Int64")
    frame["at"] = frame["at"].mask(unlinked[rows])
    frame = frame.sort_values("ts", kind="stable")
    stream = frame.groupby(["device", "stream"])["at"]
    before, after = stream.ffill(), stream.bfill()
    found = frame["at"].isna() & before.eq(after).fillna(False)
    out = at.copy()
    out[rows[frame.index[found]]] = before[found].to_numpy(np.int64)
    return out


def _by_time(trace: RankTrace, ranges: pd.DataFrame, at: Rows, unlinked: Mask, by_time: Rows) -> tuple[RankTrace, Rows]:
    """Work given to the step in which it ran, unless any runs across the end of a step: then hosts run ahead, and time tells nothing."""
    end = (trace.events["ts"] + trace.events["dur"]).to_numpy()
    over = unlinked & (by_time >= 0) & (end > ranges["end_ns"].to_numpy()[by_time])
    if over.any():
        says = (
            f"no launch call was recorded, and {over.sum()} pieces of device work run across the end of a step: no work can be given to a step; "
            "record the CUDA runtime (CPU and CUDA activities together)"
        )
        return trace.with_finding("steps_without_launches", "warning", says, count=int(unlinked.sum())), at
    says = f"no launch call was recorded: {unlinked.sum()} pieces of device work count to the step in which they ran"
    return trace.with_finding("steps_by_time", "info", says, count=int(unlinked.sum())), np.where(unlinked, by_time, at)
