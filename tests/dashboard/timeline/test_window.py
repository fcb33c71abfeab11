"""A window holds few slices: bars with names. It holds many: how busy each column is. On one clock, within hard bounds, the same every time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.dashboard.timeline.drawn import BASE, Slice, clock, rank, stored
from tracekit.errors import UsageError
from tracekit.timeline import window as windows
from tracekit.timeline.run import VIEWS, Row
from tracekit.timeline.sorts import SORTS
from tracekit.timeline.window import Bars, Heat, window

KERNELS: list[Slice] = [(f"gemm{i}", 100 * i, 100 * i + 60, 7) for i in range(1_000)]


def test_many_slices_are_a_heat_map_and_few_are_named_bars(tmp_path: Path) -> None:
    run = stored(tmp_path, rank(KERNELS))
    far, near = window(run, 0, run.extent_ns, 500, "devices"), window(run, 0, 1_000, 500, "devices")
    ((row, (heat,)),) = far.rows
    assert row == Row(0, 0, 0) and isinstance(heat, Heat) and far.column_ns == 256
    assert {SORTS[s] for s in heat.sort[heat.cover > 0]} == {"compute"} and 0.5 < heat.cover[:-1].mean() / 255 < 0.7
    ((_, (bars,)),) = near.rows
    assert isinstance(bars, Bars) and near.column_ns == 0
    assert [near.names[n] for n in bars.name] == [f"gemm{i}" for i in range(10)]
    assert bars.start.tolist() == [100 * i for i in range(10)] and set(bars.dur.tolist()) == {60}


def test_slices_that_reach_into_the_window_are_in_it_and_their_neighbours_are_not(tmp_path: Path) -> None:
    run = stored(tmp_path, rank([("before", 0, 10, 7), ("across", 10, 40, 7), ("instant", 45, 45, 7), ("in", 45, 50, 7), ("after", 50, 60, 7)]))
    drawn = window(run, 20, 50, 100, "devices")
    assert sorted(drawn.names) == ["across", "in", "instant"]
    assert sorted(window(run, 0, 60, 1, "devices").names)[:2] == ["across", "after"]


def test_what_has_no_length_is_drawn_at_the_very_end_too(tmp_path: Path) -> None:
    run = stored(tmp_path, rank([("k", 0, 100, 7), ("instant", 100, 100, 7)]))
    assert window(run, 0, 101, 500, "devices").names == ("instant", "k")
    assert window(run, 0, 100, 500, "devices").names == ("k",)


def test_threads_of_one_name_have_lanes_of_their_own(tmp_path: Path) -> None:
    trace = rank([("left", 0, 10, "cpu"), ("right", 0, 10, "cpu")])
    events = trace.events.assign(thread=[100, 101])
    run = stored(tmp_path, replace(trace, events=events, meta=replace(trace.meta, threads={100: "python", 101: "python"})))
    drawn = window(run, 0, 10, 500, "all")
    assert [(run.lanes[0][row.lane][1], drawn.names[pieces[0].name[0]]) for row, pieces in drawn.rows] == [  # type: ignore[union-attr]
        ("python", "left"),
        ("python · 2", "right"),
    ]


def test_the_emptiest_rows_keep_their_names_when_bars_run_out(tmp_path: Path) -> None:
    run = stored(tmp_path, rank([*KERNELS, ("ProfilerStep#1", 0, 100_000, "cpu"), *((f"nccl{i}", i * 10_000, i * 10_000 + 900, 20) for i in range(10))]))
    kinds = {run.lanes[0][row.lane][1]: type(pieces[0]) for row, pieces in window(run, 0, 100_000, 300, "all").rows}
    assert kinds == {"GPU 0 · stream 7": Heat, "GPU 0 · stream 20 · comm": Bars, "main": Bars}


def test_ranks_are_drawn_on_one_clock(tmp_path: Path) -> None:
    """Rank 1's clock is 5,000 ns ahead: its slices at the same true time read 5,000 later."""
    run = stored(tmp_path, rank([("a", 0, 10, 7), ("b", 40, 50, 7)], 0), rank([("a", 5_000, 5_010, 7)], 1), clocks=clock({0: 0, 1: 5_000}))
    assert run.origin_ns == BASE and run.extent_ns == 50
    starts = {row.rank: pieces[0].start.tolist() for row, pieces in window(run, 0, 50, 100, "devices").rows}  # type: ignore[union-attr]
    assert starts == {0: [0, 40], 1: [0]}
    assert run.notes == ()


def test_a_drifting_clock_is_followed_there_and_back(tmp_path: Path) -> None:
    run = stored(tmp_path, rank([("a", 0, 10, 7)]), rank([("b", 7_000, 1_000_007_000, 7)], 1), clocks=clock({0: 0, 1: 5_000}, drift_ppm=50.0))
    member = run.member(1, 0)
    own = np.array([0, 12_345, 1_000_000_000])
    assert [member.own(int(t)) for t in member.shown(own)] == own.tolist()


