"""Which events reach into a window, of some ranks? Cut out of the stored timelines for export, whole slices with all their columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.errors import UsageError
from tracekit.timeline.files import GROUP_ROWS
from tracekit.timeline.lanes import Lane
from tracekit.timeline.run import Member, Run
from tracekit.wording import duration

#: Slices of one export: about 100 MB of JSON.
MOST_SLICES = 300_000


@dataclass(frozen=True)
class Selection:
    """Part of one rank.

    Attributes:
        member: the rank and capture.
        events: rows of ``schema.EVENTS`` (columns without a value absent) and ``track``, in order of start; the index is the event's id.
        start_ns: start of each, Unix ns on the reference rank's clock.
        dur_ns: duration of each on that clock.
    """

    member: Member
    events: pd.DataFrame
    start_ns: np.ndarray[tuple[int], np.dtype[np.int64]]
    dur_ns: np.ndarray[tuple[int], np.dtype[np.int64]]

    def lane(self, track: int) -> Lane:
        """The lane of a track."""
        return next(lane for lane in reversed(self.member.timeline.lanes) if lane.first <= track)


def select(run: Run, start: int, end: int, ranks: Collection[int] | None = None, most: int = MOST_SLICES) -> list[Selection]:
    """The events that reach into ``[start, end)`` of the run, rank by rank.

    Args:
        run: the run.
        start: ns since the run's origin.
        end: likewise, exclusive.
        ranks: only these; None: all.
        most: refuse more slices than this.

    Raises:
        UsageError: the window is empty, or holds more slices.
        InputError: a stored file is damaged.
    """
    if end <= start:
        raise UsageError("the window ends before it begins")
    members = [member for member in run.members if ranks is None or member.rank in ranks]
    too_many = UsageError(f"these {duration(end - start)} hold more than {most:,} slices; an export takes no more: zoom in, or choose fewer ranks")
    # before anything is read: hours of many ranks do not fit into memory
    if sum(_at_least(member, start, end) for member in members) > most:
        raise too_many
    out, count = [], 0
    for member in members:
        found = _of(member, start, end)
        count += len(found.events)
        if count > most:
            raise too_many
        if len(found.events):
            out.append(found)
    return out


def _at_least(member: Member, start: int, end: int) -> int:
    """Events of the row groups that begin in a window: no more than reach into it."""
    low, high, events = member.own(start), member.own(end), int(member.timeline.index["events"])
    groups = enumerate(member.timeline.index["groups"])
    return sum(min(GROUP_ROWS, events - i * GROUP_ROWS) for i, (first, last, _) in groups if low <= first and last < high)


def _of(member: Member, start: int, end: int) -> Selection:
    low, high = member.own(start), member.own(end)
    groups = [i for i, (first, _, last_end) in enumerate(member.timeline.index["groups"]) if first < high and last_end >= low]
    events = member.timeline.events(groups)
    ts, dur = (events[c].to_numpy(np.int64) for c in ("ts", "dur"))
    begin = ts - member.timeline.origin_ns
    inside = (begin < high) & ((begin + dur > low) | (begin >= low))
    events, begin, dur = events[inside], begin[inside], dur[inside]
    first, last = member.shown(begin), member.shown(begin + dur)
    return Selection(member, events, first + member.origin_ns, last - first)
