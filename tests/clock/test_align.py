"""What links two ranks' clocks, what does not, and what the waits are once all times are on one clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives.rows import facts
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.metrics import clock

US, MS = 1000, 10**6
Row = Mapping[str, Any]


def job_of(*ranks: tuple[Row, ...], p2p: Mapping[int, tuple[Row, ...]] | None = None, meta: Mapping[int, Row] | None = None) -> Job:
    """A job from the collective calls of rank 0, 1, …; all ranks in one group where a row does not say otherwise."""
    everyone = ",".join(map(str, range(len(ranks))))
    made = {}
    for rank, rows in enumerate(ranks):
        calls = [{"group_ranks": everyone, "seq": number, **row} for number, row in enumerate(rows)]
        made[rank, 0] = facts(rank, *calls, p2p=(p2p or {}).get(rank, ()), **(meta or {}).get(rank, {}))
    return build(made)


def offsets(job: Job) -> list[int]:
    return [int(v) for v in job.clocks["offset_ns"]]


def waits(job: Job) -> list[tuple[int, int | None]]:
    """(rank, wait) of every call in order of instance."""
    return [(int(r), None if pd.isna(w) else int(w)) for r, w in job.by_rank[["rank", "wait_ns"]].itertuples(index=False)]


def codes(job: Job) -> list[str]:
    return [f["code"] for f in job.findings if f["code"].startswith("clock")]


def calls(*ends: tuple[int, int], ahead: int = 0) -> tuple[Row, ...]:
    return tuple({"at": (start + ahead, end + ahead)} for start, end in ends)


def test_a_clock_that_runs_five_ms_ahead_is_set_back() -> None:
    #   rank 0  |==wait==|--moves--|               0 .. 300 µs
    #   rank 1           |--moves--|   + 4.9 ms  100 .. 300 µs
    job = job_of(calls((0, 300 * US), (MS, MS + 250 * US)), calls((100 * US, 300 * US), (MS + 50 * US, MS + 250 * US), ahead=4900 * US))
    assert offsets(job) == [0, 4900 * US]
    assert waits(job) == [(0, 100 * US), (1, 0), (0, 50 * US), (1, 0)]
    assert job.instances["transfer_ns"].tolist() == [200 * US, 200 * US]
    assert codes(job) == ["clocks_aligned"]
    assert "clocks of rank 1 differ from rank 0's by up to 4.90 ms" in job.findings[-1]["message"]
    assert job.table("calls")["start_ns"].tolist() == [0, MS, 100 * US, MS + 50 * US]


def test_ranks_of_one_group_that_differ_alike_are_set_back_each_by_its_own() -> None:
    even = [(MS * i, MS * i + 300 * US) for i in range(6)]
    job = job_of(calls(*even), calls(*even, ahead=3 * MS), calls(*even, ahead=-7 * MS))
    assert offsets(job) == [0, 3 * MS, -7 * MS]
    assert {w for _, w in waits(job)} == {0}


def test_a_group_reached_through_another_is_aligned_too() -> None:
    even = [(MS * i, MS * i + 300 * US) for i in range(6)]
    low = tuple({**row, "group_ranks": "0,1"} for row in calls(*even))
    both = tuple({**row, "group_ranks": "0,1"} for row in calls(*even, ahead=MS)) + tuple(
        {**row, "group": "dp", "group_ranks": "1,2", "seq": i} for i, row in enumerate(calls(*even, ahead=MS + 10 * MS))
    )
    high = tuple({**row, "group": "dp", "group_ranks": "1,2"} for row in calls(*even, ahead=4 * MS + 10 * MS))
    assert offsets(job_of(low, both, high)) == [0, MS, 4 * MS]


def test_on_one_host_a_difference_of_microseconds_is_left_alone() -> None:
    even = [(MS * i, MS * i + 300 * US) for i in range(6)]
    ranks = (calls(*even), calls(*even, ahead=8 * US))
    assert offsets(job_of(*ranks, meta={r: {"host": "a"} for r in (0, 1)})) == [0, 0]
    assert offsets(job_of(*ranks, meta={0: {"host": "a"}, 1: {"host": "b"}})) == [0, 8 * US]


def test_processes_on_one_cpu_share_its_clock_however_their_calls_end() -> None:
    rows = (calls((0, 100), (MS, MS + 100)), calls((50, 9 * MS), (MS + 7, 12 * MS)))
    job = job_of(*rows, meta={r: {"device_type": "cpu"} for r in (0, 1)})
    assert offsets(job) == [0, 0]
    assert waits(job) == [(0, 50), (1, 0), (0, 7), (1, 0)]
    assert job.instances["wait_resolution_ns"].tolist() == [0, 0]
    assert job.clocks[["clock", "residual_ns"]].values.tolist() == [[0, 0], [0, 0]]
    assert codes(job) == []


def test_a_job_whose_clocks_agree_keeps_its_facts_as_they_are() -> None:
    even = [(MS * i, MS * i + 300 * US) for i in range(6)]
    given_facts = {(r, 0): facts(r, *({"seq": i, **row} for i, row in enumerate(calls(*even)))) for r in (0, 1)}
    assert all(build(given_facts).ranks[key] is one for key, one in given_facts.items())


def test_one_common_end_moves_no_clock_by_less_than_chance_would() -> None:
    job = job_of(calls((0, 300 * US)), calls((0, 360 * US)))
    assert offsets(job) == [0, 0]
    assert job.clocks["residual_ns"].isna().all()
    assert job.instances["wait_resolution_ns"].isna().all()


def test_what_was_matched_by_common_ends_moves_no_clock() -> None:
    rows = tuple({**row, "group": None, "group_ranks": None, "seq": None} for row in calls((0, 300 * US), (MS, MS + 250 * US)))
    late = tuple({**row, "at": (row["at"][0], row["at"][1] + 5 * US)} for row in rows)
    job = job_of(rows, late)
    assert job.instances["matched_by"].tolist() == ["ends", "ends"]
    assert (offsets(job), job.clocks["source"].tolist()) == ([0, 0], ["reference", "ends"])


def test_ranks_on_other_hosts_that_nothing_links_are_named() -> None:
    alone = ({"at": (0, 9), "group_ranks": "0"},), ({"at": (0, 9), "group_ranks": "1"},)
    job = job_of(*alone, meta={0: {"host": "a"}, 1: {"host": "b"}})
    assert codes(job) == ["clocks_not_aligned"]
    assert job.clocks[["reference_rank", "source"]].values.tolist() == [[0, "none"], [1, "none"]]
    assert not clock.compute(job).available


def send(peer: int, start: int, end: int, **more: Any) -> Row:
    return {"kind": "send", "peer": peer, "at": (start, end), **more}


def recv(peer: int, start: int, end: int, **more: Any) -> Row:
    return {"kind": "recv", "peer": peer, "at": (start, end), **more}


def test_sends_that_go_both_ways_and_end_together_link_two_ranks() -> None:
    #   activations 0 -> 1, gradients 1 -> 0; rank 1's clock runs 2 ms ahead
    a, b = 2 * MS, 100 * US
    at = [i * MS for i in range(4)]
    zero = tuple(x for t in at for x in (send(1, t, t + b), recv(1, t + 3 * b, t + 6 * b)))
    one = tuple(x for t in at for x in (recv(0, t + a - b // 2, t + a + b), send(0, t + a + 5 * b, t + a + 6 * b)))
    job = job_of((), (), p2p={0: zero, 1: one})
    assert (offsets(job), job.clocks["source"].tolist()) == ([0, a], ["reference", "sends"])
    first = job.p2p[job.p2p["src"].eq(0)].iloc[0]
    assert (first["recv_wait_ns"], first["send_wait_ns"], first["transfer_ns"]) == (b // 2, 0, b)
    back = job.p2p[job.p2p["src"].eq(1)].iloc[0]
    assert (back["recv_wait_ns"], back["send_wait_ns"], back["transfer_ns"]) == (2 * b, 0, b)


def test_where_sends_do_not_wait_for_their_receives_causality_bounds_the_offset() -> None:
    #   a send is over at once, its receive 300 µs later: ends tell nothing, but 3 ms cannot be 0
    a, lag = 3 * MS, 300 * US
    at = [i * 10 * MS for i in range(6)]
    zero = tuple(x for t in at for x in (send(1, t, t + US), recv(1, t + MS, t + 2 * MS + lag)))
    one = tuple(x for t in at for x in (recv(0, t + a, t + a + lag), send(0, t + a + 2 * MS, t + a + 2 * MS + US)))
    job = job_of((), (), p2p={0: zero, 1: one})
    table = job.clocks
    assert table["source"].tolist() == ["reference", "bounds"]
    assert abs(int(table["offset_ns"][1]) - a) <= int(table["residual_ns"][1]) <= lag


def test_sends_that_go_one_way_only_link_nothing() -> None:
    zero = tuple(send(1, i * MS, i * MS + 100 * US) for i in range(4))
    one = tuple(recv(0, i * MS, i * MS + 100 * US) for i in range(4))
    hosts = {0: {"host": "a"}, 1: {"host": "b"}}
    apart, unnamed = job_of((), (), p2p={0: zero, 1: one}, meta=hosts), job_of((), (), p2p={0: zero, 1: one})
    assert apart.clocks["reference_rank"].tolist() == unnamed.clocks["reference_rank"].tolist() == [0, 1]
    # on two hosts nothing is known of the wait; where no host is named one clock is assumed, as ever
    assert apart.p2p["recv_wait_ns"].isna().all()
    assert unnamed.p2p["recv_wait_ns"].tolist() == [0] * 4
    assert unnamed.p2p["wait_resolution_ns"].isna().all()


@st.composite
def schedules(draw: st.DrawFn) -> tuple[list[list[tuple[int, ...]]], list[list[int]], int, int]:
    """Collectives (their ranks) of 4 ranks in order, how late each rank is for each, the rank whose clock is moved, and by how much."""
    groups = [(0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3)]
    chosen = draw(st.lists(st.sampled_from(groups), min_size=1, max_size=6))
    late = [[draw(st.integers(0, 400)) for _ in range(4)] for _ in range(3 * len(chosen))]
    return [[g] * 3 for g in chosen], late, draw(st.integers(0, 3)), draw(st.integers(1, 50)) * draw(st.sampled_from([-1, 1])) * MS


def simulated(chosen: list[list[tuple[int, ...]]], late: list[list[int]], moved: int, by: int) -> Job:
    rows: dict[int, list[Row]] = {r: [] for r in range(4)}
    for number, group in enumerate(g for same in chosen for g in same):
        start = {r: 10_000 * number + late[number][r] for r in group}
        end = max(start.values()) + 700
        for r in group:
            shift = by if r == moved else 0
            rows[r].append({"at": (start[r] + shift, end + shift), "group": "g", "group_ranks": ",".join(map(str, group)), "seq": number})
    return job_of(*(tuple(rows[r]) for r in range(4)))


@settings(max_examples=8)
@given(schedules())
def test_moving_one_clock_changes_no_wait(drawn: tuple[list[list[tuple[int, ...]]], list[list[int]], int, int]) -> None:
    chosen, late, moved, by = drawn
    still, other = simulated(chosen, late, moved, 0), simulated(chosen, late, moved, by)
    columns = ["instance", "rank", "wait_ns", "transfer_ns"]
    both = [job.by_rank[columns].sort_values(["instance", "rank"], ignore_index=True) for job in (still, other)]
    pd.testing.assert_frame_equal(*both)
    assert (still.instances["transfer_ns"].dropna() == 700).all()
