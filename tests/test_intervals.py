"""Interval algebra against brute force over single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit import intervals

LINE = 40
Pair = tuple[int, int]
pairs = st.lists(st.tuples(st.integers(0, LINE), st.integers(0, LINE)), max_size=12)


def ns(listed: list[Pair]) -> set[int]:
    return {t for start, end in listed for t in range(start, end)}


def union(listed: list[Pair]) -> intervals.Union:
    return intervals.union([s for s, _ in listed], [e for _, e in listed])


def as_set(u: intervals.Union) -> set[int]:
    return ns(list(zip(u[0].tolist(), u[1].tolist(), strict=True)))


@given(pairs)
def test_union_is_sorted_disjoint_and_holds_every_ns(listed: list[Pair]) -> None:
    starts, ends = union(listed)
    assert as_set((starts, ends)) == ns(listed)
    assert (ends > starts).all() and (starts[1:] > ends[:-1]).all()
    assert intervals.total((starts, ends)) == len(ns(listed))


@given(pairs, pairs)
def test_algebra_equals_sets(a: list[Pair], b: list[Pair]) -> None:
    assert as_set(intervals.intersect(union(a), union(b))) == ns(a) & ns(b)
    assert as_set(intervals.subtract(union(a), union(b))) == ns(a) - ns(b)
    assert as_set(intervals.merge(union(a), union(b))) == ns(a) | ns(b)


@given(pairs, st.integers(0, LINE), st.integers(0, LINE))
def test_clip_and_measure_agree(listed: list[Pair], start: int, end: int) -> None:
    inside = ns(listed) & set(range(start, end))
    assert as_set(intervals.clip(union(listed), start, end)) == inside
    assert intervals.measure(union(listed), [start], [end]).tolist() == [len(inside)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, LINE), st.integers(1, LINE)), max_size=15))
def test_the_parent_is_the_nearest_earlier_row_that_ends_no_sooner(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(((t, s, s + d) for t, s, d in rows), key=lambda r: (r[0], r[1], -r[2]))
    expected = [max((j for j in range(i) if rows[j][0] == rows[i][0] and rows[j][2] >= rows[i][2]), default=-1) for i in range(len(rows))]
    thread, start, end = (np.array([r[k] for r in rows], np.int64) for k in range(3))
    assert intervals.parents(thread, start, end).tolist() == expected
