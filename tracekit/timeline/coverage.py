"""How busy is each track in each stretch of time, and with what? Exact busy ns per bucket and sort, from fine buckets to coarse.

Level ``k`` has buckets of 2^k ns, counted from the rank's first slice. Slices of one track do not overlap, so what they cover adds
up. Only buckets that hold something are kept; levels that save little over the next finer one are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: The finest level holds at most this share of as many entries as there are slices (and some, for small traces).
_FINEST_SHARE, _FREE_ENTRIES = 0.5, 4096
#: A level is kept where it has at most this share of the entries of the level below it.
_SAVES = 0.75
#: Levels stop where a rank fits into so many buckets.
_COARSEST = 64
_LARGEST = 61


class Level(NamedTuple):
    """One level of the pyramid, its entries sorted by (row, bucket).

    Attributes:
        shift: buckets are 2^shift ns long.
        row: the row each entry is of, as in what was asked for.
        bucket: number of the bucket.
        busy: ns of it that the row covers, 1 to 2^shift.
    """

    shift: int
    row: Ints
    bucket: Ints
    busy: Ints


def pyramid(row: Ints, start: Ints, end: Ints) -> tuple[Level, ...]:
    """Every level, finest first; none where nothing lasts.

    Args:
        row: sorted; one per (track, sort) in practice.
        start: ns from the rank's beginning, sorted within a row.
        end: no later than the next start of the row.
    """
    lasting = end > start
    row, start, end = row[lasting], start[lasting], end[lasting]
    if not len(row):
        return ()
    most = int(_FINEST_SHARE * len(row)) + _FREE_ENTRIES
    extent = int(end.max())
    low, high = 0, min(extent.bit_length(), _LARGEST)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _entries(row, start, end, middle) <= most else (middle + 1, high)
    level = Level(low, *covered(row, start, end, low))
    levels = [level]
    while (extent >> level.shift) > _COARSEST and level.shift < _LARGEST:
        level = coarser(level)
        if len(level.row) <= _SAVES * len(levels[-1].row):
            levels.append(level)
    return tuple(levels)


def covered(row: Ints, start: Ints, end: Ints, shift: int) -> tuple[Ints, Ints, Ints]:
    """(row, bucket, busy ns) of every bucket that disjoint slices touch, for slices sorted by (row, start) that last.

    >>> covered(np.array([0, 0]), np.array([0, 3]), np.array([2, 9]), 2)
    (array([0, 0, 0]), array([0, 1, 2]), array([3, 4, 1]))
    """
    first, last = start >> shift, (end - 1) >> shift
    pieces = last - first + 1
    if (pieces == 1).all():
        rows, bucket, busy = row, first, end - start
    else:
        at = np.repeat(np.arange(len(row)), pieces)
        bucket = np.arange(len(at)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[at]
        busy = np.minimum(end[at], (bucket + 1) << shift) - np.maximum(start[at], bucket << shift)
        rows = row[at]
    return _summed(rows, bucket, busy)


def coarser(level: Level, by: int = 1) -> Level:
    """The level with buckets 2^by as long."""
    return Level(level.shift + by, *_summed(level.row, level.bucket >> by, level.busy))


def _summed(row: Ints, bucket: Ints, busy: Ints) -> tuple[Ints, Ints, Ints]:
    """Entries of one row and bucket, which stand side by side, become one."""
    if not len(row):
        return row, bucket, busy
    fresh = np.flatnonzero(np.concatenate(([True], (row[1:] != row[:-1]) | (bucket[1:] != bucket[:-1]))))
    return row[fresh], bucket[fresh], np.add.reduceat(busy, fresh)


def _entries(row: Ints, start: Ints, end: Ints, shift: int) -> float:
    """How many entries a level would have."""
    first, last = start >> shift, (end - 1) >> shift
    shared = (row[1:] == row[:-1]) & (first[1:] == last[:-1])
    return float((last - first + 1).astype(np.float64).sum() - shared.sum())
