"""Which slices do the records of a Chrome trace make? Complete ones (``ph`` X), and pairs of a begin and an end (B and E).

Times stay text until here and become int64 ns digit by digit: a float64 loses nanoseconds past 2^53. What is no usable
slice is counted by its reason, never dropped in silence.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.numbers import LATEST, in_range, nanoseconds
from tracekit.readers.chrome_records import Args, Event

#: Phases that begin an asynchronous range, nestable or not (Trace Event Format).
_ASYNCHRONOUS = ("b", "S")


class Slices(NamedTuple):
    """The slices of a trace, and what was no slice.

    Attributes:
        records: the record of each (of a pair: its begin).
        ts: start, ns, the trace's base time included.
        dur: duration, ns, 0 or more.
        dropped: slices without a usable time or name.
        negative: slices and pairs that end before they begin.
        begins, ends: of pairs, those without their other half.
        asynchronous: asynchronous ranges, which are not read.
    """

    records: list[Event]
    ts: npt.NDArray[np.int64]
    dur: npt.NDArray[np.int64]
    dropped: int = 0
    negative: int = 0
    begins: int = 0
    ends: int = 0
    asynchronous: int = 0


def slices_of(records: list[Event], base: int) -> Slices:
    """The slices that records make.

    Args:
        records: in the order of the file, in which begins and ends pair up.
        base: what is added to every time, ns.
    """
    phases = [e.ph for e in records]
    whole = [e for e, ph in zip(records, phases, strict=True) if ph == "X"]
    begins, ends, open_ones, lone = _pairs([e for e, ph in zip(records, phases, strict=True) if ph == "B" or ph == "E"])
    both = whole + begins
    ts, ts_ok = nanoseconds([bytes(e.ts) for e in both])
    dur, dur_ok = nanoseconds([bytes(e.dur) for e in whole])
    if begins:
        until, until_ok = nanoseconds([bytes(e.ts) for e in ends])
        dur, dur_ok = np.concatenate((dur, until - ts[len(whole) :])), np.concatenate((dur_ok, until_ok))
    dur = np.minimum(dur, LATEST >> 1)  # centuries, as CUPTI writes where it lost an end: kept, to be cut where its stream goes on
    named = np.fromiter((type(e.name) is str for e in both), bool, len(both))
    usable = named & ts_ok & dur_ok & in_range(ts, base) & in_range(ts + base, dur)
    good = usable & (dur >= 0)
    asynchronous = sum(map(phases.count, _ASYNCHRONOUS))
    kept = both if good.all() else [e for e, ok in zip(both, good.tolist(), strict=True) if ok]
    return Slices(kept, ts[good] + base, dur[good], int((~usable).sum()), int((usable & (dur < 0)).sum()), open_ones, lone, asynchronous)


def _pairs(marks: list[Event]) -> tuple[list[Event], list[Event], int, int]:
    """Begins with their ends, each end closing the latest open begin of its thread, and how many begins and ends stay alone."""
    open_ones: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    begins, ends, lone = [], [], 0
    for mark in marks:
        stack = open_ones[str(mark.pid), str(mark.tid)]
        if mark.ph == "B":
            stack.append(mark)
        elif stack:
            begins.append(_with(stack.pop(), mark))
            ends.append(mark)
        else:
            lone += 1
    return begins, ends, sum(map(len, open_ones.values())), lone


def _with(begin: Event, end: Event) -> Event:
    """A begin with what only its end says."""
    name = end.name if begin.name is None else begin.name
    return Event("X", begin.cat or end.cat, name, begin.pid, begin.tid, begin.ts, args=begin.args if type(begin.args) is Args else end.args)
