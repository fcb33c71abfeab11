"""Names are found over all ranks in order of time; of one slice everything is known, and what it was on the other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dashboard.timeline.instances import instance_of
from tests.builders import kernel, launch, passed, span
from tests.dashboard.timeline.drawn import BASE, clock, rank, stored
from tracekit.errors import UsageError
from tracekit.timeline.run import Run
from tracekit.timeline.search import Match, details, search


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two ranks that do the same, rank 1 a little later by a clock that is 1,000 ns ahead."""
    names = [("GEMM", 0, 10, 7), ("nccl_all", 20, 30, 20), ("gemm<2>", 40, 50, 7), ("op", 0, 100, "cpu"), ("gemm", 60, 60, 7)]
    late = [(name, start + 1_003, end + 1_003, lane) for name, start, end, lane in names]
    return stored(tmp_path, rank(names), rank(late, 1), clocks=clock({0: 0, 1: 1_000}))


def places(matches: Sequence[Match]) -> list[tuple[int, int]]:
    return [(m.rank, m.start) for m in matches]


def test_matches_come_in_order_of_time_over_the_ranks(run: Run) -> None:
    found = search(run, "gemm")
    assert found.total == 6
    assert places(found.matches) == [(0, 0), (1, 3), (0, 40), (1, 43), (0, 60), (1, 63)]
    assert {m.name for m in found.matches} == {"GEMM", "gemm<2>", "gemm"}


def test_next_and_previous_go_on_from_a_time(run: Run) -> None:
    assert places(search(run, "gemm", at=4, most=2).matches) == [(0, 40), (1, 43)]
    assert places(search(run, "gemm", at=43, most=2).matches) == [(1, 43), (0, 60)]
    assert places(search(run, "gemm", at=43, most=2, backwards=True).matches) == [(1, 3), (0, 40)]
    assert search(run, "gemm", [1], at=64).matches == () and search(run, "gemm", [1], at=64).total == 3


def test_a_name_in_quotes_is_the_whole_name(run: Run) -> None:
    assert [(search(run, f'"{name}"').total) for name in ("gemm", "GEMM", "gemm<2>", "gem")] == [2, 2, 2, 0]
    assert {m.name for m in search(run, '"gemm"').matches} == {"gemm"}


def test_a_match_says_on_which_row_it_is_drawn(run: Run) -> None:
    (match,) = search(run, "nccl", [0]).matches
    assert run.lanes[0][match.lane][1] == "GPU 0 · stream 20 · comm" and match.depth == 0


def test_a_search_for_nothing_is_refused_and_for_something_absent_finds_nothing(run: Run) -> None:
    assert search(run, "absent").to_dict() == {"total": 0, "matches": []}
    for text in ("", "   ", "x" * 8_001):
        with pytest.raises(UsageError, match="1 to 8000 letters"):
            search(run, text)


def test_details_tell_every_column_and_what_launched_it(tmp_path: Path) -> None:
    trace = passed([span("ProfilerStep#3", 0, 90), launch(10, 12, 5), kernel("gemm", 20, 40, 5), kernel("gemm", 50, 60)])
    run = stored(tmp_path, trace)
    first, last = search(run, "gemm").matches
    found = details(run, 0, 0, first.event)
    assert (found["start"], found["dur"], found["lane_name"]) == (20_000, 20_000, "GPU 0 · stream 7")
    assert {"step": 3, "kind": "compute", "correlation": 5, "stream": 7}.items() <= found["columns"].items()
    assert "layer" not in found["columns"]  # unknown is absent
    assert (found["launch"]["name"], found["launch"]["start"]) == ("cudaLaunchKernel", 10_000)
    launched = details(run, 0, 0, found["launch"]["event"])
    assert launched["parent"]["name"] == "ProfilerStep#3"
    assert "launch" not in details(run, 0, 0, last.event)
    with pytest.raises(UsageError, match="events 0 to 3"):
        details(run, 0, 0, 4)
    with pytest.raises(UsageError, match="no rank 5"):
        details(run, 5, 0, 0)


def test_a_kernel_that_sends_and_receives_shows_both(run: Run) -> None:
    sends = pd.DataFrame(
        {"src": [0, 1, 0], "dst": [1, 0, 1], "capture": 0, "transfer_ns": [7, 8, 9], "send_start_ns": BASE + 20, "recv_start_ns": BASE + 20}
    ).assign(send_end_ns=[BASE + 30, BASE + 33, BASE + 90], recv_end_ns=[BASE + 33, BASE + 30, BASE + 93])
    analysis = SimpleNamespace(result=lambda name: SimpleNamespace(available=True, tables={"p2p": sends}))
    known = instance_of(analysis, run, details(run, 0, 0, search(run, "nccl", [0]).matches[0].event))
    assert known == {"kind": "send", "sends": [{"src": 0, "dst": 1, "transfer_ns": 7}, {"src": 1, "dst": 0, "transfer_ns": 8}]}


def test_a_collective_is_shown_with_every_rank_that_took_part(run: Run) -> None:
    """Rank 1 starts 3 ns later: rank 0 waits for 3 of its 10 ns."""
    instances = pd.DataFrame({"instance": [4], "capture": [0], "kind": ["all_reduce"], "transfer_ns": [7], "wait_max_ns": [3]})
    by_rank = pd.DataFrame(
        {"instance": [4, 4], "rank": [0, 1], "start_ns": [BASE + 20, BASE + 23], "end_ns": [BASE + 30, BASE + 33], "wait_ns": [3, None], "transfer_ns": [7, 7]}
    )
    tables = {"instances": instances, "by_rank": by_rank.astype({"wait_ns": "Int64"})}
    analysis = SimpleNamespace(result=lambda name: SimpleNamespace(available=True, tables=tables))
    own, later = (m.event for m in search(run, "nccl").matches)
    known = instance_of(analysis, run, details(run, 1, 0, later))
    assert known == {
        "kind": "collective",
        "about": {"kind": "all_reduce", "transfer_ns": 7, "wait_max_ns": 3},
        "ranks": [
            {"rank": 0, "start": 20, "end": 30, "wait_ns": 3, "transfer_ns": 7},
            {"rank": 1, "start": 23, "end": 33, "wait_ns": None, "transfer_ns": 7},
        ],
    }
    assert instance_of(analysis, run, details(run, 0, 0, own)) is not None
    gemm = search(run, "gemm").matches[0]
    assert instance_of(analysis, run, details(run, 0, 0, gemm.event)) is None
