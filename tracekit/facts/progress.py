"""How much had this rank's device computed, and how long had it been busy at all, when each communication began?

Two running sums at the calls' starts are enough to divide any time between two calls: what was computed in between is the difference of
the first, what was idle the time minus the difference of the second. That tells later whether a rank that came late to a
collective had computed for longer, had stood idle (its host was late), or had been held up in another group's call.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.intervals import measure
from tracekit.trace import RankTrace
from tracekit.work import device_of, devices, intervals_of, work_masks


def progress(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``progress``: one row per communication that ran on a device, in order of device and start (``schema.PROGRESS``)."""
    events, masks, device = trace.events, work_masks(trace), device_of(trace)
    parts = []
    for one in devices(trace):
        here = device == one
        rows = np.flatnonzero(masks["communication"] & here)
        start = events["ts"].to_numpy()[rows]
        compute, work = intervals_of(events, masks["compute"] & here), intervals_of(events, masks["work"] & here)
        begin = np.full(len(rows), work[0][0] if len(work[0]) else 0)
        part = {"start_ns": start, "end_ns": start + events["dur"].to_numpy()[rows], "computed_before_ns": measure(compute, begin, start)}
        parts.append(pd.DataFrame({"device": one, **part, "busy_before_ns": measure(work, begin, start)}).sort_values(["start_ns", "end_ns"], kind="stable"))
    return {"progress": schema.conform(pd.concat(parts, ignore_index=True), schema.PROGRESS) if parts else schema.empty(schema.PROGRESS)}
