"""Does a metric creep, a little with every commit? Change points of a history that single comparisons are too near to see.

E-divisive (Matteson and James, arXiv:1306.4933), for one number per run, with a permutation test, hierarchical.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: A segment is no shorter than this.
SHORTEST = 3
PERMUTATIONS = 999


@dataclass(frozen=True)
class Drift:
    """What a history shows.

    Attributes:
        points: indices at which a new level begins, in order.
        first: median before the first of them; None where there is none.
        last: median from the last of them on.
        shift: last level over first, - 1; None where there is no change point.
        p: p of the weakest change point.
    """

    points: tuple[int, ...]
    shift: float | None
    p: float | None
    first: float | None = None
    last: float | None = None


def drift(history: Sequence[float], *, alpha: float = 0.01, seed: int = 0) -> Drift:
    """The change points of a history of positive numbers, oldest first.

    Args:
        history: one number per run or commit, all positive.
        alpha: a change point is one whose permutation p is at most this.
        seed: of the permutations: the same history gives the same answer.

    >>> drift([1.0, 1.01, 0.99, 1.0, 1.02, 1.2, 1.21, 1.19, 1.2, 1.22]).points
    (5,)
    """
    series = np.log(np.asarray(history, float))
    draw = np.random.default_rng([seed, len(series)])
    found: dict[int, float] = {}
    waiting = [(0, len(series))]
    while waiting:
        start, end = waiting.pop()
        if end - start < 2 * SHORTEST:
            continue
        part = series[start:end]
        best, at = _strongest(part[None, :])
        shuffled = draw.permuted(np.repeat(part[None, :], PERMUTATIONS, axis=0), axis=1)
        p = float((1 + np.sum(_strongest(shuffled)[0] >= best[0] - 1e-12)) / (PERMUTATIONS + 1))
        if p <= alpha:
            point = start + int(at[0])
            found[point] = p
            waiting += [(start, point), (point, end)]
    if not found:
        return Drift((), None, None)
    points = sorted(found)
    first, last = float(np.median(series[: points[0]])), float(np.median(series[points[-1] :]))
    return Drift(tuple(points), math.expm1(last - first), max(found.values()), math.exp(first), math.exp(last))


def _strongest(rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """For each row: the greatest energy distance between what is before and after a split, scaled by both lengths, and the split."""
    length = rows.shape[1]
    apart = np.abs(rows[:, :, None] - rows[:, None, :])
    # sums of the distances within the first k, and between the first k and the rest
    within = np.zeros((len(rows), length + 1))
    within[:, 1:] = np.cumsum(np.cumsum(apart, axis=1), axis=2)[:, np.arange(length), np.arange(length)]
    every = within[:, -1:]
    until = np.cumsum(apart.sum(axis=2), axis=1)  # to all, by the first k
    splits = np.arange(SHORTEST, length - SHORTEST + 1)
    n, m = splits.astype(float), (length - splits).astype(float)
    inside = within[:, splits]
    between = until[:, splits - 1] - inside
    after = every - inside - 2 * between
    energy = 2 * between / (n * m) - inside / (n * (n - 1)) - after / (m * (m - 1))
    scaled = energy * n * m / (n + m)
    at = np.argmax(scaled, axis=1)
    return scaled[np.arange(len(rows)), at], splits[at]
