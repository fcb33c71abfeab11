"""The statistics against brute force and scipy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, mannwhitneyu, rankdata

from tracekit.compare import statistics as s
from tracekit.compare.drift import SHORTEST, drift

SIDE = st.lists(st.integers(0, 6), min_size=1, max_size=5)


def permuted(base: list[float], head: list[float]) -> float:
    """The p of every way to deal the ranks out."""
    ranks = rankdata([*base, *head])
    own = ranks[: len(base)].sum()
    sums = [sum(c) for c in combinations(ranks, len(base))]
    below, above = (np.mean([f(x, own) for x in sums]) for f in (lambda a, b: a <= b + 1e-9, lambda a, b: a >= b - 1e-9))
    return min(1.0, 2 * min(below, above))


@given(SIDE, SIDE)
def test_mann_whitney_is_the_permutation_test_with_ties(base, head):
    assert s.mann_whitney(base, head) == pytest.approx(permuted(base, head), abs=1e-12)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30, unique=True), st.data())
def test_mann_whitney_is_scipys_without_ties(values, data):
    cut = data.draw(st.integers(1, len(values) - 1))
    expected = mannwhitneyu(values[:cut], values[cut:], method="exact").pvalue
    assert s.mann_whitney(values[:cut], values[cut:]) == pytest.approx(expected, abs=1e-12)


def test_many_runs_take_the_normal_approximation():
    a, b = np.arange(50) + 0.0, np.arange(50) + 3.5
    assert s.mann_whitney(a, b) == pytest.approx(mannwhitneyu(a, b, method="asymptotic").pvalue)
    ties = np.arange(50) % 7
    assert s.mann_whitney(ties, ties[:20] + 2) == pytest.approx(mannwhitneyu(ties, ties[:20] + 2, method="asymptotic").pvalue)
    assert s.mann_whitney([1.0] * 50, [1.0] * 20) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_benjamini_hochberg_is_scipys(p):
    assert s.benjamini_hochberg(p) == pytest.approx(list(false_discovery_control(p)))


@pytest.mark.parametrize(("runs", "p"), [(1, 1.0), (3, 0.1), (5, 2 / 252), (10, 2 / 184756)])
def test_the_least_p_that_runs_can_give(runs, p):
    assert s.smallest_p(runs, runs) == pytest.approx(p)
    assert s.mann_whitney(range(runs), range(runs, 2 * runs)) == pytest.approx(p)


def test_the_shift_is_the_median_of_all_differences_and_its_interval_holds_it():
    base, head = np.array([1.0, 2.0, 4.0]), np.array([4.0, 6.0])
    assert s.hodges_lehmann(base, head) == np.median([3, 2, 0, 5, 4, 2])
    low, high = s.interval(base, head)
    assert low <= 2.5 <= high and (low, high) == s.interval(base, head)


def test_the_interval_covers_the_true_shift():
    draw = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        low, high = s.interval(draw.normal(0, 1, 10), draw.normal(1, 1, 10), resamples=400)
        inside += low <= 1 <= high
    assert inside >= 180


def test_an_effect_as_large_as_the_detectable_one_is_found_in_four_of_five():
    draw, alpha = np.random.default_rng(1), 0.01
    effect = s.detectable(1.0, 10, 10, alpha)
    found = np.mean([s.mann_whitney(draw.normal(0, 1, 10), draw.normal(effect, 1, 10)) <= alpha for _ in range(400)])
    assert 0.7 <= found <= 0.9


def test_how_many_runs_would_do():
    assert s.runs_needed(0.01, None, 0.0) == 5
    assert s.runs_needed(0.01, 0.03, 0.03) == 26
    assert s.runs_needed(0.01, 10.0, 0.01) is None


def energy(x: list[float], k: int) -> float:
    a, b = x[:k], x[k:]
    between = np.mean([abs(i - j) for i in a for j in b])
    within = [np.mean([abs(i - j) for i, j in combinations(side, 2)]) for side in (a, b)]
    return (2 * between - sum(within)) * len(a) * len(b) / len(x)


@given(st.lists(st.floats(0.5, 2.0), min_size=2 * SHORTEST, max_size=9))
def test_the_strongest_split_is_that_of_brute_force(values):
    from tracekit.compare.drift import _strongest

    best, at = _strongest(np.asarray([values]))
    energies = {k: energy(values, k) for k in range(SHORTEST, len(values) - SHORTEST + 1)}
    assert best[0] == pytest.approx(max(energies.values()), abs=1e-9)
    assert energies[int(at[0])] == pytest.approx(max(energies.values()), abs=1e-9)


def test_ten_times_one_percent_is_seen_and_noise_is_not():
    draw = np.random.default_rng(2)
    seen = [drift(1.01 ** np.arange(11) * np.exp(draw.normal(0, 0.01, 11))) for _ in range(40)]
    quiet = [drift(np.exp(draw.normal(0, 0.01, 11))) for _ in range(40)]
    assert sum(d.shift is not None and d.shift > 0.03 for d in seen) >= 36
    assert sum(d.shift is not None for d in quiet) <= 3


def test_too_short_a_history_says_nothing():
    assert drift([1.0, 2.0, 3.0]).points == ()
