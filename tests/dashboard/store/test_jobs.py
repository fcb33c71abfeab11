"""Runs are read by children that may be killed, or kill, at any moment; real processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dashboard.jobs import servers
from dashboard.jobs.job import Job
from dashboard.jobs.messages import Progress
from dashboard.jobs.supervisor import Supervisor
from dashboard.library import Library, UploadedFile
from dashboard.settings import Settings
from dashboard.store import queue
from dashboard.store.rows import State
from tests.conftest import REPOSITORY
from tests.dashboard.store.conftest import trace

Upload = Callable[..., UploadedFile]
PATIENCE_S = 120.0


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """A library whose clock is the machine's: leases run out by it."""
    made = Library(Settings(tmp_path / "root", min_free_bytes=0, readers=1))
    yield made
    made.close()


@contextmanager
def supervised(library: Library, stored: Callable[[str], object] | None = None) -> Iterator[Supervisor]:
    supervisor = Supervisor(library, stored)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()


def until(library: Library, id: str, *wanted: State) -> State:
    """Wait for a state of a run."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        told = library.progress(id)
        assert told is not None
        if told.state in wanted:
            return told.state
        assert not told.state.ended, told.error
        time.sleep(0.02)
    raise AssertionError(f"{library.progress(id)} after {PATIENCE_S} s")


def children(of: int) -> list[int]:
    """Processes that a process has started, over whichever of its threads, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{of}/task").glob("*"):
        with suppress(FileNotFoundError):
            for pid in map(int, (task / "children").read_text().split()):
                found += [pid, *children(pid)]
    return found


def gone(pids: list[int]) -> bool:
    """Whether processes end within a moment."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if all(not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z" for pid in pids):
            return True
        time.sleep(0.05)
    return False


def error_of(library: Library, id: str) -> str:
    run = library.run(id)
    assert run is not None and run.state == State.FAILED and run.error is not None and "\n" not in run.error
    return run.error


def first_child(of: int) -> int:
    """The child that a supervisor in a process has started."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for pid in children(of):
            with suppress(FileNotFoundError):
                if b"dashboard.jobs.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        time.sleep(0.02)
    raise AssertionError("no child was started")


@contextmanager
def server(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "tests.dashboard.store.serving", str(root)], cwd=REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_server_may_be_killed_at_any_moment(library: Library, upload: Upload) -> None:
    id = library.create_run("x", "me", [upload("rank0.json", trace(0, 2)), upload("rank1.json", trace(1, 2))])
    for stage in (State.READING, State.ANALYSING):
        with server(library.settings.root) as process:
            until(library, id, stage)
            pid = first_child(process.pid)
            process.kill()
            process.wait()
            assert gone([pid]), "the child outlived its server"
        run = library.run(id)
        assert run is not None and (run.state, run.generation) == (stage, 0), "half-done is not shown as done"
    with server(library.settings.root):
        until(library, id, State.QUEUED, State.READING)
        until(library, id, State.READY)
    run, opened = library.run(id), library.analysis(id)
    assert run is not None and opened is not None
    assert (run.ranks, run.steps, run.partial, opened.partial, opened.run()["ranks"]) == (2, 2, False, False, [0, 1])
    assert {p.name for p in (library.folder(id) / "timelines").iterdir() if p.is_dir()} == {opened.folder.name.partition("-")[0]}
    assert set(library.timelines(id)) == {(0, 0), (1, 0)}


def test_what_is_cancelled_stops_and_only_what_is_stored_is_told(library: Library, upload: Upload) -> None:
    id = library.create_run("x", "me", [upload("rank0.json", trace(0))])
    told: list[str] = []
    with supervised(library, told.append):
        pid = first_child(os.getpid())
        assert library.cancel(id)
        assert gone([pid])
        assert until(library, id, State.CANCELLED)
        deleted = library.create_run("x", "me", [upload("rank0.json", trace(0, steps=3))])
        until(library, deleted, State.READING)
        pid = first_child(os.getpid())
        library.delete(deleted)
        assert gone([pid])
        assert told == []
        whole = library.create_run("x", "me", [upload("rank0.json", trace(0, steps=2))])
        until(library, whole, State.READY)
    assert told == [whole]
    run = library.run(id)
    assert run is not None and (run.state, run.error, library.run(deleted)) == (State.CANCELLED, None, None)


