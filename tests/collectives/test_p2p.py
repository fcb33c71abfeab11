"""Sends find their receives."""

from __future__ import annotations

import pandas as pd

from tests.collectives.rows import p2p_calls
from tracekit.job.p2p import pair


def plain(frame: pd.DataFrame, *columns: str) -> list[list[object]]:
    return [[None if pd.isna(v) else v for v in row] for row in frame[list(columns)].astype(object).values.tolist()]


def test_the_k_th_send_meets_the_k_th_receive_of_the_pair() -> None:
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "at": (10, 30)},
        {"rank": 0, "kind": "send", "peer": 1, "at": (40, 60)},
        {"rank": 1, "kind": "recv", "peer": 0, "at": (0, 30)},  # posted early: waits 10 for the data
        {"rank": 1, "kind": "recv", "peer": 0, "at": (50, 60)},  # posted late: the sender waits 10
    )
    got = pair(rows, {"0,1": "pp"}).p2p
    want = [[0, 1, 0, 20, 0, 10, "pp"], [0, 1, 1, 10, 10, 0, "pp"]]
    assert plain(got, "src", "dst", "order", "transfer_ns", "send_wait_ns", "recv_wait_ns", "axis") == want


def test_times_since_1970_stay_exact_beside_an_end_that_is_missing() -> None:
    now = 1_761_000_000_000_000_001
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "at": (now, now + 30)},
        {"rank": 1, "kind": "recv", "peer": 0, "at": (now + 3, now + 30)},
        {"rank": 0, "kind": "send", "peer": 2, "at": (now + 40, now + 41)},  # rank 2 was not recorded
    )
    got = pair(rows, {}).p2p
    want = [[now, now + 3, now + 30, 27, 3, 0], [now + 40, None, None, None, None, None]]
    assert plain(got, "send_start_ns", "recv_start_ns", "recv_end_ns", "transfer_ns", "send_wait_ns", "recv_wait_ns") == want


def test_opposite_directions_of_a_pair_are_two_sequences() -> None:
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "at": (0, 5)},
        {"rank": 0, "kind": "recv", "peer": 1, "at": (6, 20)},
        {"rank": 1, "kind": "recv", "peer": 0, "at": (0, 5)},
        {"rank": 1, "kind": "send", "peer": 0, "at": (15, 20)},
    )
    assert plain(pair(rows, {}).p2p, "src", "dst", "transfer_ns", "recv_wait_ns") == [[0, 1, 5, 0], [1, 0, 5, 9]]


def test_two_groups_between_one_pair_run_in_any_order() -> None:
    # the sender issues a then b, the receiver b then a: only the group's name keeps them apart
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "group": "a", "at": (0, 10), "nbytes": 1},
        {"rank": 0, "kind": "send", "peer": 1, "group": "b", "at": (2, 9), "nbytes": 2},
        {"rank": 1, "kind": "recv", "peer": 0, "group": "b", "at": (1, 9), "nbytes": 2},
        {"rank": 1, "kind": "recv", "peer": 0, "group": "a", "at": (3, 10), "nbytes": 1},
    )
    got = pair(rows, {}).p2p
    assert plain(got, "group", "order", "send_start_ns", "recv_start_ns", "matched_by") == [["b", 0, 2, 1, "group"], ["a", 1, 0, 3, "group"]]


def test_groups_named_differently_on_both_ends_pair_by_rank() -> None:
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "group": "3", "at": (0, 10)},
        {"rank": 1, "kind": "recv", "peer": 0, "group": "5", "at": (4, 10)},
    )
    assert plain(pair(rows, {}).p2p, "transfer_ns", "send_wait_ns", "matched_by") == [[6, 4, "pair"]]


def test_a_kernel_that_sends_and_receives_cannot_be_divided() -> None:
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "batch": 0, "at": (0, 10)},
        {"rank": 0, "kind": "recv", "peer": 1, "batch": 0, "at": (0, 10)},
        {"rank": 1, "kind": "recv", "peer": 0, "batch": 0, "at": (4, 10)},
        {"rank": 1, "kind": "send", "peer": 0, "batch": 0, "at": (4, 10)},
    )
    got = pair(rows, {}).p2p
    assert plain(got, "src", "dst", "transfer_ns", "send_wait_ns", "recv_wait_ns") == [[0, 1, None, None, None], [1, 0, None, None, None]]
    assert plain(got, "send_start_ns", "recv_start_ns") == [[0, 4], [4, 0]]


def test_a_batch_of_one_is_as_good_as_its_own_kernel() -> None:
    rows = p2p_calls({"rank": 0, "kind": "send", "peer": 1, "batch": 0, "at": (0, 10)}, {"rank": 1, "kind": "recv", "peer": 0, "batch": 3, "at": (4, 10)})
    assert plain(pair(rows, {}).p2p, "transfer_ns", "send_wait_ns", "coalesced") == [[6, 4, True]]


def test_a_small_send_that_is_over_before_its_receive_is_posted_has_no_transfer() -> None:
    rows = p2p_calls({"rank": 0, "kind": "send", "peer": 1, "at": (0, 3)}, {"rank": 1, "kind": "recv", "peer": 0, "at": (50, 52)})
    assert plain(pair(rows, {}).p2p, "transfer_ns", "send_wait_ns", "recv_wait_ns") == [[None, None, 0]]


def test_a_receive_that_ends_before_its_send_began_has_another_clock() -> None:
    rows = p2p_calls({"rank": 0, "kind": "send", "peer": 1, "at": (100, 110)}, {"rank": 1, "kind": "recv", "peer": 0, "at": (0, 10)})
    assert plain(pair(rows, {}).p2p, "transfer_ns", "send_wait_ns", "recv_wait_ns") == [[None, None, None]]


def test_the_other_end_of_a_missing_rank_is_null() -> None:
    got = pair(p2p_calls({"rank": 0, "kind": "send", "peer": 4, "at": (0, 3)}), {}).p2p
    assert plain(got, "src", "dst", "send_end_ns", "recv_end_ns", "transfer_ns", "matched_by") == [[0, 4, 3, None, None, "none"]]


def test_calls_without_a_peer_are_left_out_and_counted() -> None:
    got = pair(p2p_calls({"rank": 0, "kind": "send_recv", "at": (0, 3)}, {"rank": 0, "kind": "recv", "peer": None, "at": (0, 3)}), {})
    assert len(got.p2p) == 0
    assert [(f["code"], f["count"]) for f in got.findings] == [("p2p_peer_unknown", 2)]


def test_waits_across_clocks_that_differ_are_unknown() -> None:
    rows = p2p_calls({"rank": 0, "kind": "send", "peer": 1, "at": (0, 10)}, {"rank": 1, "kind": "recv", "peer": 0, "at": (4, 10)})
    assert plain(pair(rows, {}, skewed=frozenset({1})).p2p, "transfer_ns", "send_wait_ns", "recv_wait_ns") == [[None, None, None]]


def test_on_gloo_an_end_is_noticed_late_so_the_transfer_is_only_bounded_and_the_waits_stand() -> None:
    rows = p2p_calls(
        {"rank": 0, "kind": "send", "peer": 1, "at": (10, 900), "device_type": "cpu"},  # waited for at the end of the step
        {"rank": 1, "kind": "recv", "peer": 0, "at": (0, 500), "device_type": "cpu"},  # waited for after other work
    )
    got = plain(pair(rows, {}).p2p, "transfer_ns", "transfer_upper_bound_ns", "send_wait_ns", "recv_wait_ns")
    assert got == [[None, 490, 0, 10]]
