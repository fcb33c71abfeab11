"""What did a rank do, on one line? All its work on devices, and below it all its communication, whatever stream either ran on.

Where slices of one track overlap, the earlier keeps the time that both have: the track covers exactly the union of them all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tracekit.columns import Mask, Rows
from tracekit.timeline.lanes import SUMMARY, Lane
from tracekit.trace import RankTrace
from tracekit.work import work_masks


class Summary(NamedTuple):
    """The two tracks of a rank's summary.

    Attributes:
        lane: the lane that they make.
        rows: row of the event that each piece is of.
        track: its track.
        start: ns, sorted within a track.
        end: no later than the next start.
    """

    lane: Lane
    rows: Rows
    track: Rows
    start: Rows
    end: Rows


def summary(trace: RankTrace, first: int) -> Summary:
    """The summary of a rank, its tracks numbered from ``first``: work, then communication."""
    masks = work_masks(trace)
    parts = [_flat(trace, masks["work"] & ~masks["communication"]), _flat(trace, masks["communication"])]
    rows, start, end = (np.concatenate([part[i] for part in parts]) for i in range(3))
    track = np.repeat([first, first + 1], [len(part[0]) for part in parts])
    return Summary(Lane(SUMMARY, "work, and communication below", None, None, None, first, 2), rows, track, start, end)


def _flat(trace: RankTrace, mask: Mask) -> tuple[Rows, Rows, Rows]:
    """Disjoint pieces of the slices that a mask picks, in order; together they cover what the slices cover."""
    rows = np.flatnonzero(mask)
    ts = trace.events["ts"].to_numpy(np.int64)[rows]
    end = ts + trace.events["dur"].to_numpy(np.int64)[rows]
    order = np.lexsort((-end, ts))
    rows, ts, end = rows[order], ts[order], end[order]
    if len(rows):
        ts[1:] = np.maximum(ts[1:], np.maximum.accumulate(end)[:-1])
    kept = end > ts
    return rows[kept], ts[kept], end[kept]
