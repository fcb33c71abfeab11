"""Which offsets and drifts of clocks explain that the same moments were read off them differently?

A *moment* happened once and was read off several clocks: the end of a collective on each of its ranks. With ``T`` the moment
on the reference clock, clock ``r`` read ``T + offset_r + drift_r * (T - origin) + noise``. Moments of one group of clocks tell
their differences (medians and least absolute lines: an odd moment does not count); groups that share a clock carry them on,
each clock along the chain of groups with the least uncertainty. Clocks that no chain reaches form a component of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
N = TypeVar("N", np.int64, np.float64)

#: Median absolute deviation -> standard deviation of a normal distribution; standard error of a median.
_SIGMA, _MEDIAN_ERROR = 1.4826, 1.2533
#: So many moments of a group, spread over time, are enough: more would not make the result better than the noise is.
_MOMENTS = 256
#: With fewer moments their spread says little; then ends are taken to spread by ``_PRIOR_NS``, as NCCL's do.
FEW = 5
_PRIOR_NS, _FLOOR_NS = 5_000.0, 50.0
#: A drift must exceed so many of its standard errors; below so many moments their mean deviation says more than the median one.
_SURE, _MANY = 4.0, 20
#: Quartz drifts by up to some 100 ppm; a drift that is known no better than this is not known (ns per s).
_RESOLVED = 10_000.0


@dataclass(frozen=True)
class Fit:
    """What the moments say of each clock, arrays over clocks.

    Attributes:
        reference: the lowest clock of its component; itself where nothing links it.
        origin_ns: first moment of its component, on the reference clock.
        offset_ns: its reading minus the reference clock's at the origin; 0 where it cannot be told from 0.
        drift: ns per ns that it runs faster than the reference; 0 where it cannot be told from 0, NaN where the moments are too
            few or too short to say.
        residual_ns: robust standard deviation of its readings about the moments, after correction, in the group where it is
            largest; NaN where no group has two.
        moments: how many moments it read.
        via: group of moments through which it was reached; -1 for the reference.
    """

    reference: Ints
    origin_ns: Ints
    offset_ns: Ints
    drift: Floats
    residual_ns: Floats
    moments: Ints
    via: Ints


def fit(group: Ints, instance: Ints, clock: Ints, at_ns: Ints, floor_ns: Floats, few_floor_ns: float) -> Fit:
    """Fit all clocks to all moments. The first four arrays hold one row per reading; no clock reads a moment twice.

    Args:
        group: which set of clocks.
        instance: which moment, a number from 0; each belongs to one group.
        clock: which clock, 0 … n-1.
        at_ns: what it read.
        floor_ns: per clock, offsets up to this are taken as 0 whatever the moments say.
        few_floor_ns: the same for clocks that are linked by fewer than ``FEW`` moments.

    Returns:
        Offset, drift and residual per clock. An offset or drift below its own uncertainty is 0.
    """
    n = len(floor_ns)
    rows = _Rows.of(group, instance, clock, at_ns)
    cells = _Cells.of(rows)
    middle = _middle(cells.of_row, rows.delta, cells.count)
    walk = _walk(cells, middle.tolist(), _variance(_scale(cells, rows.delta - middle[cells.of_row]), cells.count), n)
    rough = np.array(walk.value, np.int64)
    on_reference = rows.at - rough[rows.clock]
    rest = (on_reference - on_reference[rows.first]).astype(np.float64)
    # when it was, one time per moment: an odd reading must not stand far out on the line
    when = on_reference[rows.first] + np.rint(rows.middle(rest)).astype(np.int64)
    origin = np.full(n, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(origin, walk.start[rows.clock], when)
    origin = np.where(origin == np.iinfo(np.int64).max, 0, origin)[walk.start]
    seconds = (when - origin[rows.clock]) * 1e-9

    drift = _drifts(rows, cells, rest, np.asarray(seconds, np.float64), walk.start)
    level = rows.centred(rest - np.nan_to_num(drift)[rows.clock] * seconds)
    offset = _middle(cells.of_row, level, cells.count)
    fine = _walk(cells, offset.tolist(), _variance(_scale(cells, level - offset[cells.of_row]), cells.count), n)
    small = np.array(fine.value, np.float64)
    total = rough + np.rint(small).astype(np.int64)

    def residual(known: Ints, slope: Floats) -> Floats:
        left = rest - (known - rough)[rows.clock] - slope[rows.clock] * seconds
        return _residual(rows, cells, rows.centred(left), n)

    moments = np.bincount(rows.all_clocks, minlength=n).astype(np.int64)
    slope = np.nan_to_num(drift)
    noise = np.maximum(np.nan_to_num(residual(total, slope)), 3 * np.sqrt(fine.variance))
    noise = np.maximum(noise, np.where(fine.fewest < FEW, few_floor_ns, 0))
    last = np.zeros(n)
    np.maximum.at(last, rows.clock, seconds)
    effect = np.maximum(np.abs(total), np.abs(total + slope * last))
    believed = (effect > floor_ns) & ((slope != 0) | (effect > noise))
    known, slope = np.where(believed, total, 0), np.where(believed, slope, 0.0)
    return Fit(fine.start, origin, known, np.where(np.isnan(drift), drift, slope) * 1e-9, residual(known, slope), moments, fine.via)


@dataclass(frozen=True)
class _Rows:
    """Readings, sorted by moment and clock; ``first`` is the row of the moment's first clock, ``delta`` the reading minus that one's."""

    group: Ints
    clock: Ints
    at: Ints
    first: Ints
    moment: Ints
    delta: Ints
    size: Ints
    all_clocks: Ints

    @classmethod
    def of(cls, group: Ints, instance: Ints, clock: Ints, at_ns: Ints) -> _Rows:
        size = np.bincount(instance, minlength=1)[instance] if len(instance) else instance
        several = size > 1
        group, instance, clock, at_ns = group[several], instance[several], clock[several], at_ns[several]
        kept = _thinned(group, instance, at_ns)
        every = clock
        group, instance, clock, at_ns = group[kept], instance[kept], clock[kept], at_ns[kept]
        order = np.lexsort((clock, instance))
        group, instance, clock, at_ns = group[order], instance[order], clock[order], at_ns[order]
        begins = np.flatnonzero(np.r_[True, instance[1:] != instance[:-1]]) if len(instance) else np.empty(0, np.int64)
        moment = np.cumsum(np.r_[True, instance[1:] != instance[:-1]]) - 1 if len(instance) else np.empty(0, np.int64)
        first = begins[moment]
        return cls(group, clock, at_ns, first, moment, at_ns - at_ns[first], np.bincount(moment, minlength=len(begins))[moment], every)

    def middle(self, values: Floats) -> Floats:
        """Median of the values of each row's moment."""
        return np.asarray(pd.Series(values).groupby(self.moment).transform("median"), np.float64) if len(values) else values

    def centred(self, values: Floats) -> Floats:
        """Values minus the median of their moment."""
        return values - self.middle(values)