def test_a_server_that_ends_in_order_leaves_its_jobs_to_the_next(library: Library, upload: Upload) -> None:
    id = library.create_run("x", "me", [upload("rank0.json", trace(0))])
    with supervised(library):
        pid = first_child(os.getpid())
    assert gone([pid])
    with library.db.read() as db:
        told = queue.progress(db, id)
        assert told is not None and (told.state, queue.leases(db), queue.waiting(db)) == (State.QUEUED, [], 1)


def test_limits_end_a_reading_with_a_reason(library: Library, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    library.settings = dataclasses.replace(library.settings, job_seconds=0.2)
    slow = library.create_run("slow", "me", [upload("rank0.json", trace(0))])
    with supervised(library):
        with pytest.raises(AssertionError, match="took longer than the 200 ms that reading may take"):
            until(library, slow, State.READY)
        library.settings = dataclasses.replace(library.settings, job_seconds=None, job_memory_bytes=64 << 20)
        large = (
            trace(0)[:-2]
            + b"".join(b', {"ph": "X", "cat": "kernel", "name": "k%d", "pid": 0, "tid": 7, "ts": %d, "dur": 1}' % (n, n) for n in range(200_000))
            + b"]}"
        )
        bomb = library.create_run("bomb", "me", [upload("rank0.json", large)])
        with suppress(AssertionError):
            until(library, bomb, State.READY)
        assert "needs more memory to read than there is for it; start tracekit serve with a larger --job-memory" in error_of(library, bomb)
        library.settings = dataclasses.replace(library.settings, job_memory_bytes=None)
        killed = library.create_run("killed", "me", [upload("rank0.json", trace(0, steps=4))])
        os.kill(first_child(os.getpid()), signal.SIGKILL)
        with suppress(AssertionError):
            until(library, killed, State.READY)
        assert "was killed, most likely for want of memory" in error_of(library, killed)
        with monkeypatch.context() as full:
            full.setattr("dashboard.jobs.job.no_room", lambda *_: "the server's disk has 1 B left")
            none = library.create_run("no room", "me", [upload("rank0.json", trace(0, steps=5))])
            with suppress(AssertionError):
                until(library, none, State.READY)
        assert error_of(library, none) == "the server's disk has 1 B left"
    told = Job(library, killed, "w")
    told._progress = Progress("reading", "decodes rank3.json (1.0 GiB)")
    assert "want of memory (the last heard of it: decodes rank3.json (1.0 GiB)); upload fewer ranks" in told._ended(-9)


def test_a_machine_that_slept_goes_on_with_what_it_reads(library: Library, upload: Upload) -> None:
    id = library.create_run("x", "me", [upload("rank0.json", trace(0))])
    supervisor = Supervisor(library)
    worker, over = servers.worker(supervisor._server), threading.Event()
    with library.db.write() as db:
        queue.claim(db, worker, library.clock())
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    supervisor._jobs[worker] = (Job(library, id, worker), thread)
    library.clock = lambda: time.time() + 3600
    supervisor._take()
    over.set()
    with library.db.read() as db:
        assert queue.leases(db) == [(id, worker)]


def test_a_dead_server_is_told_from_a_living_one() -> None:
    own = servers.own()
    ended = subprocess.Popen(["true"])
    ended.wait()
    machine, pid, start, number = own.split(":")
    assert servers.is_own(servers.worker(own), own)
    assert not servers.is_dead(servers.worker(own), own)
    assert servers.is_dead(f"{machine}:{ended.pid}:{start}:{number}/x", own)
    assert servers.is_dead(f"{machine}:{pid}:1:{number}/x", own), "another process has its number now"
    assert not servers.is_dead(f"elsewhere:{ended.pid}:{start}:{number}/x", own)
    assert not servers.is_dead("nonsense", own)
