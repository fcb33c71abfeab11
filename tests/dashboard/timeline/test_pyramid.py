"""What is stored covers exactly what the slices cover: no track overlaps, every bucket of every level holds the true busy time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dashboard.timeline.drawn import Slice, rank, stored
from tracekit import pyramid
from tracekit.errors import InputError
from tracekit.intervals import total, union
from tracekit.timeline.coverage import pyramid as levels_of
from tracekit.timeline.lanes import place, tracks_of
from tracekit.timeline.sorts import SORTS
from tracekit.timeline.window import busy_buckets, inside

SLICES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.sampled_from(["cpu", 7, 20])), min_size=1, max_size=40)


def drawn(found: list[tuple[int, int, str | int]]) -> list[Slice]:
    return [(f"{'nccl' if lane == 20 else 'k'}{i % 3}", start, start + dur, lane) for i, (start, dur, lane) in enumerate(found)]


@pytest.mark.parametrize(
    ("slices", "tracks"),
    [
        ([(0, 10), (1, 4), (2, 3), (5, 9), (12, 15)], [0, 1, 2, 1, 0]),  # nested: the depth
        ([(0, 10), (5, 15), (12, 20)], [0, 1, 0]),  # overlapping: the first track that is free
        ([(0, 4), (4, 4), (4, 8), (8, 8)], [0, 1, 0, 0]),  # side by side; what has no length lies in what begins with it
        ([(0, 5), (0, 5), (0, 5)], [0, 1, 2]),  # the same three times
    ],
)
def test_tracks_are_depths_where_slices_nest_and_first_fit_elsewhere(slices: list[tuple[int, int]], tracks: list[int]) -> None:
    order = sorted(range(len(slices)), key=lambda i: (slices[i][0], slices[i][0] - slices[i][1]))
    starts, ends = np.array([slices[i] for i in order]).T
    assert tracks_of(starts, ends - starts).tolist() == [tracks[i] for i in order]


@given(SLICES)
@settings(max_examples=40)
def test_no_two_slices_of_a_track_overlap_and_none_is_lost(found: list[tuple[int, int, str | int]]) -> None:
    trace = rank(drawn(found))
    placed = place(trace)
    assert sorted(placed.rows.tolist()) == list(range(len(trace.events)))
    ts = trace.events["ts"].to_numpy()[placed.rows]
    end = ts + trace.events["dur"].to_numpy()[placed.rows]
    together = placed.track[1:] == placed.track[:-1]
    assert (ts[1:] >= end[:-1])[together].all()


@given(SLICES)
@settings(max_examples=20)
def test_every_bucket_holds_the_busy_time_that_counting_gives(found: list[tuple[int, int, str | int]]) -> None:
    with TemporaryDirectory() as folder:
        run = stored(Path(folder), rank(drawn(found)))
        timeline = run.members[0].timeline
        arrays, offsets = timeline.arrays, timeline.arrays["track_offset"].tolist()
        for track, (a, b) in enumerate(pairwise(offsets)):
            ns = Counter(
                (int(arrays["sort"][i]), t) for i in range(a, b) for t in range(int(arrays["start"][i]), int(arrays["start"][i]) + int(arrays["dur"][i]))
            )
            for shift in (0, 2, 5, 8):
                wanted = Counter((sort, t >> shift) for sort, t in ns)
                last = (timeline.extent_ns >> shift) + 1
                got = {
                    (sort, int(bucket)): int(busy)
                    for sort, buckets, busies in busy_buckets(timeline, track, shift, 0, last, inside(timeline, track, 0, last << shift))
                    for bucket, busy in zip(buckets, busies, strict=True)
                }
                assert got == dict(wanted)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), min_size=1, max_size=60))
def test_every_level_adds_up_to_the_level_below(gaps: list[tuple[int, int]]) -> None:
    starts = np.cumsum([gap + length for gap, length in gaps]) - [length for _, length in gaps]
    ends = starts + [length for _, length in gaps]
    for level in levels_of(np.zeros(len(starts), np.int64), starts, ends):
        assert level.busy.sum() == (ends - starts).sum()
        assert (level.busy <= 1 << level.shift).all() and (np.diff(level.bucket) > 0).all()


def test_a_small_trace_has_levels_that_answer_like_its_slices(tmp_path: Path) -> None:
    """Enough slices for a pyramid above them: the stored levels and plain counting agree."""
    slices: list[Slice] = [(f"k{i % 7}", i * 1_000 + i % 3, i * 1_000 + 400 + i % 90, 7) for i in range(20_000)]
    timeline = stored(tmp_path, rank(slices)).members[0].timeline
    assert timeline.levels
    shift = timeline.levels[0] + 3
    got = np.zeros((timeline.extent_ns >> shift) + 1, np.int64)
    for _, bucket, busy in busy_buckets(timeline, 0, shift, 0, len(got), (0, 0)):
        got[bucket] += busy
    edges = np.arange(len(got) + 1) << shift
    begin = np.array([s[1] for s in slices]) - slices[0][1]
    end = np.array([s[2] for s in slices]) - slices[0][1]
    wanted = [int(np.clip(np.minimum(end, b) - np.maximum(begin, a), 0, None).sum()) for a, b in pairwise(edges)]
    assert got.tolist() == wanted


@given(SLICES)
@settings(max_examples=20)
def test_the_summary_covers_the_union_of_the_work(found: list[tuple[int, int, str | int]]) -> None:
    with TemporaryDirectory() as folder:
        slices = drawn(found)
        timeline = stored(Path(folder), rank(slices)).members[0].timeline
        first = timeline.lanes[-1].first
        for track, stream in ((first, 7), (first + 1, 20)):
            a, b = timeline.arrays["track_offset"][track : track + 2]
            mine = [(s, e) for _, s, e, lane in slices if lane == stream]
            assert int(timeline.arrays["dur"][a:b].sum()) == total(union(*zip(*mine, strict=True))) if mine else a == b


def test_hostile_depth_and_numbers_of_threads_are_bounded_and_counted(tmp_path: Path) -> None:
    deep: list[Slice] = [(f"o{i}", i, 2_000 - i, "cpu") for i in range(400)]
    run = stored(tmp_path, rank(deep))
    assert run.members[0].timeline.index["left_out"] == 400 - 256
    assert "144 slices overlap or nest too deeply" in run.notes[0]
    many: list[Slice] = [("k", i, i + 1, i) for i in range(3_000)]
    assert len(place(rank(many)).lanes) == 512


def test_odd_traces_are_stored_too(tmp_path: Path) -> None:
    assert stored(tmp_path / "empty", rank([])).extent_ns == 0
    names = ["a\0b", "<script>", "x" * 10_000, ""]
    run = stored(tmp_path / "names", rank([(name, i, i + 1, 7) for i, name in enumerate(names)]))
    assert run.members[0].timeline.names == ["", "<script>", "a�b", "x" * 10_000]


def test_a_damaged_or_half_written_timeline_is_refused(tmp_path: Path) -> None:
    folder = pyramid.build(rank([("k", 0, 5, 7)]), tmp_path / "one")
    (folder / "timeline.bin").write_bytes((folder / "timeline.bin").read_bytes()[:-1])
    with pytest.raises(InputError, match="damaged"):
        pyramid.open(folder)
    (folder / "timeline.json").unlink()
    with pytest.raises(InputError, match="no stored timeline"):
        pyramid.open(folder)
    assert len(set(SORTS)) == len(SORTS)