def _thinned(group: Ints, instance: Ints, at_ns: Ints) -> npt.NDArray[np.bool_]:
    """Rows of at most ``_MOMENTS`` moments of each group, evenly spread over them in order of time."""
    if not len(group):
        return np.zeros(0, bool)
    start = pd.Series(at_ns).groupby(instance).transform("min").to_numpy()
    of = pd.DataFrame({"group": group, "instance": instance, "start": start}).drop_duplicates("instance").sort_values(["group", "start"], kind="stable")
    nth = of.groupby("group", sort=False).cumcount().to_numpy()
    count = of.groupby("group", sort=False)["instance"].transform("size").to_numpy()
    share = np.minimum(_MOMENTS / count, 1.0)
    chosen = np.floor((nth + 1) * share + 1e-9) > np.floor(nth * share + 1e-9)
    return np.isin(instance, of["instance"].to_numpy()[chosen])


@dataclass(frozen=True)
class _Cells:
    """One cell per group and clock; a group whose moments begin with another clock counts as another group."""

    of_row: Ints
    count: Ints
    group: Ints
    clock: Ints
    label: Ints
    groups: int

    @classmethod
    def of(cls, rows: _Rows) -> _Cells:
        if not len(rows.at):
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, nothing, nothing, nothing, 0)
        lead = pd.MultiIndex.from_arrays([rows.group, rows.clock[rows.first]])
        group = pd.factorize(lead)[0].astype(np.int64)
        code, keys = pd.factorize(pd.MultiIndex.from_arrays([group, rows.clock]))
        of_row = code.astype(np.int64)
        place = np.full(len(keys), 0, np.int64)
        place[of_row] = np.arange(len(of_row))
        return cls(of_row, np.bincount(of_row), group[place], rows.clock[place], rows.group[place], int(group.max()) + 1)


