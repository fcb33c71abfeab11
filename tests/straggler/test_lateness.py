"""The last rank of each collective, and what had held it up."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from tests.straggler.drawings import Do, compute, idle, meet, recv, send, simulate
from tracekit.job.base import Job
from tracekit.job.lateness import arrivals, late_ranks


def late(job: Job, group: str) -> list[tuple[int | None, int, str | None, int | None]]:
    """(last rank, lead, cause, rank waited for) of a group's collectives, in order."""
    table = late_ranks(job, arrivals(job))
    rows = table[table["group_ranks"].eq(group)].sort_values("instance")
    columns = rows[["last_rank", "lead_ns", "cause", "waits_for"]].astype(object)
    return [tuple(row) for row in columns.where(columns.notna(), None).itertuples(index=False)]


def test_the_rank_that_computes_longer_is_slow() -> None:
    #   rank 0  ==|all_reduce     |====|all_reduce  |
    #   rank 1  ==|all_reduce     |=======|all_reduce|
    job = simulate([[meet("0,1"), compute(400), meet("0,1")], [meet("0,1"), compute(700), meet("0,1")]])
    assert late(job, "0,1") == [(None, 0, None, None), (1, 300, "slow_compute", None)]


def test_the_rank_whose_device_stands_idle_was_launched_late() -> None:
    job = simulate([[meet("0,1"), compute(400), meet("0,1")], [meet("0,1"), compute(400), idle(250), meet("0,1")]])
    assert late(job, "0,1")[1] == (1, 250, "late_launch", None)


def test_the_rank_that_was_held_in_another_group_waits_elsewhere() -> None:
    #   rank 1 meets rank 2, which computes for long, before it comes back to rank 0
    programs = [
        [meet("0,1"), compute(300), meet("0,1")],
        [meet("0,1"), compute(100), meet("1,2"), compute(100), meet("0,1")],
        [compute(900), meet("1,2")],
    ]
    assert late(simulate(programs), "0,1")[1] == (1, 700, "waits_elsewhere", 2)


def test_a_receive_names_the_sender_that_was_waited_for() -> None:
    programs = [
        [meet("0,1", desc="mesh_tp"), compute(300), meet("0,1", desc="mesh_tp")],
        [meet("0,1", desc="mesh_tp"), recv(2), compute(300), meet("0,1", desc="mesh_tp")],
        [compute(700), send(1)],
    ]
    assert late(simulate(programs), "0,1")[1] == (1, 700, "waits_elsewhere", 2)


def test_most_bytes_of_an_uneven_all_to_all_are_too_many_tokens() -> None:
    def rank(ns: int, nbytes: int) -> list[Do]:
        return [meet("0,1,2", kind="all_to_all", nbytes=100), compute(ns), meet("0,1,2", kind="all_to_all", nbytes=nbytes)]

    assert late(simulate([rank(100, 100), rank(300, 300), rank(120, 120)]), "0,1,2")[1] == (1, 180, "token_imbalance", None)
    # a fifth more is no imbalance: it just computed for longer
    assert late(simulate([rank(100, 100), rank(300, 119), rank(120, 100)]), "0,1,2")[1] == (1, 180, "slow_compute", None)


def test_a_rank_that_came_late_is_late_again_for_the_same_cause() -> None:
    #   rank 0 computes under the first call while rank 1 is not there; rank 1 has that compute still to do
    programs = [
        [meet("0,1"), compute(100), meet("0,1", under=300), compute(100), meet("0,1")],
        [meet("0,1"), idle(500), compute(100), meet("0,1", under=300), compute(100), meet("0,1")],
    ]
    assert late(simulate(programs), "0,1")[1:] == [(1, 500, "late_launch", None), (1, 200, "late_launch", None)]


def test_the_first_collective_has_nothing_before_it() -> None:
    job = simulate([[compute(10), meet("0,1")], [compute(90), meet("0,1")]])
    assert late(job, "0,1") == [(1, 80, "unknown", None)]


def test_two_that_come_last_together_leave_nobody_to_blame() -> None:
    job = simulate([[compute(10), meet("0,1,2")], [compute(90), meet("0,1,2")], [compute(90), meet("0,1,2")]])
    assert late(job, "0,1,2") == [(None, 0, None, None)]


def test_a_lead_that_the_clocks_cannot_tell_is_none() -> None:
    job = simulate([[meet("0,1"), compute(400), meet("0,1")], [meet("0,1"), compute(700), meet("0,1")]])
    blurred = job.instances.assign(wait_resolution_ns=pd.array([300] * len(job.instances), "Int64"))
    assert [row[0] for row in late(replace(job, instances=blurred), "0,1")] == [None, None]


def test_lateness_is_counted_from_the_median_start() -> None:
    job = simulate([[compute(ns), meet("0,1,2")] for ns in (100, 130, 400)])
    assert arrivals(job)["lateness_ns"].tolist() == [-30, 0, 270]


def test_groups_across_stages_of_a_pipeline_are_not_compared() -> None:
    programs = [[compute(100), send(1), compute(500), meet("0,1")], [recv(0), compute(50), meet("0,1")]]
    assert len(arrivals(simulate(programs, world_size=2))) == 0


def test_a_group_with_a_rank_missing_is_left_out() -> None:
    job = simulate([[compute(100), meet("0,1")], [compute(50), meet("0,1")]])
    whole = arrivals(job)
    part = replace(job, instances=job.instances.assign(wait_is_lower_bound=True))
    assert (len(whole), len(arrivals(part))) == (2, 0)
