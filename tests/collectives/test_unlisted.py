"""Groups whose ranks are not listed, and sequence numbers that are not the group's."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.collectives.rows import calls, facts
from tracekit.job.assemble import build
from tracekit.job.matching import match

CUT = ",".join(map(str, range(30))) + ",..."


def plain(frame: pd.DataFrame, *columns: str) -> list[list[Any]]:
    return [[None if pd.isna(v) else v for v in row] for row in frame[list(columns)].astype(object).values.tolist()]


def job_of(ranks: range, world: int | None, **row: Any) -> Any:
    rows = [{"seq": i, "at": (1_000_000 * i + r, 1_000_000 * i + 500_000), "group_ranks": None, **row} for r in ranks for i in (1, 2)]
    return build({(r, 0): facts(r, *rows[2 * i : 2 * i + 2], world_size=world) for i, r in enumerate(ranks)})


def test_a_cut_list_of_a_group_as_large_as_the_job_is_every_rank() -> None:
    job = job_of(range(3), 64, group_cut=CUT, group_size=64)
    assert plain(job.instances, "matched_ranks", "group_size", "transfer_ns") == [[3, 64, None], [3, 64, None]]
    assert set(job.instances["group_ranks"]) == {",".join(map(str, range(64)))}


def test_a_cut_list_whose_group_is_all_here_is_who_takes_part() -> None:
    job = job_of(range(32), 64, group_cut=CUT, group_size=32)
    assert plain(job.instances, "matched_ranks", "wait_max_ns", "matched_by") == [[32, 31, "sequence"]] * 2
    assert set(job.instances["group_ranks"]) == {",".join(map(str, range(32)))}


def test_a_cut_list_of_a_group_that_is_partly_here_stays_unknown_and_is_matched_all_the_same() -> None:
    job = job_of(range(4), 64, group_cut=CUT, group_size=32)
    assert plain(job.instances, "matched_ranks", "wait_max_ns", "transfer_ns", "wait_is_lower_bound", "group_ranks") == [[4, 3, None, True, None]] * 2
    assert [f["code"] for f in job.findings if f["severity"] == "warning"] == ["rank_missing", "group_ranks_cut"]


def test_in_a_job_of_two_whoever_communicates_does_so_with_the_other() -> None:
    job = job_of(range(2), 2, group=None, seq=None)
    assert plain(job.instances, "group_ranks", "matched_ranks", "wait_max_ns", "matched_by") == [["0,1", 2, 1, "ends"]] * 2


def test_a_named_group_without_ranks_is_inferred_from_common_ends_if_its_size_fits() -> None:
    ends = {0: 300_000, 1: 300_000, 2: 420_000, 3: 420_000}
    rows = {r: [{"seq": None, "group": "tp", "group_ranks": None, "group_size": 2, "at": (k * e - 40_000 - r, k * e)} for k in (1, 3)] for r, e in ends.items()}
    job = build({(r, 0): facts(r, *one, world_size=4) for r, one in rows.items()})
    assert sorted(plain(job.instances, "group", "group_ranks", "matched_ranks")) == [["tp", "0,1", 2]] * 2 + [["tp", "2,3", 2]] * 2
    wide = {r: [{**row, "group_size": 3} for row in one] for r, one in rows.items()}
    assert build({(r, 0): facts(r, *one, world_size=4) for r, one in wide.items()}).instances["group_ranks"].isna().all()


def numbered(first: list[int], second: list[int], skew: int = 0) -> pd.DataFrame:
    """Three collectives of two ranks, 1 ms apart, the last rank 10 µs late, under these sequence numbers."""
    at = [1_000_000 * i for i in range(len(first))]
    rows = [{"rank": 0, "seq": s, "at": (t, t + 50_000)} for s, t in zip(first, at, strict=True)]
    return calls(*rows, *({"rank": 1, "seq": s, "at": (t + skew + 10_000, t + skew + 50_000)} for s, t in zip(second, at, strict=True)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 3, 5], [2, 4, 6]),  # counted over the process: another group's calls lie between
        ([2, 3, 4], [1, 2, 3]),  # another group's call came first on rank 0
        ([1, 3, 5], [101, 103, 105]),
    ],
)
def test_numbers_that_are_not_the_groups_give_way_to_order(first: list[int], second: list[int]) -> None:
    got = match(numbered(first, second), {})
    assert plain(got.instances, "matched_ranks", "wait_max_ns", "transfer_ns", "matched_by") == [[2, 10_000, 40_000, "order"]] * 3
    assert [f["code"] for f in got.findings] == ["sequence_not_per_group"]


def test_numbers_that_are_the_groups_stand_though_the_recordings_are_shifted() -> None:
    rows = numbered([2, 3, 4], [2, 3, 4])
    shifted = pd.concat([rows[(rows["rank"] == 0) & (rows["seq"] < 4)], rows[(rows["rank"] == 1) & (rows["seq"] > 2)]], ignore_index=True)
    got = match(shifted, {})
    assert plain(got.instances, "seq", "matched_ranks", "matched_by") == [[2, 1, "sequence"], [3, 2, "sequence"], [4, 1, "sequence"]]
    assert got.findings == ()


def test_doubled_numbers_are_as_good_as_others() -> None:
    assert plain(match(numbered([2, 4, 6], [2, 4, 6]), {}).instances, "matched_ranks", "matched_by") == [[2, "sequence"]] * 3


def test_with_clocks_that_differ_nothing_overlaps_and_the_numbers_stand() -> None:
    got = match(numbered([1, 2, 3], [1, 2, 3], skew=10**9), {})
    assert plain(got.instances, "matched_ranks", "matched_by") == [[2, "sequence"]] * 3


def test_a_group_that_each_rank_calls_by_another_name_is_one() -> None:
    rows = [{"rank": r, "group": name, "seq": 1, "at": (r, 100)} for r, name in ((0, "5"), (1, "9"))]
    assert plain(match(calls(*rows), {}).instances, "matched_ranks", "wait_max_ns") == [[2, 1]]
    both = [*rows, *({"rank": r, "group": "x", "seq": 1, "at": (200 + r, 300)} for r in (0, 1))]
    assert sorted(plain(match(calls(*both), {}).instances, "group", "matched_ranks")) == [["5", 1], ["9", 1], ["x", 2]]


def test_a_kernel_of_unknown_kind_may_be_what_the_other_rank_says_it_is() -> None:
    got = match(calls({"rank": 0, "seq": 1, "kind": None, "at": (0, 9)}, {"rank": 1, "seq": 1, "at": (3, 9)}), {})
    assert plain(got.instances, "kind", "matched_ranks") == [["all_reduce", 2]]


def test_host_time_tells_no_wait_and_a_peer_copy_waits_for_nobody() -> None:
    rows = [{"rank": r, "seq": 1, "at": (r, 100), "time_source": "host"} for r in (0, 1)]
    assert plain(match(calls(*rows), {}).by_rank, "wait_ns", "transfer_ns") == [[None, None]] * 2
    copy = {"rank": 0, "kind": "peer_copy", "group": None, "group_ranks": None, "at": (5, 25)}
    got = match(calls(copy), {})
    assert plain(got.by_rank, "wait_ns", "transfer_ns") == [[0, 20]]
    assert plain(got.instances, "transfer_ns", "wait_is_lower_bound") == [[20, False]]


def test_with_ranks_missing_the_transfer_is_bounded_from_above() -> None:
    rows = [{"rank": r, "seq": 1, "at": (at, 50), "group_ranks": "0,1,2,3"} for r, at in ((0, 0), (2, 30))]
    assert plain(match(calls(*rows), {}, missing=2).instances, "transfer_ns", "transfer_upper_bound_ns") == [[None, 20]]
