"""When was each step, on the host and on the device, and can it be trusted?

A step is the CPU range ``ProfilerStep#N``. Its window is that range where it holds all of the step's device work, on
every device of the rank; otherwise, as with an asynchronous host, the device window: from the end of the previous
step's last device work (for the first step: its own first start) to the end of its own last.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.trace import RankTrace
from tracekit.vocabulary import STEP, Kind
from tracekit.work import work_masks

#: The first recorded step is warm-up when it is longer than this many medians of the others.
WARMUP_FACTOR = 1.1


def step_windows(trace: RankTrace) -> pd.DataFrame:
    """Host range, window and its source, completeness and warm-up of every step (``schema.STEPS``)."""
    ranges = _ranges(trace.events)
    if not len(ranges):
        return schema.empty(schema.STEPS)
    frame = ranges.join(_device_work(trace), on="step")  # nullable integers: a float64 would lose nanoseconds
    has_work = frame["first_ns"].notna()
    first = frame["first_ns"].fillna(frame["start_ns"]).astype("int64")
    last = frame["last_ns"].fillna(frame["end_ns"]).astype("int64")
    on_host = ~has_work | ((first >= frame["start_ns"]) & (last <= frame["end_ns"]))
    before = last.cummax().astype("Int64").shift(1)
    device_start = before.where((before <= first).fillna(False), first).astype("int64")
    if trace.meta.device_type == "cpu":
        on_host[:] = True
    frame["window_start_ns"] = frame["start_ns"].where(on_host, device_start)
    frame["window_end_ns"] = frame["end_ns"].where(on_host, last)
    frame["window_source"] = np.where(on_host, "host", "device")
    frame["complete"] = _complete(trace, frame)
    duration = frame["window_end_ns"] - frame["window_start_ns"]
    frame["warmup"] = [i == 0 and len(frame) > 1 and duration.iloc[0] > WARMUP_FACTOR * duration.iloc[1:].median() for i in range(len(frame))]
    return schema.conform(frame, schema.STEPS)


def _ranges(events: pd.DataFrame) -> pd.DataFrame:
    numbers = {c: int(m["step"]) for c in events["name"].cat.categories if (m := STEP.match(str(c)))}
    rows = events[events["kind"].eq(Kind.RANGE).to_numpy() & events["name"].isin(list(numbers)).to_numpy()]
    rows = rows.sort_values("ts", kind="stable")
    frame = pd.DataFrame({"step": [numbers[n] for n in rows["name"]], "start_ns": rows["ts"].to_numpy(), "end_ns": (rows["ts"] + rows["dur"]).to_numpy()})
    return frame.drop_duplicates("step").reset_index(drop=True)


def _device_work(trace: RankTrace) -> pd.DataFrame:
    """First start and last end of each step's device work, indexed by step."""
    masks = work_masks(trace)
    work = masks["compute"] | masks["communication"] | masks["copy"]
    rows = trace.events.loc[work & trace.events["step"].notna().to_numpy(), ["step", "ts", "dur"]]
    by_step = rows.assign(end=rows["ts"] + rows["dur"]).groupby(rows["step"].astype("int64"))
    return pd.DataFrame({"first_ns": by_step["ts"].min(), "last_ns": by_step["end"].max()}).astype("Int64")


def _complete(trace: RankTrace, frame: pd.DataFrame) -> list[bool]:
    """A step is cut when it holds no device work although the trace has some: the recording missed it."""
    work = _device_work(trace)
    if not len(work):
        return [True] * len(frame)
    return [step in work.index for step in frame["step"]]
