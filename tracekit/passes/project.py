"""What does device work inherit from the call that launched it? Phase, layer, recompute, stage, action, microbatch."""

from __future__ import annotations

import numpy as np

from tracekit.columns import integers
from tracekit.trace import RankTrace

INHERITED = ("phase", "layer", "layer_source", "recompute", "stage", "action", "microbatch")

_OF_ACTION = ("phase", "stage", "action", "microbatch")


def project(trace: RankTrace) -> RankTrace:
    """Copy the context of each launch to the device work (and the gloo execution) that it launched."""
    events = trace.events
    launch = integers(events["launch"])
    labelled = events["action"].notna().to_numpy() & events["device"].notna().to_numpy()
    columns = {}
    for name in INHERITED:
        # device work that names its own action keeps it
        rows = np.flatnonzero((launch >= 0) & ~(labelled & (name in _OF_ACTION)))
        column = events[name].copy()
        column.iloc[rows] = events[name].iloc[launch[rows]].array
        columns[name] = column
    return trace.with_events(**columns)
