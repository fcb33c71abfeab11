"""What does device work inherit from the call that launched it? Phase, layer, recompute, stage, action, microbatch."""

from __future__ import annotations

import numpy as np

from tracekit.columns import integers
from tracekit.trace import RankTrace

INHERITED = ("phase", "layer", "layer_source", "recompute", "stage", "action", "microbatch")


def project(trace: RankTrace) -> RankTrace:
    """Copy the context of each launch to the device work (and the gloo execution) that it launched."""
    events = trace.events
    launch = integers(events["launch"])
    rows = np.flatnonzero(launch >= 0)
    columns = {}
    for name in INHERITED:
        column = events[name].copy()
        column.iloc[rows] = events[name].iloc[launch[rows]].array
        columns[name] = column
    return trace.with_events(**columns)
