"""When was each step, on the host and on the device, and can it be trusted?

A step is the CPU range ``ProfilerStep#N``. Its window is that range where it holds all of the step's device work, and none that
an earlier step (or the time before the recording) left running, on every device of the rank; otherwise, as with an asynchronous
host, the device window: from the end of the device work before it (for the first step: its own first start) to the end of its
own last.

A step is complete unless its device work is missing, wholly or for some of its launches, or recording stopped within it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import STEP, Kind
from tracekit.work import WORK, kernel_launches, lost_launches, work_masks

#: The first recorded step is warm-up when it is longer than this many medians of the others.
WARMUP_FACTOR = 1.1
#: A step is cut when more than this share of its launches has no device work: single launches may fail and be tried again.
LOST_SHARE = 0.01
#: The first or last of at least three steps is cut when it has less than this share of both the time and the work of every other.
CUT_SHARE = 0.5


def step_windows(trace: RankTrace) -> pd.DataFrame:
    """Host range, window and its source, completeness and warm-up of every step (``schema.STEPS``)."""
    return trace.once("step_windows", lambda: _windows(trace)).copy(deep=False)


def _windows(trace: RankTrace) -> pd.DataFrame:
    ranges = step_ranges(trace.events)
    if not len(ranges):
        return schema.empty(schema.STEPS)
    work = work_masks(trace)["work"]
    frame = ranges.join(_extent_of_work(trace, work), on="step")  # nullable integers: a float64 would lose nanoseconds
    has_work = frame["first_ns"].notna()
    first = frame["first_ns"].fillna(frame["start_ns"]).astype("int64")
    last = frame["last_ns"].fillna(frame["end_ns"]).astype("int64")
    left = _left_from_before(trace, work)
    before = last.where(has_work).astype("Int64").cummax().ffill().shift(1).fillna(left)
    intruded = (before > frame["start_ns"]).fillna(False).astype(bool) & has_work
    on_host = ~has_work | ((first >= frame["start_ns"]) & (last <= frame["end_ns"]) & ~intruded)
    device_start = before.where((before <= first).fillna(False), first).astype("int64")
    if trace.meta.device_type == "cpu":
        on_host[:] = True
    frame["window_start_ns"] = frame["start_ns"].where(on_host, device_start)
    frame["window_end_ns"] = frame["end_ns"].where(on_host, last)
    frame["window_source"] = np.where(on_host, "host", "device")
    frame["complete"] = _complete(trace, frame, work)
    frame["warmup"] = _warmup(frame)
    return schema.conform(frame, schema.STEPS)


def step_ranges(events: pd.DataFrame) -> pd.DataFrame:
    """The ProfilerStep ranges of a rank: columns step, start_ns, end_ns; sorted by start. Old traces write them as operators."""
    numbers = {str(c): int(m["step"]) for c in events["name"].cat.categories if (m := STEP.match(str(c)))}
    rows = events[events["kind"].isin([Kind.RANGE, Kind.OPERATOR]).to_numpy() & events["name"].isin(list(numbers)).to_numpy()]
    frame = pd.DataFrame(
        {
            "step": [numbers[str(n)] for n in rows["name"]],
            "start_ns": rows["ts"].to_numpy(np.int64),
            "end_ns": (rows["ts"] + rows["dur"]).to_numpy(np.int64),
        }
    )
    return frame.astype("int64").sort_values("start_ns", kind="stable").drop_duplicates("step").reset_index(drop=True)


def _extent_of_work(trace: RankTrace, work: Mask) -> pd.DataFrame:
    """First start, last end and number of each step's device work, indexed by step."""
    rows = trace.events.loc[work & trace.events["step"].notna().to_numpy(), ["step", "ts", "dur"]]
    by_step = rows.assign(end=rows["ts"] + rows["dur"]).groupby(rows["step"].astype("int64"))
    return pd.DataFrame({"first_ns": by_step["ts"].min(), "last_ns": by_step["end"].max(), "pieces": by_step["ts"].size()}).astype("Int64")


def _left_from_before(trace: RankTrace, work: Mask) -> Any:
    """End of the device work that was launched before the recording began; null where there is none."""
    events = trace.events
    rows = events[work & before_recording(trace)]
    return int((rows["ts"] + rows["dur"]).max()) if len(rows) else pd.NA


def before_recording(trace: RankTrace) -> Mask:
    """Device work that was launched before the recording began: its correlation id is lower than that of every recorded call.

    Where it has no correlation id: it started before every recorded call.
    """
    events = trace.events
    calls = events["kind"].eq(Kind.LAUNCH).to_numpy()
    unlinked = events["device"].notna().to_numpy() & events["launch"].isna().to_numpy() & events["kind"].isin(WORK).to_numpy()
    if not unlinked.any() or not calls.any():
        return np.zeros(len(events), bool)
    correlation, ts = integers(events["correlation"]), events["ts"].to_numpy()
    known = correlation[calls & (correlation > 0)]
    lower = (correlation > 0) & (correlation < known.min()) if len(known) else np.zeros(len(events), bool)
    return np.asarray(unlinked & np.where(correlation > 0, lower, ts < ts[calls].min()), bool)


def launches_by_step(trace: RankTrace) -> pd.DataFrame:
    """Calls that launch kernels or graphs, and those of them without device work, per step: columns launches, lost; indexed by step."""
    return trace.once("launches_by_step", lambda: _launches_by_step(trace))


def _launches_by_step(trace: RankTrace) -> pd.DataFrame:
    step = integers(trace.events["step"])
    calls = kernel_launches(trace.events) & (step >= 0)
    lost = lost_launches(trace)[calls]
    return pd.DataFrame({"launches": 1, "lost": lost.astype(np.int64)}).groupby(step[calls]).sum()


def _complete(trace: RankTrace, frame: pd.DataFrame, work: Mask) -> npt.NDArray[np.bool_]:
    """Whether each step was recorded whole."""
    if not work.any() or not frame["first_ns"].notna().any():
        return np.ones(len(frame), bool)  # nothing to judge by
    calls = launches_by_step(trace).reindex(frame["step"]).fillna(0)
    lost = (calls["lost"] > LOST_SHARE * calls["launches"]).to_numpy()
    whole: npt.NDArray[np.bool_] = frame["first_ns"].notna().to_numpy() & ~lost
    inner = np.flatnonzero(whole)
    for edge in {0, len(frame) - 1}:
        others = inner[inner != edge]
        if len(others) < 2 or not whole[edge]:
            continue
        time = (frame["end_ns"] - frame["start_ns"]).to_numpy()
        pieces = integers(frame["pieces"])
        whole[edge] = not (time[edge] < CUT_SHARE * time[others].min() and pieces[edge] < CUT_SHARE * pieces[others].min())
    return whole


def _warmup(frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """The first recorded step, where it is longer than ``WARMUP_FACTOR`` x the median of the others; of whole ones, where there are any."""
    duration = (frame["window_end_ns"] - frame["window_start_ns"]).to_numpy()
    others = frame["complete"].to_numpy(bool)[1:]
    rest = duration[1:][others] if others.any() else duration[1:]
    out = np.zeros(len(frame), bool)
    out[0] = len(rest) > 0 and duration[0] > WARMUP_FACTOR * float(np.median(rest))
    return out


__all__ = ["CUT_SHARE", "LOST_SHARE", "WARMUP_FACTOR", "before_recording", "launches_by_step", "step_ranges", "step_windows"]
