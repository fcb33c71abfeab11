"""In which call did a memory event happen? Sets ``event`` of the samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracekit.columns import integers, nullable
from tracekit.passes.link import on_cpu_thread
from tracekit.trace import RankTrace


def samples(trace: RankTrace) -> RankTrace:
    """Row of the innermost CPU event that encloses each sample on its thread; null outside every one, and without a thread."""
    events, rows = trace.events, np.flatnonzero(on_cpu_thread(trace.events))
    ts, thread = trace.samples["ts"].to_numpy(), integers(trace.samples["thread"])
    start, end = events["ts"].to_numpy(), (events["ts"] + events["dur"]).to_numpy()
    parent = integers(events["parent"])
    at = np.full(len(trace.samples), -1, np.int64)
    for one in np.unique(thread[thread >= 0]):
        mine, calls = np.flatnonzero(thread == one), rows[events["thread"].to_numpy()[rows] == one]
        before = np.searchsorted(start[calls], ts[mine], "right") - 1
        at[mine] = np.where(before >= 0, calls[np.maximum(before, 0)] if len(calls) else -1, -1)
    while len(events):
        over = np.flatnonzero((at >= 0) & (ts >= end[np.maximum(at, 0)]))
        if not len(over):
            break
        at[over] = parent[at[over]]
    return replace(trace, samples=trace.samples.assign(event=nullable(at)))
