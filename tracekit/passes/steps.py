"""Which step does an event belong to? Sets ``step`` from the ProfilerStep ranges.

CPU events belong to the step in which they start. Device work and gloo executions belong to the step that launched
them, however late they ran.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import integers, nullable
from tracekit.trace import RankTrace
from tracekit.vocabulary import STEP, Kind


def step_ranges(events: pd.DataFrame) -> pd.DataFrame:
    """The ProfilerStep ranges of a rank: columns step, start_ns, end_ns; sorted by start."""
    numbers = {str(c): int(m["step"]) for c in events["name"].cat.categories if (m := STEP.match(str(c)))}
    rows = events[events["kind"].eq(Kind.RANGE) & events["name"].isin(list(numbers))]
    frame = pd.DataFrame(
        {
            "step": [numbers[str(n)] for n in rows["name"]],
            "start_ns": rows["ts"].to_numpy(np.int64),
            "end_ns": (rows["ts"] + rows["dur"]).to_numpy(np.int64),
        }
    )
    return frame.astype("int64").sort_values("start_ns").drop_duplicates("step").reset_index(drop=True)


def steps(trace: RankTrace) -> RankTrace:
    """Fill ``step``; null outside every step and for device work whose launch is not in the trace."""
    events, ranges = trace.events, step_ranges(trace.events)
    if not len(ranges):
        return trace.with_finding("no_steps", "warning", "no ProfilerStep range: call prof.step() once per training step to get figures per step")
    at = _step_at(events["ts"].to_numpy(), ranges)
    launch = integers(events["launch"])
    on_device = events["device"].notna().to_numpy()
    at = np.where(launch >= 0, at[launch], np.where(on_device, -1, at))
    number = np.where(at >= 0, ranges["step"].to_numpy()[at], 0)
    return trace.with_events(step=nullable(np.where(at >= 0, number, -1)))


def _step_at(ts: npt.NDArray[np.int64], ranges: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Row of the range that holds each time; -1 outside."""
    row = np.searchsorted(ranges["start_ns"].to_numpy(), ts, "right") - 1
    inside = (row >= 0) & (ts < ranges["end_ns"].to_numpy()[np.maximum(row, 0)])
    return np.where(inside, row, -1).astype(np.int64)
