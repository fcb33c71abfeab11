"""How long are these intervals together, and what do they share?

The only interval code. An interval is half-open, ``[start, end)``, in int64 ns. A *union* is a pair of arrays
``(starts, ends)``, sorted, disjoint, without empty intervals; every function that returns intervals returns one.
No Python loop runs over intervals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Union = tuple[Ints, Ints]

EMPTY: Union = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Union:
    """Merge intervals in any order into disjoint sorted ones; touching intervals become one.

    >>> union([0, 5, 2], [3, 6, 5])
    (array([0]), array([6]))
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    keep = e > s
    s, e = s[keep], e[keep]
    if not len(s):
        return EMPTY
    order = np.argsort(s, kind="stable")
    s, reach = s[order], np.maximum.accumulate(e[order])
    first = np.concatenate(([True], s[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return s[first], reach[last]


def merge(*unions: Union) -> Union:
    """Everything that lies in any of several unions.

    >>> merge(union([0], [3]), union([2], [6]))
    (array([0]), array([6]))
    """
    return union(np.concatenate([u[0] for u in unions]), np.concatenate([u[1] for u in unions])) if unions else EMPTY


def total(a: Union) -> int:
    """Length of a union in ns.

    >>> total(union([0, 10], [3, 12]))
    5
    """
    return int((a[1] - a[0]).sum())


def intersect(a: Union, b: Union) -> Union:
    """What two unions share.

    >>> intersect(union([0], [10]), union([2, 8], [4, 20]))
    (array([2, 8]), array([ 4, 10]))
    """
    if not len(a[0]) or not len(b[0]):
        return EMPTY
    edges = np.unique(np.concatenate((*a, *b)))
    lo, hi = edges[:-1], edges[1:]
    both = _covers(a, lo) & _covers(b, lo)
    return union(lo[both], hi[both])


def subtract(a: Union, b: Union) -> Union:
    """What of ``a`` lies outside ``b``.

    >>> subtract(union([0], [10]), union([2, 8], [4, 20]))
    (array([0, 4]), array([2, 8]))
    """
    if not len(a[0]) or not len(b[0]):
        return a
    edges = np.unique(np.concatenate((*a, *b)))
    lo, hi = edges[:-1], edges[1:]
    only = _covers(a, lo) & ~_covers(b, lo)
    return union(lo[only], hi[only])


def clip(a: Union, start: int, end: int) -> Union:
    """The part of a union inside one window.

    >>> clip(union([0], [10]), 4, 6)
    (array([4]), array([6]))
    """
    return union(np.maximum(a[0], start), np.minimum(a[1], end))


def measure(a: Union, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
    """Length of ``a`` inside each of many windows ``[starts[i], ends[i])``; the windows may overlap.

    >>> measure(union([0, 10], [5, 20]), [3, 0], [12, 4])
    array([4, 4])
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    lengths: Ints = np.maximum(_covered_before(a, e) - _covered_before(a, s), 0)
    return lengths


def parents(thread: npt.ArrayLike, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
    """Row of the innermost interval of the same thread that encloses each one; -1 where none does.

    Rows must be sorted by (thread, start, -end), so that a parent stands before its children. The parent is the
    nearest earlier row that ends no sooner, found for all rows together by jumping from candidate to candidate:
    whatever lies between a row and its candidate is known to end too soon, so a candidate that also ends too soon
    may be replaced by its own candidate. The jumps double, so a few rounds do.

    >>> parents([0, 0, 0, 1], [0, 1, 5, 6], [10, 4, 9, 7])
    array([-1,  0,  0, -1])
    """
    t, s, e = np.asarray(thread), np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    n = len(s)
    candidate = np.arange(-1, n - 1, dtype=np.int64)
    if n:
        candidate[1:][t[1:] != t[:-1]] = -1
    open_rows = np.flatnonzero(candidate >= 0)
    while len(open_rows):
        open_rows = open_rows[e[candidate[open_rows]] < e[open_rows]]
        candidate[open_rows] = candidate[candidate[open_rows]]
        open_rows = open_rows[candidate[open_rows] >= 0]
    return candidate


def _covers(a: Union, at: Ints) -> npt.NDArray[np.bool_]:
    """Whether the ns that begins at each point lies in the union."""
    i = np.searchsorted(a[0], at, "right") - 1
    inside: npt.NDArray[np.bool_] = (i >= 0) & (at < a[1][np.maximum(i, 0)])
    return inside


def _covered_before(a: Union, at: Ints) -> Ints:
    """Length of the union that lies before each point."""
    if not len(a[0]):
        return np.zeros(len(at), np.int64)
    sums = np.concatenate(([0], np.cumsum(a[1] - a[0])))
    i = np.searchsorted(a[0], at, "right") - 1
    inside = np.minimum(at, a[1][np.maximum(i, 0)]) - a[0][np.maximum(i, 0)]
    return np.where(i >= 0, sums[np.maximum(i, 0)] + inside, 0)
