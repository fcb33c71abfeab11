"""Are the runs of one side slower than those of the other, by how much, and what could these runs see at all?

Everything is over runs, one number each. Sources: Mann and Whitney, Ann. Math. Stat. 18 (1947) 50; Hodges and Lehmann,
Ann. Math. Stat. 34 (1963) 598; Benjamini and Hochberg, J. R. Stat. Soc. B 57 (1995) 289.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Runs of both sides up to which p is exact; beyond, the normal approximation is as good.
EXACT_RUNS = 60
#: Most runs per side that are asked for; more is said to be out of reach.
MOST_RUNS = 500
_PAIRS_AT_ONCE = 4_000_000

#: Normal quantile of the power, 80 %, at which the minimum detectable effect is stated.
_Z_POWER = 0.8416212335729143


def mann_whitney(base: Sequence[float], head: Sequence[float]) -> float:
    """Two-sided p of the Mann-Whitney test, exact with ties as well (the permutation distribution of the midranks).

    Twice the smaller tail, at most 1, as in scipy.stats.mannwhitneyu.

    >>> round(mann_whitney([1, 2, 3], [4, 5, 6]), 6)
    0.1
    """
    n, m = len(base), len(head)
    if not n or not m:
        return 1.0
    doubled = _doubled_midranks(np.concatenate([np.asarray(base, float), np.asarray(head, float)]))
    if n + m > EXACT_RUNS:
        return _normal(doubled, n)
    tails = _tails(tuple(sorted(doubled)), n)
    below, above = tails[sum(doubled[:n])]
    return min(1.0, 2 * min(below, above))


def _normal(doubled: Sequence[int], n: int) -> float:
    """The normal approximation, corrected for ties and continuity (scipy's; importing scipy.stats for it would take seconds)."""
    every, m = len(doubled), len(doubled) - n
    _, counts = np.unique(doubled, return_counts=True)
    ties = float(np.sum(counts.astype(float) ** 3 - counts)) / (every * (every - 1))
    spread = math.sqrt(n * m / 12 * (every + 1 - ties)) if every + 1 > ties else 0.0
    above = sum(doubled[:n]) / 2 - n * (n + 1) / 2
    apart = max(above, n * m - above) - n * m / 2 - 0.5
    return min(1.0, math.erfc(apart / spread / math.sqrt(2))) if spread else 1.0


def _doubled_midranks(values: Floats) -> list[int]:
    """Twice the mean rank of each value, an integer."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return [int(v) for v in (2 * ends - counts + 1)[inverse]]


@lru_cache(maxsize=256)
def _tails(ranks: tuple[int, ...], n: int) -> dict[int, tuple[float, float]]:
    """For each sum of n of the ranks: the share of all choices with at most, and with at least, that sum."""
    total = sum(ranks)
    ways = np.zeros((n + 1, total + 1), dtype=np.int64)
    ways[0, 0] = 1
    for rank in ranks:
        # downwards, so that a rank is used once
        for k in range(n, 0, -1):
            ways[k, rank:] += ways[k - 1, : total + 1 - rank]
    counts = ways[n].astype(np.float64)
    every = counts.sum()
    below, above = np.cumsum(counts) / every, np.cumsum(counts[::-1])[::-1] / every
    return {int(s): (float(below[s]), float(above[s])) for s in np.flatnonzero(ways[n])}


def smallest_p(n: int, m: int) -> float:
    """The least two-sided p that n and m runs can give.

    >>> round(smallest_p(3, 3), 6), round(smallest_p(5, 5), 6)
    (0.1, 0.007937)
    """
    return min(1.0, 2 / math.comb(n + m, n)) if n and m else 1.0


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted p: rejecting those up to q keeps the share of false alarms among the alarms at q.

    >>> [round(v, 3) for v in benjamini_hochberg([0.01, 0.04, 0.03])]
    [0.03, 0.04, 0.04]
    """
    count = len(p)
    order = sorted(range(count), key=lambda i: p[i])
    adjusted, least = [0.0] * count, 1.0
    for place in range(count, 0, -1):
        i = order[place - 1]
        least = min(least, p[i] * count / place)
        adjusted[i] = least
    return adjusted


def scaled(base: Sequence[float], head: Sequence[float], relative: bool) -> tuple[Floats, Floats]:
    """Both sides on the scale on which shifts are told: logarithms for ratios, the values themselves for differences."""
    a, b = np.asarray(base, float), np.asarray(head, float)
    return (np.log(a), np.log(b)) if relative else (a, b)


def can_be_relative(base: Sequence[float], head: Sequence[float]) -> bool:
    """Whether every value is positive, so that a ratio means something."""
    return min(*base, *head, math.inf) > 0


def hodges_lehmann(base: Floats, head: Floats) -> float:
    """Median of all pairwise differences, head - base.

    >>> hodges_lehmann(np.array([1.0, 2.0]), np.array([4.0, 5.0]))
    3.0
    """
    return float(np.median(np.subtract.outer(head, base)))


def interval(base: Floats, head: Floats, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval (percentile) of the Hodges-Lehmann shift; the same for the same data.

    Each resample draws the runs of each side anew, with replacement. Too narrow for fewer than about five runs per side.
    """
    draw = np.random.default_rng([seed, len(base), len(head)])
    a = base[draw.integers(0, len(base), (resamples, len(base)))]
    b = head[draw.integers(0, len(head), (resamples, len(head)))]
    at_once = max(1, _PAIRS_AT_ONCE // max(1, len(base) * len(head)))
    pieces = ((b[i : i + at_once, :, None] - a[i : i + at_once, None, :]) for i in range(0, resamples, at_once))
    shifts = np.concatenate([np.median(pairs.reshape(len(pairs), -1), axis=1) for pairs in pieces])
    low, high = np.quantile(shifts, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def noise(base: Floats, head: Floats) -> float | None:
    """Spread (standard deviation) of a run around its side's median, over both sides; None with fewer than two runs on each."""
    squares = sum(float(np.sum((side - np.median(side)) ** 2)) for side in (base, head))
    freedom = len(base) + len(head) - sum(1 for side in (base, head) if len(side))
    return math.sqrt(squares / freedom) if freedom > 0 else None


def detectable(sd: float, n: int, m: int, alpha: float) -> float:
    """The shift that the test finds with a power of 80 %, on the scale of ``sd``.

    That of the t test with the efficiency of the Mann-Whitney test against it, 3/pi (Lehmann, Nonparametrics, section 2.4).
    """
    return (_quantile(alpha / 2, n + m - 2) + _Z_POWER) * sd * math.sqrt((1 / n + 1 / m) * math.pi / 3)


def runs_needed(alpha: float, sd: float | None, effect: float, *, most: int = MOST_RUNS) -> int | None:
    """Runs per side with which p can fall below alpha, and an effect of this size is found; None where more than ``most``.

    Args:
        alpha: the level of a single test of its family.
        sd: the noise of a run, None where unknown: then only p is asked about.
        effect: the least shift worth finding, on the scale of ``sd``.
        most: more are not asked for.
    """
    for n in range(2, most + 1):
        if smallest_p(n, n) <= alpha and (not sd or effect <= 0 or detectable(sd, n, n, alpha) <= effect):
            return n
    return None


@lru_cache(maxsize=4096)
def _quantile(tail: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return -float(stdtrit(max(freedom, 1), tail))