def _middle(cell: Ints, values: npt.NDArray[N], count: Ints) -> npt.NDArray[N]:
    """Median of each cell in the values' own type: of an even number the mean of the two in the middle, integers rounded down."""
    order = np.lexsort((values, cell))
    begin = np.cumsum(count) - count
    low, high = values[order[begin + (count - 1) // 2]], values[order[begin + count // 2]]
    middle: npt.NDArray[N] = low + ((high - low) // 2 if values.dtype.kind == "i" else (high - low) / 2)
    return middle


def _scale(cells: _Cells, deviation: npt.NDArray[N]) -> Floats:
    """Robust standard deviation of each cell, not below what the number of its moments can show."""
    spread = _SIGMA * _middle(cells.of_row, np.abs(deviation).astype(np.float64), cells.count)
    return np.maximum(spread, np.where(cells.count < FEW, _PRIOR_NS, _FLOOR_NS))


def _variance(scale: Floats, count: Ints) -> Floats:
    variance: Floats = (_MEDIAN_ERROR * scale) ** 2 / count
    return variance


def _drifts(rows: _Rows, cells: _Cells, rest: Floats, seconds: Floats, reference: Ints) -> Floats:
    """Drift of each clock against its reference, ns per s; 0 and NaN as in ``Fit``."""
    n = len(reference)
    level = rows.centred(rest)
    slope, width = _lines(cells, level, seconds)
    long = (cells.count >= FEW) & (width > 0)
    value = np.where(long, slope, 0.0)
    left = level - value[cells.of_row] * seconds
    left -= _middle(cells.of_row, left, cells.count)[cells.of_row]
    free = np.maximum(cells.count - 2, 1)
    mean = _MEDIAN_ERROR * np.bincount(cells.of_row, np.abs(left), len(free)) / free
    scale = np.maximum(_scale(cells, left), np.where(cells.count < _MANY, mean, 0))
    variance = np.where(long, (_MEDIAN_ERROR * scale) ** 2 / (cells.count * np.where(long, width, 1.0)), np.inf)
    walk = _walk(cells, value.tolist(), variance, n)
    drift, sure = np.array(walk.value, np.float64), _SURE * np.sqrt(walk.variance)
    told = np.where(np.abs(drift) > sure, drift, np.where(sure <= _RESOLVED, 0.0, np.nan))
    return np.where(walk.start == reference, told, np.nan)


def _lines(cells: _Cells, values: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Slope of the line of least absolute deviations through each cell, by reweighting; and the variance of its ``x``."""
    of, n = cells.of_row, len(cells.count)
    weight = np.ones(len(values))
    slope, width = np.zeros(n), np.zeros(n)
    for turn in range(25):
        total = np.bincount(of, weight, n)
        mean_x, mean_y = np.bincount(of, weight * x, n) / total, np.bincount(of, weight * values, n) / total
        dx, dy = x - mean_x[of], values - mean_y[of]
        around = np.bincount(of, weight * dx * dx, n)
        slope = np.divide(np.bincount(of, weight * dx * dy, n), around, out=np.zeros(n), where=around > 0)
        width = around / total if turn == 0 else width
        weight = 1 / np.maximum(np.abs(dy - slope[of] * dx), _FLOOR_NS)
    return slope, width


@dataclass(frozen=True)
class _Walk:
    """Values carried from the lowest clock of each component along the surest chains, arrays over clocks."""

    value: Sequence[int] | Sequence[float]
    variance: Floats
    start: Ints
    fewest: Ints
    via: Ints


def _walk(cells: _Cells, value: Sequence[int] | Sequence[float], variance: Floats, n: int) -> _Walk:
    """Carry the cells' values (clock minus group) from clock to group to clock; integers stay exact. Loops over cells, not over moments."""
    edges: list[list[int]] = [[] for _ in range(n + cells.groups)]
    ends = list(zip(cells.clock.tolist(), (cells.group + n).tolist(), strict=True))
    for cell, (clock, group) in enumerate(ends):
        edges[clock].append(cell)
        edges[group].append(cell)
    cost, count, label = variance.tolist(), cells.count.tolist(), cells.label.tolist()
    found: list[float] = [0] * len(edges)
    sure, start, fewest, via = np.full(n, np.inf), np.arange(n), np.full(n, 2**62), np.full(n, -1)
    done = [False] * len(edges)
    for first in range(n):
        # (variance so far, clock or group, value, fewest moments, cell that leads there)
        todo: list[tuple[float, int, float, int, int]] = [] if done[first] else [(0.0, first, 0, 2**62, -1)]
        while todo:
            spent, here, reached, least, through = heapq.heappop(todo)
            if done[here]:
                continue
            done[here] = True
            found[here] = reached
            if here < n:
                sure[here], start[here], fewest[here], via[here] = spent, first, least, label[through] if through >= 0 else -1
            for cell in edges[here]:
                clock, group = ends[cell]
                there, carried = (group, reached - value[cell]) if here < n else (clock, reached + value[cell])
                if not done[there] and cost[cell] < np.inf:
                    heapq.heappush(todo, (spent + cost[cell], there, carried, min(least, count[cell]), cell))
    return _Walk(found[:n], sure, start, fewest, via)


def _residual(rows: _Rows, cells: _Cells, left: Floats, n: int) -> Floats:
    """Largest over a clock's groups of the robust standard deviation of what is left; the largest of fewer than ``FEW``, NaN below two."""
    out = np.full(n, np.nan)
    # about the mean of k readings one reading deviates less than about the moment itself
    sized = np.abs(left) * np.sqrt(rows.size / np.maximum(rows.size - 1, 1))
    most = np.zeros(len(cells.count))
    np.maximum.at(most, cells.of_row, sized)
    value = np.where(cells.count < FEW, most, _SIGMA * _middle(cells.of_row, sized, cells.count))
    told = cells.count > 1
    np.fmax.at(out, cells.clock[told], value[told])
    return out
