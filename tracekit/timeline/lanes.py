"""On which lane is a slice drawn, and on which of the lane's tracks, so that no two slices of a track overlap?

A lane is a stream of a device or a thread of the host; communication, asynchronous ranges and ranges on devices have lanes of
their own. Track 0 of a lane holds its outermost slices, track 1 those inside them, and so on; slices that overlap without one
holding the other go to different tracks too (first fit), so nothing is ever hidden under something else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import Rows, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind

#: Tracks of one lane; slices nested or overlapping deeper are counted and not drawn.
MOST_TRACKS = 256
#: Lanes of one rank; the threads beyond share the last one.
MOST_LANES = 512

DEVICE, COMMUNICATION, THREAD, ASYNC, DEVICE_RANGES, SUMMARY = "device", "communication", "thread", "async", "device_ranges", "summary"
CLASSES = (DEVICE, COMMUNICATION, THREAD, ASYNC, DEVICE_RANGES, SUMMARY)
_CLASS = {Kind.COMMUNICATION: 1, Kind.ASYNC_RANGE: 3, Kind.DEVICE_RANGE: 4}
_ON_DEVICE = (Kind.COMPUTE, Kind.MEMCPY, Kind.MEMSET, Kind.GRAPH)


class Lane(NamedTuple):
    """One lane of a rank.

    Attributes:
        what: one of ``CLASSES``.
        name: what is written beside it.
        device, stream, thread: where its slices ran; None where that does not apply.
        first: number of its first track among all of the rank.
        tracks: how many it has.
        nested: whether each slice of a deeper track lies within one of the track above.
    """

    what: str
    name: str
    device: int | None
    stream: int | None
    thread: int | None
    first: int
    tracks: int
    nested: bool = True


class Placed(NamedTuple):
    """Where the slices of a rank are drawn.

    Attributes:
        rows: rows of the events that are drawn, sorted by (track, ts).
        track: the track of each, ascending.
        lanes: every lane, in order of their tracks.
        left_out: slices nested deeper than ``MOST_TRACKS``.
    """

    rows: Rows
    track: Rows
    lanes: tuple[Lane, ...]
    left_out: int


def place(trace: RankTrace) -> Placed:
    """Put every slice of a trace on a track."""
    events = trace.events
    keys = _keys(events)
    number, lanes = _numbered(keys)
    ts, dur = events["ts"].to_numpy(np.int64), events["dur"].to_numpy(np.int64)
    order = np.lexsort((-dur, ts, number))
    bounds = np.searchsorted(number[order], np.arange(len(lanes) + 1))
    depth = np.empty(len(events), np.int64)
    nested = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[first:last]
        depth[rows] = tracks_of(ts[rows], dur[rows])
        nested.append(_nested(ts[rows], ts[rows] + dur[rows], depth[rows]))
    kept = depth < MOST_TRACKS
    counts = np.zeros(len(lanes), np.int64)
    np.maximum.at(counts, number[kept], depth[kept] + 1)
    firsts = np.concatenate(([0], np.cumsum(counts)))
    track = firsts[number] + depth
    rows = np.lexsort((ts, track))
    rows = rows[kept[rows]]
    named = tuple(
        Lane(CLASSES[what], _name(trace, CLASSES[what], device, where, shared), *_where(device, where), int(firsts[i]), int(counts[i]), nested[i])
        for i, (what, device, where, shared) in enumerate(lanes)
    )
    return Placed(rows, track[rows], named, int((~kept).sum()))


def tracks_of(ts: npt.NDArray[np.int64], dur: npt.NDArray[np.int64]) -> Rows:
    """Track of each slice of one lane: first fit, which is the nesting depth where slices nest.

    Args:
        ts: start, sorted.
        dur: duration; of equal starts, the longest first.

    >>> tracks_of(np.array([0, 1, 2, 6]), np.array([10, 4, 1, 9])).tolist()
    [0, 1, 2, 1]
    """
    lasting = dur > 0
    open_ones = np.cumsum(lasting) - lasting - np.searchsorted(np.sort((ts + dur)[lasting]), ts, "right")
    depth: Rows = open_ones.astype(np.int64)
    order = np.lexsort((np.arange(len(ts)), depth))
    clash = (depth[order][1:] == depth[order][:-1]) & (ts[order][1:] < (ts + dur)[order][:-1])
    return _first_fit(ts, ts + dur) if clash.any() else depth


def _first_fit(ts: Rows, end: Rows) -> Rows:
    """Peel off one track after the other: each is the chain of slices that begin where the one before has ended.

    The next of every slice is found at once, and the chain from the first by jumps that double.
    """
    out = np.full(len(ts), MOST_TRACKS, np.int64)
    left = np.arange(len(ts))
    for track in range(MOST_TRACKS):
        n = len(left)
        if not n:
            break
        here = ts[left]
        follower = np.maximum(np.searchsorted(here, end[left], "left"), np.arange(1, n + 1))
        jump = np.append(follower, n)
        taken = np.zeros(n + 1, bool)
        taken[0] = True
        while True:
            taken[jump[np.flatnonzero(taken)]] = True
            if jump[0] == n:
                break
            jump = jump[jump]
        out[left[taken[:n]]] = track
        left = left[~taken[:n]]
    return out


def _nested(ts: Rows, end: Rows, depth: Rows) -> bool:
    """Whether each slice lies within the one of the track above that began last."""
    for track in range(1, min(int(depth.max(initial=0)) + 1, MOST_TRACKS)):
        above, here = depth == track - 1, depth == track
        at = np.searchsorted(ts[above], ts[here], "right") - 1
        if (at < 0).any() or (end[above][at] < end[here]).any():
            return False
    return True


def _keys(events: pd.DataFrame) -> npt.NDArray[np.int64]:
    """(class, device, stream or thread) of each event; device -1 on the host."""
    kinds = (Kind(str(k)) for k in events["kind"].cat.categories)
    table = np.array([*(_CLASS.get(k, 0 if k in _ON_DEVICE else 2) for k in kinds), 2], np.int64)
    what = table[events["kind"].cat.codes.to_numpy(np.int64)]
    device = integers(events["device"])
    thread = events["thread"].to_numpy(np.int64)
    what[(device < 0) & (what == 0)] = 2
    what[(device >= 0) & (what == 2)] = 0
    stream = events["stream"].to_numpy(np.int64, na_value=np.iinfo(np.int64).min)
    on_device = device >= 0
    where = np.where(on_device, np.where(stream == np.iinfo(np.int64).min, -1 - thread, stream), thread)
    return np.stack((what, np.where(on_device, device, -1), where), axis=1)


def _numbered(keys: npt.NDArray[np.int64]) -> tuple[Rows, list[tuple[int, int, int, bool]]]:
    """Lane of each event; lanes by class, device and stream or thread."""
    if not len(keys):
        return np.empty(0, np.int64), []
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    fresh = np.concatenate(([True], (ordered[1:] != ordered[:-1]).any(axis=1)))
    number = np.empty(len(keys), np.int64)
    number[order] = np.cumsum(fresh) - 1
    found = [(int(a), int(b), int(c), False) for a, b, c in ordered[fresh][:MOST_LANES]]
    if int(fresh.sum()) > MOST_LANES:
        found[-1] = (2, -1, -1, True)
        number = np.minimum(number, MOST_LANES - 1)
    return number, found


def _where(device: int, where: int) -> tuple[int | None, int | None, int | None]:
    if device >= 0:
        return device, (where if where >= 0 else None), None
    return None, None, where


def _name(trace: RankTrace, what: str, device: int, where: int, shared: bool) -> str:
    if shared:
        return "further threads"
    if device >= 0:
        place = f"GPU {device} · stream {where}" if where >= 0 else f"GPU {device}"
        return {DEVICE: place, COMMUNICATION: f"{place} · comm", DEVICE_RANGES: f"{place} · ranges"}.get(what, place)
    thread = trace.meta.threads.get(where, f"thread {where}").strip()
    return {COMMUNICATION: f"{thread} · comm", ASYNC: f"{thread} · async"}.get(what, thread)