def test_clocks_that_nothing_links_are_drawn_as_recorded_and_said_to_be(tmp_path: Path) -> None:
    both = (rank([("a", 0, 10, 7)], 0), rank([("a", 5, 15, 7)], 1))
    assert "not compared" in stored(tmp_path / "a", *both).notes[0]
    table = clock({0: 0, 1: 0})
    run = stored(tmp_path / "b", *both, clocks=table.assign(offset_ns=table["offset_ns"].mask(table["rank"].eq(1))))
    assert "ranks 1 " in run.notes[0] and run.member(1, 0).shown([0]).tolist() == [5]


def test_a_rank_that_counts_from_its_own_start_is_drawn_with_the_others(tmp_path: Path) -> None:
    """Not 54 years before them."""
    run = stored(tmp_path, rank([("a", 0, 10, 7)], 0), rank([("b", 5, 25, 7)], 1, base=0))
    assert (run.origin_ns, run.extent_ns) == (BASE, 20)
    assert {row.rank: pieces[0].start.tolist() for row, pieces in window(run, 0, 20, 100, "devices").rows} == {0: [0], 1: [0]}  # type: ignore[union-attr]
    assert "Rank 1 counts time from another beginning" in run.notes[0]


def test_a_window_at_any_zoom_agrees_with_the_slices(tmp_path: Path) -> None:
    """What heat maps say is busy is what the slices say, at every width of a column."""
    draw = np.random.default_rng(3)
    start = np.cumsum(draw.integers(1, 300, 12_000))
    dur = np.minimum(draw.integers(0, 200, 12_000), np.diff(np.append(start, start[-1] + 500)))
    run = stored(tmp_path, rank([(f"k{i % 50}", int(s), int(s + d), 7) for i, (s, d) in enumerate(zip(start, dur, strict=True))]))
    start = start - start[0]
    for zoom in range(0, 12, 2):
        width = run.extent_ns >> zoom
        ((_, pieces),) = window(run, width // 3, width // 3 + width, 640, "devices").rows
        if isinstance(pieces[0], Bars):
            continue
        heat = pieces[0]
        column = (heat.end - heat.start) // len(heat.cover)
        left = heat.start + np.arange(len(heat.cover))[:, None] * column
        busy = np.clip(np.minimum(start + dur, left + column) - np.maximum(start, left), 0, None).sum(axis=1).tolist()
        assert heat.cover.tolist() == [min(-(-b * 255 // column), 255) for b in busy]


def test_answers_stay_within_their_bounds_and_are_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[Slice] = [(f"k{i}", 10 * i, 10 * i + 8, stream) for stream in range(30) for i in range(300)]
    run = stored(tmp_path, *(rank(slices, number) for number in range(3)))
    first = window(run, 0, run.extent_ns, 4_096, "devices")
    assert sum(len(p.start) for _, pieces in first.rows for p in pieces if isinstance(p, Bars)) <= windows.MOST_BARS
    assert sum(len(p.cover) for _, pieces in first.rows for p in pieces if isinstance(p, Heat)) <= windows.MOST_CELLS + len(first.rows) * 2
    assert json.dumps(first.to_dict()) == json.dumps(window(run, 0, run.extent_ns, 4_096, "devices").to_dict())
    monkeypatch.setattr(windows, "MOST_ROWS", 10)
    assert window(run, 0, 100, 4_096, "devices").left_out == 80
    monkeypatch.setattr(windows, "MOST_DIRECT", 0)
    assert window(run, 0, run.extent_ns, 64, "devices").column_ns >= run.extent_ns // 64


def test_only_the_ranks_and_the_view_that_are_asked_for(tmp_path: Path) -> None:
    run = stored(tmp_path, *(rank([("k", 0, 9, 7), ("nccl", 3, 9, 20), ("op", 0, 4, "cpu")], number) for number in (0, 3, 5)))
    rows = {view: [(r.rank, run.lanes[r.rank][r.lane][0]) for r in run.rows(view, {3, 99})] for view in VIEWS}
    assert rows == {
        "ranks": [(3, "summary"), (3, "summary")],
        "devices": [(3, "device"), (3, "communication")],
        "all": [(3, "device"), (3, "communication"), (3, "thread")],
    }
    with pytest.raises(UsageError, match="no view"):
        window(run, 0, 9, 100, "<b>")
    with pytest.raises(UsageError, match="ends before"):
        window(run, 9, 9, 100, "ranks")
    assert window(run, 10**15, 10**16, 100, "ranks").rows == ()


def test_the_captures_of_a_rank_share_their_lanes(tmp_path: Path) -> None:
    later = rank([("k", 9_000, 9_010, 7)])
    later = replace(later, meta=replace(later.meta, capture=1))
    run = stored(tmp_path, rank([("k", 0, 10, 7)]), later)
    ((row, pieces),) = window(run, 0, 10_000, 100, "devices").rows
    assert (row.lane, row.depth) == (0, 0)
    assert [(p.capture, p.start.tolist()) for p in pieces if isinstance(p, Bars)] == [(0, [0]), (1, [9_000])]
