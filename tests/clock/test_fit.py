"""Offsets and drifts are recovered from moments that were read off several clocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.job.clock_fit import Fit, fit

EPOCH = 1_790_000_000_000_000_000
Reading = tuple[int, int, int, int]


def fitted(readings: Sequence[Reading], clocks: int, floor: float = 0, few_floor: float = 0) -> Fit:
    """Readings are (group, moment, clock, time)."""
    columns = np.array(readings, np.int64).reshape(-1, 4).T
    return fit(*columns, floor_ns=np.full(clocks, floor), few_floor_ns=few_floor)


def moments(
    groups: Sequence[Sequence[int]], times: Sequence[int], offset: Sequence[float], drift: Sequence[float], noise: float, seed: int = 0
) -> list[Reading]:
    """What each clock of each group reads at each time, ns."""
    random = np.random.default_rng(seed)
    rows, moment = [], 0
    for number, group in enumerate(groups):
        for at in times:
            for clock in group:
                read = EPOCH + at + offset[clock] + round(drift[clock] * at) + round(random.uniform(-noise, noise))
                rows.append((number, moment, clock, int(read)))
            moment += 1
    return rows


def test_two_clocks_that_differ_by_a_constant() -> None:
    got = fitted([(0, 0, 0, 100), (0, 0, 1, 500_100), (0, 1, 0, 200), (0, 1, 1, 500_200)], 2)
    assert (got.offset_ns.tolist(), got.reference.tolist(), got.residual_ns.tolist(), got.moments.tolist()) == ([0, 500_000], [0, 0], [0, 0], [2, 2])
    assert np.isnan(got.drift[1])  # two moments tell no drift


def test_a_chain_of_groups_carries_the_offset() -> None:
    #   clocks 0-1 and 1-2 share a group; 3 shares none
    ms = 10**6
    rows = [
        (0, 0, 0, 1),
        (0, 0, 1, 1 + 2 * ms),
        (0, 1, 0, 5),
        (0, 1, 1, 5 + 2 * ms),
        (1, 2, 1, 7 + 2 * ms),
        (1, 2, 2, 7 + ms),
        (1, 3, 1, 9 + 2 * ms),
        (1, 3, 2, 9 + ms),
    ]
    got = fitted(rows, 4)
    assert got.offset_ns.tolist() == [0, 2 * ms, ms, 0]
    assert got.reference.tolist() == [0, 0, 0, 3]
    assert np.isnan(got.residual_ns[3])


def test_clocks_that_count_from_another_beginning_stay_exact_to_the_ns() -> None:
    rows = moments([(0, 1)], range(0, 9000, 1000), [0, -EPOCH + 7], [0, 0], 0)
    assert fitted(rows, 2).offset_ns.tolist() == [0, -EPOCH + 7]


def test_an_odd_moment_does_not_count() -> None:
    rows = moments([(0, 1, 2)], range(0, 9000, 1000), [0, 3000, -2000], [0, 0, 0], 0)
    late = [(g, m, c, t + 10**9) if (m, c) in ((2, 1), (5, 2)) else (g, m, c, t) for g, m, c, t in rows]
    assert fitted(late, 3).offset_ns.tolist() == [0, 3000, -2000]


def test_a_drift_is_told_where_the_recording_is_long_enough() -> None:
    drift = [0, 40e-6]
    short = fitted(moments([(0, 1)], range(0, 10_000_000, 100_000), [0, 5000], drift, 500), 2)
    long = fitted(moments([(0, 1)], range(0, 1_000_000_000, 10_000_000), [0, 5000], drift, 500), 2)
    assert np.isnan(short.drift[1])
    assert long.drift[1] == pytest.approx(40e-6, abs=1e-6)
    assert abs(long.offset_ns[1] - 5000) < 300


def test_clocks_that_run_alike_have_no_drift() -> None:
    got = fitted(moments([(0, 1, 2)], range(0, 1_000_000_000, 10_000_000), [0, 0, 0], [0, 0, 0], 500), 3)
    assert (got.drift.tolist(), got.offset_ns.tolist()) == ([0, 0, 0], [0, 0, 0])


def test_an_offset_below_the_noise_is_none() -> None:
    rows = moments([(0, 1)], range(0, 100_000_000, 1_000_000), [0, 300], [0, 0], 2000)
    assert fitted(rows, 2).offset_ns.tolist() == [0, 0]
    assert fitted(moments([(0, 1)], range(0, 100_000_000, 1_000_000), [0, 300], [0, 0], 10), 2).offset_ns[1] == pytest.approx(300, abs=5)


def test_offsets_below_the_floor_are_none() -> None:
    rows = moments([(0, 1)], range(0, 9000, 1000), [0, 900], [0, 0], 0)
    assert fitted(rows, 2, floor=1000).offset_ns.tolist() == [0, 0]
    assert fitted(rows, 2, floor=800).offset_ns.tolist() == [0, 900]


def test_few_moments_need_a_larger_offset() -> None:
    rows = moments([(0, 1)], range(0, 4000, 1000), [0, 90_000], [0, 0], 0)
    assert fitted(rows, 2, few_floor=100_000).offset_ns.tolist() == [0, 0]
    assert fitted(rows, 2, few_floor=80_000).offset_ns.tolist() == [0, 90_000]


def test_nothing_read_is_nothing_known() -> None:
    got = fitted([], 2)
    assert (got.reference.tolist(), got.offset_ns.tolist(), got.moments.tolist()) == ([0, 1], [0, 0], [0, 0])
    assert np.isnan(got.residual_ns).all()


def test_a_moment_that_one_clock_read_links_nothing() -> None:
    assert fitted([(0, 0, 0, 100), (0, 1, 1, 900)], 2).reference.tolist() == [0, 1]


def test_a_group_too_large_to_need_every_moment_gives_the_same() -> None:
    rows = moments([(0, 1)], range(0, 1_000_000_000, 500_000), [0, 70_000], [0, 25e-6], 400)
    got = fitted(rows, 2)
    assert abs(got.offset_ns[1] - 70_000) < 300
    assert got.drift[1] == pytest.approx(25e-6, abs=1e-6)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int], list[float], int, int]:
    """Groups over 2-7 clocks, their offsets (ns) and drifts, the noise (ns) and a seed."""
    clocks = draw(st.integers(2, 7))
    groups = draw(
        st.lists(st.lists(st.integers(0, clocks - 1), min_size=2, max_size=clocks, unique=True).map(lambda g: tuple(sorted(g))), min_size=1, max_size=6)
    )
    offset = draw(st.lists(st.integers(-(10**9), 10**9), min_size=clocks, max_size=clocks))
    drift = draw(st.lists(st.floats(-100e-6, 100e-6), min_size=clocks, max_size=clocks))
    return groups, offset, drift, draw(st.sampled_from([0, 100, 2000])), draw(st.integers(0, 2**32 - 1))


def components(groups: list[tuple[int, ...]], clocks: int) -> list[int]:
    lowest = list(range(clocks))
    for _ in range(clocks):
        for group in groups:
            best = min(lowest[c] for c in group)
            for c in group:
                lowest[c] = best
    return lowest


@settings(max_examples=60)
@given(jobs())
def test_offsets_and_drifts_are_recovered_within_the_noise(job: tuple[list[tuple[int, ...]], list[int], list[float], int, int]) -> None:
    groups, offset, drift, noise, seed = job
    clocks = len(offset)
    times = np.sort(np.random.default_rng(seed).integers(0, 10**9, 80))
    got = fitted(moments(groups, times.tolist(), offset, drift, noise, seed), clocks)
    lowest = components(groups, clocks)
    assert got.reference.tolist() == lowest
    for c, reference in enumerate(lowest):
        if c == reference:
            continue
        start = int(got.origin_ns[c]) - EPOCH - offset[reference]
        relative = (drift[c] - drift[reference]) / (1 + drift[reference])
        # the line through the reference's own moments, seen from its clock
        want = offset[c] - offset[reference] + relative * (start - drift[reference] * start)
        slack = 3 * noise * clocks + 250  # nothing finer than some 100 ns is told
        assert abs(int(got.offset_ns[c]) - want) < slack, (c, got.offset_ns[c], want)
        assert abs(float(got.drift[c]) - relative) < 6e-9 * noise * clocks + 2e-7
