"""A job is read by one server at a time, and by another one when that is gone; on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from dashboard.store import queue, runs
from dashboard.store.database import Database
from dashboard.store.rows import State, Summary

A, B = "a" * 32, "b" * 32
SUMMARY = Summary(ranks=2, steps=3, step_ns=5.5, peak_bytes=2**40, bubble_ratio=None, verdict="ok", headline="Fine.")


@pytest.fixture(autouse=True)
def two_runs(database: Database) -> None:
    with database.write() as db:
        for number, id in enumerate((A, B)):
            runs.add(db, id, id[0], "me", id, [runs.FileRow("a", "a", 1, "x")], 100.0 + number)
            queue.put(db, id, 100.0 + number)


def state(db: Connection, id: str) -> State:
    found = queue.progress(db, id)
    assert found is not None
    return found.state


def test_who_came_first_is_read_first(database: Database) -> None:
    with database.write() as db:
        assert (queue.waiting(db), queue.waiting_before(db, B)) == (2, 1)
        assert [queue.claim(db, f"w{n}", 200.0) for n in range(3)] == [A, B, None]
        assert state(db, A) == "reading"


def test_progress_and_results_are_seen(database: Database) -> None:
    with database.write() as db:
        queue.claim(db, "w", 200.0)
        assert queue.renew(db, A, "w", 201.0, stage=State.ANALYSING, done=2, total=2, events=10, events_per_s=5.0, seconds_left=None, ranks_read=[1, 0])
        assert queue.publish(db, A, "w", "folder-0", SUMMARY, True, 999)
        found, run = queue.progress(db, A), runs.one(db, A)
        assert found is not None and (found.state, found.done, found.ranks_read, found.events_per_s) == ("analysing", 2, (0, 1), 5.0)
        assert run is not None and (run.generation, run.partial, run.ranks, run.peak_bytes, run.bubble_ratio) == (1, True, 2, 2**40, None)
        assert queue.publish(db, A, "w", "folder-full", SUMMARY, False, 1000)
        assert queue.end(db, A, "w", State.READY)
        assert (state(db, A), runs.analysis_of(db, A)) == ("ready", ("folder-full", 2))


def test_an_analysis_of_some_ranks_never_takes_the_place_of_one_of_all(database: Database) -> None:
    with database.write() as db:
        for folder, partial, shown in (("0", True, "0"), ("1", True, "1"), ("full", False, "full"), ("2", True, "full"), ("new", False, "new")):
            queue.put(db, A, 0.0)
            assert queue.claim(db, "w", 200.0) == A
            assert queue.publish(db, A, "w", folder, SUMMARY, partial, 1)
            found, run = runs.analysis_of(db, A), runs.one(db, A)
            assert found is not None and run is not None and (found[0], run.partial) == (shown, shown in ("0", "1"))


def test_a_lease_that_ran_out_is_anothers_and_the_first_can_do_no_more(database: Database) -> None:
    with database.write() as db:
        queue.claim(db, "w1", 200.0)
        assert not queue.overdue(db, 200.0 + queue.LEASE_S)
        assert queue.reclaim(db, 200.0 + queue.LEASE_S) == 0
        assert queue.overdue(db, 201.0 + queue.LEASE_S)
        assert queue.reclaim(db, 201.0 + queue.LEASE_S) == 1
        assert state(db, A) == "queued"
        assert queue.claim(db, "w2", 300.0) == A
        assert not queue.renew(db, A, "w1", 301.0)
        assert not queue.publish(db, A, "w1", "late", SUMMARY, False, 1)
        assert not queue.end(db, A, "w1", State.FAILED, "late")
        assert not queue.release(db, A, "w1")
        assert (state(db, A), runs.analysis_of(db, A)) == ("reading", None)


def test_a_lease_whose_work_goes_on_outlives_a_jump_of_the_clock(database: Database) -> None:
    with database.write() as db:
        queue.claim(db, "w1", 200.0)
        assert not queue.overdue(db, 9000.0, ["w1"]) and queue.overdue(db, 9000.0, ["w2"])
        assert queue.reclaim(db, 9000.0, [], ["w1"]) == 0
        assert queue.renew(db, A, "w1", 9000.0, stage=State.READING)


def test_a_job_that_ended_says_in_which_stage(database: Database) -> None:
    with database.write() as db:
        stages = []
        for stage in (None, State.READING, State.ANALYSING):
            for end in ("failed", "cancelled"):
                queue.put(db, A, 0.0)
                if stage is not None:
                    queue.claim(db, "w", 200.0)
                    queue.renew(db, A, "w", 201.0, stage=stage, done=2, total=2)
                if end == "cancelled":
                    queue.cancel(db, A)
                elif stage is not None:
                    queue.end(db, A, "w", State.FAILED, "why")
                found = queue.progress(db, A)
                assert found is not None
                stages.append((str(found.state), found.stage))
        assert stages == [
            ("queued", "queued"),
            ("cancelled", "queued"),
            ("failed", "reading"),
            ("cancelled", "reading"),
            ("failed", "analysing"),
            ("cancelled", "analysing"),
        ]


def test_what_ends_every_server_is_given_up(database: Database) -> None:
    with database.write() as db:
        for attempt in range(queue.MOST_ATTEMPTS):
            assert queue.claim(db, f"w{attempt}", 200.0) == A
            assert queue.leases(db) == [(A, f"w{attempt}")]
            assert queue.reclaim(db, 200.0, [f"w{attempt}"]) == 1
        found = queue.progress(db, A)
        assert found is not None and found.state == "failed" and "begun 3 times" in str(found.error)
        assert queue.claim(db, "w", 200.0) == B


def test_a_server_that_ends_in_order_counts_as_no_attempt(database: Database) -> None:
    with database.write() as db:
        for attempt in range(queue.MOST_ATTEMPTS + 1):
            assert queue.claim(db, f"w{attempt}", 200.0) == A
            assert queue.release(db, A, f"w{attempt}")
        assert state(db, A) == "queued"


@pytest.mark.parametrize("begun", [True, False])
def test_cancelled_means_never_read_again_until_asked_for(begun: bool, database: Database) -> None:
    with database.write() as db:
        if begun:
            queue.claim(db, "w", 200.0)
        assert queue.cancel(db, A)
        assert not queue.cancel(db, A)
        assert (state(db, A), queue.renew(db, A, "w", 201.0)) == ("cancelled", False)
        assert not queue.end(db, A, "w", State.READY)
        queue.let_go(db, A, "w")
        assert (queue.leases(db), queue.claim(db, "w2", 202.0), queue.claim(db, "w3", 202.0)) == ([], B, None)
        queue.put(db, A, 300.0)
        assert (queue.claim(db, "w4", 301.0), state(db, A)) == (A, "reading")
