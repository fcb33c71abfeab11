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
from tracekit.baselines.store import GRACE_NS, window
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
    old, objects = store.prune(2, now=time.time_ns() + 2 * GRACE_NS)
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


def spoil(store, entry):
    """Another content under an object's name."""
    name = f"objects/{entry.snapshot[:2]}/{entry.snapshot}.json"
    store.files.write([(name, b"{}")], "spoil")
    with pytest.raises(InputError, match="damaged"):
        store.snapshot(entry)


def test_adding_a_run_again_mends_its_damaged_object(place):
    store = open_store(place)
    entry = store.add([run()], "s", "c", now=1)[0]
    spoil(store, entry)
    store.add([run()], "s", "c", now=1)
    assert store.snapshot(entry).timed == run().timed


def test_pruning_forgets_runs_whose_object_is_damaged_or_gone(place):
    store = open_store(place)
    entries = store.add([run(100), run(101), run(102)], "s", "c", now=1)
    spoil(store, entries[0])
    store.files.delete([f"objects/{entries[1].snapshot[:2]}/{entries[1].snapshot}.json"], "lose")
    assert {e.snapshot for e in store.prune(10)[0]} == {e.snapshot for e in entries[:2]}
    assert [e.snapshot for e in store.entries()[0]] == [entries[2].snapshot]


def test_an_object_that_was_just_added_again_is_not_pruned_from_under_its_job(tmp_path):
    store = open_store(str(tmp_path))
    entry = store.add([run()], "s", "c0", now=1)[0]
    store.add([run(101)], "s", "c1", now=2)
    path = tmp_path / f"objects/{entry.snapshot[:2]}/{entry.snapshot}.json"
    os.utime(path, (1, 1))
    # another job has written its object, and not yet its entry
    store.files.write([(str(path.relative_to(tmp_path)), run().to_json().encode())], "")
    assert store.prune(1)[0] == [entry] and path.exists()


def test_a_branch_is_the_same_from_any_folder_of_its_repository(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "sub").mkdir()
    for n, folder in enumerate((tmp_path, tmp_path / "sub")):
        open_store("git:baselines", folder).add([run(100 + n)], "s", f"c{n}", now=n)
    assert [len(open_store("git:baselines", f).entries()[0]) for f in (tmp_path, tmp_path / "sub")] == [2, 2]


def test_pruning_a_branch_that_is_not_there_makes_none(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert open_store("git:none", tmp_path).prune(3) == ([], 0)
    assert not subprocess.run(["git", "branch", "--list"], cwd=tmp_path, capture_output=True, check=True).stdout


def test_a_commit_that_no_message_can_hold_is_cleaned(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert open_store("git:baselines", tmp_path).add([run()], "s", "a\0b", reason="two\nlines", now=1)[0].commit == "a\0b"


def test_deleting_what_is_gone_with_its_folder_is_no_error(tmp_path):
    store = open_store(str(tmp_path))
    store.add([run()], "s", "c", now=1)
    store.files.delete(["objects/zz/gone.json", "entries/no/such/entry.json"], "")
    assert len(store.entries()[0]) == 1


@pytest.mark.parametrize("module", ["files", "branch"])
def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch, module):
    import importlib

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    store = open_store("git:baselines" if module == "branch" else str(tmp_path / "store"), tmp_path)
    entry = store.add([run()], "s", "c", now=1)[0]
    monkeypatch.setattr(importlib.import_module(f"tracekit.baselines.{module}"), "MAX_BYTES", 100)
    with pytest.raises(InputError, match="larger than 100 bytes"):
        store.snapshot(entry)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "a//b", ".hidden", "a/.git/config", "a\nb", "a\n", "x" * 200, ""])
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
    assert store.prune(10, now=now + 2 * GRACE_NS)[1] == 1
    assert len(Folder(tmp_path).names("objects")) == 1 and len(store.entries()[0]) == 1


def test_a_file_of_the_store_holds_no_time_or_place_but_the_runs_own(tmp_path):
    store = open_store(str(tmp_path))
    one = replace(run(), about={"source": "x"})
    entry = store.add([one], "s", "c", now=1)[0]
    assert json.loads(store.files.read(f"objects/{entry.snapshot[:2]}/{entry.snapshot}.json")) == json.loads(one.to_json())
