"""Calls of several ranks become one collective, divided into wait and transfer."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives.rows import calls
from tracekit.job.matching import match


def split(matched: pd.DataFrame) -> list[tuple[int, int | None, int | None]]:
    """(rank, wait, transfer) rows."""
    return [(int(r), *(None if pd.isna(v) else int(v) for v in (w, t))) for r, w, t in matched[["rank", "wait_ns", "transfer_ns"]].itertuples(index=False)]


def test_the_last_rank_to_arrive_waits_for_nobody() -> None:
    #   rank 0  |=====waits=====|--moves--|        0 .. 100
    #   rank 1                  |--moves--|       60 .. 100
    got = match(calls({"rank": 0, "seq": 5, "at": (0, 100)}, {"rank": 1, "seq": 5, "at": (60, 100)}), {"0,1": "tp"})
    assert split(got.by_rank) == [(0, 60, 40), (1, 0, 40)]
    row = got.instances.iloc[0]
    assert (row.instance, row.axis, row.transfer_ns, row.wait_max_ns, row.matched_ranks, row.wait_is_lower_bound) == ("tp[0-1]#5", "tp", 40, 60, 2, False)


def test_two_groups_that_share_a_name_and_numbers_stay_apart() -> None:
    rows = calls(
        {"rank": 0, "seq": 5, "at": (0, 10)},
        {"rank": 1, "seq": 5, "at": (2, 10)},
        {"rank": 2, "seq": 5, "at": (100, 130), "group_ranks": "2,3"},
        {"rank": 3, "seq": 5, "at": (110, 130), "group_ranks": "2,3"},
    )
    got = match(rows, {})
    assert got.instances["instance"].tolist() == ["tp[0-1]#5", "tp[2-3]#5"]
    assert split(got.by_rank) == [(0, 2, 8), (1, 0, 8), (2, 10, 20), (3, 0, 20)]


def test_captures_are_matched_apart_even_with_equal_numbers() -> None:
    rows = [{"rank": r, "capture": c, "seq": 5, "at": (1000 * c + r, 1000 * c + 10)} for c in (10, 20) for r in (0, 1)]
    got = match(calls(*rows), {})
    assert got.instances["instance"].tolist() == ["c10/tp[0-1]#5", "c20/tp[0-1]#5"]
    assert got.instances["matched_ranks"].tolist() == [2, 2]


def test_without_sequence_numbers_the_order_within_the_step_decides() -> None:
    # rank 1's recording began one step later: counted over the whole trace its first call would meet the wrong one
    rows = calls(
        {"rank": 0, "step": 1, "at": (0, 5)},
        {"rank": 0, "step": 2, "at": (20, 30)},
        {"rank": 1, "step": 2, "at": (25, 30)},
    )
    got = match(rows, {})
    assert got.instances[["step", "matched_ranks", "matched_by"]].values.tolist() == [[1, 1, "order"], [2, 2, "order"]]
    assert split(got.by_rank) == [(0, None, None), (0, 5, 5), (1, 0, 5)]


def test_ranks_that_disagree_about_the_number_of_calls_are_not_matched_by_order() -> None:
    rows = calls({"rank": 0, "at": (0, 5)}, {"rank": 0, "at": (6, 9)}, {"rank": 1, "at": (7, 9)})
    got = match(rows, {})
    assert got.instances["matched_by"].tolist() == ["none"] * 3
    assert got.by_rank["wait_ns"].isna().all()
    assert [f["code"] for f in got.findings] == ["collectives_unmatched"]


def test_different_kinds_under_one_number_are_no_match() -> None:
    rows = calls({"rank": 0, "seq": 1, "at": (0, 9)}, {"rank": 1, "seq": 1, "at": (3, 9), "kind": "all_gather"})
    got = match(rows, {})
    assert got.instances["matched_ranks"].tolist() == [1, 1]
    assert got.by_rank["wait_ns"].isna().all()


def test_with_ranks_missing_the_wait_is_a_lower_bound_and_the_transfer_unknown() -> None:
    rows = calls(
        {"rank": 0, "seq": 1, "at": (0, 50), "group_ranks": "0,1,2,3"},
        {"rank": 2, "seq": 1, "at": (30, 50), "group_ranks": "0,1,2,3"},
    )
    got = match(rows, {}, missing=2)
    assert split(got.by_rank) == [(0, 30, None), (2, 0, None)]
    assert got.instances[["wait_is_lower_bound", "matched_ranks"]].values.tolist() == [[True, 2]]


def test_a_lone_rank_of_a_group_knows_neither_part() -> None:
    got = match(calls({"rank": 1, "seq": 1, "at": (0, 50)}), {}, missing=1)
    assert split(got.by_rank) == [(1, None, None)]
    assert got.instances["wait_max_ns"].isna().all()


def test_without_any_group_nothing_is_matched() -> None:
    rows = calls({"rank": 0, "at": (0, 9), "group": None, "group_ranks": None}, {"rank": 1, "at": (2, 9), "group": None, "group_ranks": None})
    got = match(rows, {})
    assert got.instances[["instance", "matched_by"]].values.tolist() == [["?[?]@0#o0", "none"], ["?[?]@1#o0", "none"]]
    assert got.by_rank["wait_ns"].isna().all()


def test_a_root_that_ends_before_the_last_arrival_has_no_negative_transfer() -> None:
    # rank 0 broadcasts a few bytes and is done at 10; rank 1 arrives at 40
    rows = calls({"rank": 0, "seq": 1, "at": (0, 10), "kind": "broadcast"}, {"rank": 1, "seq": 1, "at": (40, 45), "kind": "broadcast"})
    got = match(rows, {})
    assert split(got.by_rank) == [(0, None, None), (1, 0, 5)]
    assert got.instances["transfer_ns"].isna().all()


def test_ends_that_never_agree_on_gpus_mean_clocks_that_differ() -> None:
    # rank 1's clock runs 5 ms ahead: every wait and transfer taken from it would be wrong
    rows = [{"rank": r, "seq": i, "at": (10**8 * i + r * 5_000_000, 10**8 * i + r * 5_000_000 + 70_000)} for i in range(3) for r in (0, 1)]
    got = match(calls(*rows), {})
    assert got.by_rank[["wait_ns", "transfer_ns"]].isna().all(axis=None)
    assert got.skewed == {0, 1}
    assert [f["code"] for f in got.findings] == ["clocks_not_aligned"]
    on_cpu = match(calls(*({**r, "device_type": "cpu"} for r in rows)), {})
    assert on_cpu.skewed == frozenset()  # gloo's threads may end apart, and one host has one clock


def test_an_uneven_all_to_all_has_no_single_size() -> None:
    rows = calls(
        {"rank": 0, "seq": 1, "at": (0, 9), "kind": "all_to_all", "nbytes": 10}, {"rank": 1, "seq": 1, "at": (0, 9), "kind": "all_to_all", "nbytes": 30}
    )
    got = match(rows, {})
    assert got.instances["nbytes"].isna().all()
    assert got.by_rank["nbytes"].tolist() == [10, 30]


def test_an_inferred_group_may_have_lost_ranks_of_a_job_that_has() -> None:
    rows = calls({"rank": 0, "inferred": True, "at": (0, 9)}, {"rank": 1, "inferred": True, "at": (4, 9)})
    assert split(match(rows, {}, missing=2).by_rank) == [(0, 4, None), (1, 0, None)]
    assert split(match(rows, {}, missing=0).by_rank) == [(0, 4, 5), (1, 0, 5)]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.lists(st.integers(0, 1000), min_size=3, max_size=3), st.integers(0, 500)), min_size=1, max_size=8))
def test_wait_and_transfer_always_add_up(collectives: list[tuple[list[int], int]]) -> None:
    rows = [
        {"rank": rank, "seq": i, "at": (10_000 * i + start, 10_000 * i + max(starts) + transfer), "group_ranks": "0,1,2"}
        for i, (starts, transfer) in enumerate(collectives)
        for rank, start in enumerate(starts)
    ]
    got = match(calls(*rows), {}).by_rank.sort_values(["start_ns", "rank"])
    want = {
        (10_000 * i + start, rank): (max(starts) - start, transfer) for i, (starts, transfer) in enumerate(collectives) for rank, start in enumerate(starts)
    }
    assert {(int(s), int(r)): (int(w), int(t)) for s, r, w, t in got[["start_ns", "rank", "wait_ns", "transfer_ns"]].itertuples(index=False)} == want
    assert (got["end_ns"] - got["start_ns"] == got["wait_ns"] + got["transfer_ns"]).all()


@pytest.mark.parametrize("kind", ["all_reduce", "barrier"])
def test_no_calls_give_empty_tables_with_all_columns(kind: str) -> None:
    none = calls({"rank": 0, "kind": kind, "at": (0, 1)}).iloc[:0]
    got = match(none, {})
    assert len(got.instances) == 0 and len(got.by_rank) == 0
    assert {"instance", "axis", "transfer_ns"} <= set(got.instances.columns)
