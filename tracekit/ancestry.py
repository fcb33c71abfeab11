"""Which event around another has something of its own? Climbing from row to row of parents, all rows at once."""

from __future__ import annotations

import numpy as np

from tracekit.columns import Mask, Rows


def inherit(parent: Rows, own: Mask) -> Rows:
    """Row of the nearest ancestor-or-self that has something of its own; -1 where none has.

    >>> inherit(np.array([-1, 0, 1, -1]), np.array([True, False, False, False])).tolist()
    [0, 0, 0, -1]
    """
    rows = np.arange(len(parent))
    source = np.where(own, rows, parent)
    while True:
        climb = np.flatnonzero((source >= 0) & ~own[source])
        if not len(climb):
            return source
        source[climb] = source[source[climb]]


def nearest(parent: Rows, start: Rows, own: Mask) -> Rows:
    """As :func:`inherit`, for a few rows to start from; -1 stays -1.

    >>> nearest(np.array([-1, 0, 1, -1]), np.array([2, 3, -1]), np.array([True, False, False, False])).tolist()
    [0, -1, -1]
    """
    at = start.copy()
    while len(climb := np.flatnonzero((at >= 0) & ~own[np.maximum(at, 0)])):
        at[climb] = parent[at[climb]]
    return at
