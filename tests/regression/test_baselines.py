"""Kept runs: by content, whole or not at all, whoever else writes at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace

import pytest

from tests.regression.documents import report
from tracekit.baselines import open_store
from tracekit.baselines.files import Folder, checked
from tracekit.baselines.store import window
from tracekit.compare import snapshot
from tracekit.errors import InputError, UsageError


def run(step_ms: float = 100.0):
    return snapshot(report(step_ms=step_ms), f"run of {step_ms}")


@pytest.fixture(params=["folder", "branch", "memory"])
def place(request, tmp_path, monkeypatch):
    """The name of an empty store of each kind."""
    monkeypatch.chdir(tmp_path)
    if request.param == "branch":
        subprocess.run(["git", "init", "-q", "."], check=True)
        return "git:baselines"
    return str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid.uuid4()}"


def test_what_is_kept_is_found_again(place):
    store = open_store(place)
    assert store.entries() == ([], [])
    store.add([run(100), run(101)], "tp 2/x", "c1", now=1)
    store.add([run(102)], "other", "c2", now=9)
    found, wrong = open_store(place).entries("tp 2/x")
    assert [(e.commit, e.created) for e in found] == [("c1", 1), ("c1", 2)] and not wrong
    assert store.snapshot(found[1]).timed == run(101).timed
    assert len(store.entries()[0]) == 3


def test_the_same_run_is_stored_once(place):
    store = open_store(place)
    store.add([run()], "s", "c1", now=1)
    store.add([run()], "s", "c2", now=2)
    assert len(store.files.names("objects")) == 1 and len(store.entries()[0]) == 2


def test_pruning_keeps_the_last_commits_and_what_they_point_to(place):
    store = open_store(place)
    for n in range(6):
        store.add([run(100 + n), run(200 + n)], "s", f"c{n}", now=10 * n)
    old, objects = store.prune(2)
    assert (len(old), objects) == (8, 8)
    assert [e.commit for e in store.entries()[0]] == ["c4", "c4", "c5", "c5"]
    assert [store.snapshot(e).about["source"] for e in store.entries()[0]] == ["run of 104", "run of 204", "run of 105", "run of 205"]


def test_what_was_before_an_accepted_run_no_longer_counts(tmp_path):
    store = open_store(str(tmp_path))
    for n in range(3):
        store.add([run(100 + n)], "s", f"c{n}", now=n)
    store.add([run(120)], "s", "c3", reason="larger batch", now=3)
    for n in (4, 5, 6):
        store.add([run(100 + n)], "s", f"c{n}", now=n)
    entries = store.entries("s")[0]
    assert [c for c, _ in window(entries, 10)] == ["c3", "c4", "c5", "c6"]
    assert [c for c, _ in window(entries, 2)] == ["c3", "c6"]
    assert entries[3].reason == "larger batch"


def test_a_damaged_object_is_refused_and_a_damaged_entry_left_out(tmp_path):
    store = open_store(str(tmp_path))
    entry = store.add([run()], "s", "c", now=1)[0]
    (tmp_path / f"objects/{entry.snapshot[:2]}/{entry.snapshot}.json").write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        store.snapshot(entry)
    (tmp_path / entry.name).write_text('{"schema": "tracekit.baseline/1", "snapshot": "../../../etc/passwd"}')
    assert store.entries()[0] == [] and len(store.entries()[1]) == 1


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "a//b", ".hidden", "a/.git/config", "a\nb", "x" * 200, ""])
def test_no_name_leaves_the_store(name):
    with pytest.raises(InputError):
        checked(name)


@pytest.mark.parametrize("place", ["", "git:-x", "git:a..b", "nothing://x"])
def test_a_place_that_makes_no_sense_is_refused(place, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(UsageError):
        open_store(place, tmp_path)


def keep(place: str, folder: str, worker: int, commits: int) -> None:
    os.chdir(folder)
    for n in range(commits):
        open_store(place).add([run(100 + 10 * worker + n)], "s", f"w{worker}-{n}")
        if not place.startswith("git:"):
            open_store(place).prune(1000)


@pytest.mark.parametrize("kind", ["folder", "branch"])
def test_jobs_that_write_at_once_lose_nothing(tmp_path, kind):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    place = "git:baselines" if kind == "branch" else str(tmp_path / "store")
    context = multiprocessing.get_context("spawn")
    jobs = [context.Process(target=keep, args=(place, str(tmp_path), worker, 4)) for worker in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    store = open_store(place, tmp_path)
    entries, wrong = store.entries()
    assert [j.exitcode for j in jobs] == [0, 0, 0] and not wrong
    assert sorted(e.commit for e in entries) == sorted(f"w{w}-{n}" for w in range(3) for n in range(4))
    assert all(store.snapshot(e).timed for e in entries)


WRITER = """
import sys
from tests.regression.test_baselines import run
from tracekit.baselines import open_store
print("ready", flush=True)
for n in range(100000):
    open_store(sys.argv[1]).add([run(100 + n)], "s", f"c{n}")
"""


def test_a_killed_job_leaves_a_store_that_can_be_read(tmp_path):
    from tests.conftest import REPOSITORY

    place = tmp_path / "store"
    job = subprocess.Popen([sys.executable, "-c", WRITER, str(place)], cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert job.stdout is not None and job.stdout.readline() == b"ready\n"
    until = time.monotonic() + 20
    while time.monotonic() < until and len(list(place.glob("entries/*/*/*.json"))) < 5:
        time.sleep(0.02)
    job.send_signal(signal.SIGKILL)
    job.wait()
    job.stdout.close()
    store = open_store(str(place))
    entries, wrong = store.entries()
    assert len(entries) >= 5 and not wrong
    assert all(store.snapshot(e).timed for e in entries)


def test_what_a_killed_job_left_is_taken_away_later(tmp_path):
    store = open_store(str(tmp_path))
    store.add([run()], "s", "c", now=1)
    orphan = "objects/ab/" + "ab" * 32 + ".json"
    store.files.write([(orphan, b"{}")], "")
    now = time.time_ns()
    assert store.prune(10, now=now)[1] == 0
    assert store.prune(10, now=now + 2 * 3600 * 10**9)[1] == 1
    assert len(Folder(tmp_path).names("objects")) == 1 and len(store.entries()[0]) == 1


def test_a_file_of_the_store_holds_no_time_or_place_but_the_runs_own(tmp_path):
    store = open_store(str(tmp_path))
    one = replace(run(), about={"source": "x"})
    entry = store.add([one], "s", "c", now=1)[0]
    assert json.loads(store.files.read(f"objects/{entry.snapshot[:2]}/{entry.snapshot}.json")) == json.loads(one.to_json())
