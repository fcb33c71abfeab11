"""The library keeps what it is given, under names of its own, and within its limits."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from dashboard.library import Library, NoRoom, UnknownRun, UploadedFile
from dashboard.settings import Settings
from dashboard.store import folders, queue, runs
from dashboard.store.database import StoreFull
from dashboard.store.folders import size_of
from dashboard.store.rows import State, Summary
from dashboard.store.runs import change
from dashboard.uploads.spool import Spool
from tests.dashboard.store.conftest import DAY, Clock
from tests.dashboard.store.test_stored import Written
from tracekit import stored
from tracekit.errors import InputError, UsageError

Upload = Callable[..., UploadedFile]


def finish(library: Library, id: str, rows: int = 1, name: str = "full") -> None:
    """As if the run had been read."""
    folder = library.folder(id)
    stored.save(Written(pd.DataFrame({"rank": range(rows)})), folder / "analyses" / name)
    with library.db.write() as db:
        assert queue.claim(db, "w", library.clock()) == id
        queue.publish(db, id, "w", name, Summary(1, 2, 3.0, None, 0.5, "ok", "Fine."), False, 50)
        queue.end(db, id, "w", State.READY)


def names(library: Library, **asked: Any) -> list[str]:
    return [r.name for r in library.runs(**asked)]


def test_a_run_is_listed_with_what_was_uploaded(library: Library, upload: Upload, clock: Clock) -> None:
    id = library.create_run("", "me", [upload("job 7/rank0.json", b"0"), upload("job 7/rank1.json", b"11")])
    run = library.run(id)
    assert run is not None
    assert (run.name, run.owner, run.state, run.nbytes, run.generation) == ("job 7", "me", State.QUEUED, 3, 0)
    assert run.created_at.tzinfo is UTC and abs(run.created_at.timestamp() - clock.now) < 1
    assert [(f.place, f.label, f.nbytes) for f in library.files(id)] == [
        ("job_7/rank0.json", "job 7/rank0.json", 1),
        ("job_7/rank1.json", "job 7/rank1.json", 2),
    ]
    assert (library.folder(id) / "files" / "job_7" / "rank1.json").read_bytes() == b"11"
    assert library.analysis(id) is None and library.timelines(id) == {}
    told = library.progress(id)
    assert told is not None and (told.state, told.message) == ("queued", "waits for its turn")


def test_the_same_contents_are_the_same_run(library: Library, upload: Upload) -> None:
    first = library.create_run("a", "me", [upload("x/rank0.json", b"0"), upload("x/rank1.json", b"1")])
    assert library.create_run("b", "you", [upload("y/rank-1.json", b"1"), upload("y/rank-0.json", b"0")]) == first
    # a name that makes another rank of it makes another run of it: this is what "rename them like rank3.json" asks for
    assert library.create_run("c", "me", [upload("x/rank0.json", b"0"), upload("x/rank2.json", b"1")]) != first
    library.cancel(first)
    again = library.create_run("a", "me", [upload("x/rank0.json", b"0"), upload("x/rank1.json", b"1")])
    assert again != first
    assert len(list(library.settings.runs.iterdir())) == 3


@pytest.mark.parametrize("label", ["../../etc/passwd", "/etc/passwd", "a/../b.json", "C:\\x.json", "", ".ssh/key", "a\0b.json", "a\u202eb.json"])
def test_hostile_labels_are_refused(label: str, library: Library, upload: Upload) -> None:
    with pytest.raises(InputError):
        library.create_run("x", "me", [upload(label)])
    assert (library.runs(), list(library.settings.runs.iterdir())) == ([], [])


def test_what_is_odd_in_a_name_stays_a_label(library: Library, upload: Upload) -> None:
    id = library.create_run(
        "<b>x</b>\n\x1b[31m'; DROP TABLE runs; --" + "y" * 500, "me", [upload("=cmd|' /C calc'!A0.json", b"1"), upload("<img src=x>.json", b"2")]
    )
    run = library.run(id)
    assert run is not None and run.name.startswith("<b>x</b> [31m'; DROP TABLE runs; --y") and len(run.name) == 200
    root = library.folder(id) / "files"
    assert all(p.resolve().is_relative_to(root.resolve()) and set(p.name) <= set("=cmd_CalA0.jsonimgrx@-<>") - set("<>|'") for p in root.rglob("*"))


@pytest.mark.parametrize("id", ["..", "../x", "", "0" * 31, "G" * 32, "0" * 32 + "/.."])
def test_what_is_no_id_is_no_run(id: str, library: Library) -> None:
    assert (library.run(id), library.analysis(id), library.progress(id), library.files(id)) == (None, None, None, [])
    with pytest.raises(UnknownRun):
        library.folder(id)
    with pytest.raises(UnknownRun):
        library.rename(id, "x")
    library.delete(id)
    assert library.settings.runs.is_dir()


def test_a_link_is_not_followed(library: Library, tmp_path: Path) -> None:
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.write_text("secret")
    link.symlink_to(secret)
    with pytest.raises(InputError, match="no file"):
        library.create_run("x", "me", [UploadedFile(link, "rank0.json")])
    assert list(library.settings.runs.iterdir()) == []


def test_runs_are_found(library: Library, upload: Upload, clock: Clock) -> None:
    for n, name in enumerate(["Llama 100% tp", "llama_pp", "gpt"]):
        clock.now += 1
        library.set_tags(library.create_run(name, "me", [upload(content=bytes([n]))]), ["good", f"n{n}"] if n else [])
    assert names(library) == ["gpt", "llama_pp", "Llama 100% tp"]
    assert names(library, search="llama") == ["llama_pp", "Llama 100% tp"]
    assert names(library, search="LLAMA tp") == ["Llama 100% tp"]
    assert (names(library, search="100%"), names(library, search="a_p"), names(library, search="%")) == (["Llama 100% tp"], ["llama_pp"], ["Llama 100% tp"])
    assert names(library, search="n2") == ["gpt"]
    assert (names(library, tag="good"), names(library, tag="good", search="gpt")) == (["gpt", "llama_pp"], ["gpt"])
    assert (names(library, state="ready"), names(library, state="queued", limit=1, offset=1)) == ([], ["llama_pp"])
    assert (library.count(), library.count("llama"), library.count(tag="good")) == (3, 2, 2)
    assert library.tags() == [("good", 2), ("n1", 1), ("n2", 1)]
    library.create_run("ÄRGER mit Öfen", "me", [upload(content=b"x")])
    assert (names(library, search="ÄRGER öfen"), names(library, search="ärger")) == (["ÄRGER mit Öfen"],) * 2


def test_either_database_holds_a_library(url: str, tmp_path: Path, upload: Upload, clock: Clock) -> None:
    library = Library(Settings(tmp_path / "root", database_url=url, min_free_bytes=0), clock)
    first, second = (library.create_run(name, "me", [upload(content=name.encode())]) for name in ("Größe 100%", "b_c"))
    library.set_tags(first, ["Good"])
    library.rename(second, "Ärger b_c")
    assert names(library, search="Ärger B_") == ["Ärger b_c"]
    library.rename(second, "b_c")
    finish(library, first)
    assert (names(library), names(library, search="good 100%"), names(library, search="b_"), names(library, state="ready")) == (
        ["b_c", "Größe 100%"],
        ["Größe 100%"],
        ["b_c"],
        ["Größe 100%"],
    )
    assert (library.tags(), library.count(tag="Good"), library.stored_bytes()) == ([("Good", 1)], 1, 50 + 3)
    assert library.create_run("again", "me", [upload(content=b"b_c")]) == second
    assert (names(library, search="gro\0ße"), names(library, tag="g\0"), names(library, search="Größe")) == ([], [], ["Größe 100%"])
    opened = library.analysis(first)
    assert opened is not None and opened.run() == {"ranks": [0]}
    library.delete(first)
    assert names(library) == ["b_c"]
    library.close()


def test_the_same_contents_at_the_same_time_are_one_run(url: str, tmp_path: Path, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    library, together = Library(Settings(tmp_path / "root", database_url=url, min_free_bytes=0)), threading.Barrier(2)
    same, asked = runs.same, threading.local()

    def last_look(db: Connection, fingerprint: str) -> str | None:
        found, asked.times = same(db, fingerprint), getattr(asked, "times", 0) + 1
        if asked.times == 2:  # the one before the run is written down
            with suppress(threading.BrokenBarrierError):
                together.wait(0.5)
        return found

    monkeypatch.setattr(runs, "same", last_look)
    with ThreadPoolExecutor(2) as pool:
        ids = set(pool.map(lambda file: library.create_run("x", "me", [file]), [upload(content=b"1"), upload(content=b"1")]))
    assert len(ids) == len(library.runs()) == len(list(library.settings.runs.iterdir())) == 1
    library.close()


def test_names_and_tags_are_kept_in_order(library: Library, upload: Upload) -> None:
    id = library.create_run("a", "me", [upload()])
    library.rename(id, "  new\tname ")
    library.set_tags(id, ["b", "a", "b", " "])
    run = library.run(id)
    assert run is not None and (run.name, run.tags) == ("new name", ("a", "b"))
    with pytest.raises(UsageError, match="needs a name"):
        library.rename(id, "\n")
    with pytest.raises(UsageError, match="at most 32 tags"):
        library.set_tags(id, [str(n) for n in range(33)])
    with pytest.raises(UnknownRun, match="was deleted"):
        library.set_tags("0" * 32, [])


def test_an_analysis_is_opened_once_per_generation(library: Library, upload: Upload) -> None:
    id = library.create_run("a", "me", [upload()])
    finish(library, id)
    first = library.analysis(id)
    assert first is not None and library.analysis(id) is first
    assert library.run(id) == dataclasses.replace(library.runs()[0], state=State.READY, ranks=1, steps=2, bubble_ratio=0.5, verdict="ok", generation=1)
    library.retry(id)
    finish(library, id, name="again")
    second = library.analysis(id)
    assert second is not None and second is not first and second.folder.name == "again"
    shutil.rmtree(second.folder)
    library._opened.clear()
    with pytest.raises(InputError, match="holds no stored analysis"):
        library.analysis(id)


def test_opened_analyses_take_no_more_memory_than_allowed(library: Library, upload: Upload) -> None:
    library.settings = dataclasses.replace(library.settings, analysis_cache_bytes=500_000)
    ids = [library.create_run(str(n), "me", [upload(content=bytes([n]))]) for n in range(4)]
    for id in ids:
        finish(library, id, rows=20_000)
        opened = library.analysis(id)
        assert opened is not None
        dict(opened.result("breakdown").tables)
    library.analysis(ids[-1])
    assert list(library._opened) == ids[-2:]


def test_quotas_hold(library: Library, upload: Upload) -> None:
    library.settings = dataclasses.replace(library.settings, quota_bytes_per_user=10, quota_bytes_total=15)
    library.create_run("a", "me", [upload(content=b"12345678")])
    with pytest.raises(NoRoom, match="3 B do not fit: 2 B of your 10 B are left"):
        library.create_run("b", "me", [upload(content=b"123")])
    with pytest.raises(NoRoom, match="of this server's"):
        library.create_run("c", "you", [upload(content=b"123456789")])
    library.create_run("d", "you", [upload(content=b"1234567")])
    assert (library.stored_bytes("me"), library.stored_bytes("you"), library.stored_bytes()) == (8, 7, 15)


def test_a_full_disk_takes_nothing(library: Library, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    library.settings = dataclasses.replace(library.settings, min_free_bytes=shutil.disk_usage(library.settings.root).total)
    with pytest.raises(StoreFull, match="stay free"):
        library.create_run("a", "me", [upload()])
    library.settings = dataclasses.replace(library.settings, min_free_bytes=0)
    with monkeypatch.context() as full, pytest.raises(StoreFull, match="the server's disk is full"):
        full.setattr(folders, "_linked", refuses)
        library.create_run("a", "me", [upload()])
    assert list(library.settings.runs.iterdir()) == []


def test_a_run_can_be_deleted_where_the_disk_is_full(library: Library, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    id = library.create_run("a", "me", [upload()])
    remove = runs.remove

    def full(db: Connection, id: str) -> bool:
        if library.folder(id).exists():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise OperationalError("DELETE", {}, error)
        return remove(db, id)

    monkeypatch.setattr(runs, "remove", full)
    library.delete(id)
    assert (library.run(id), list(library.settings.runs.iterdir())) == (None, [])
    with pytest.raises(StoreFull, match="disk is full"), library.db.write() as db:
        db.exec_driver_sql("PRAGMA max_page_count=1")
        db.exec_driver_sql("CREATE TABLE more AS SELECT zeroblob(1000000) AS bytes")


def test_deleted_is_gone(library: Library, upload: Upload) -> None:
    id = library.create_run("a", "me", [upload()])
    library.delete(id)
    library.delete(id)
    assert (library.run(id), library.runs(), list(library.settings.runs.iterdir()), library.stored_bytes()) == (None, [], [], 0)


def test_runs_that_nobody_opens_go_when_their_time_is_over(library: Library, upload: Upload, clock: Clock) -> None:
    library.settings = dataclasses.replace(library.settings, ttl_days=7)
    old, opened, waiting = (library.create_run(n, "me", [upload(content=n.encode())]) for n in ("old", "opened", "waiting"))
    finish(library, old)
    finish(library, opened)
    clock.now += 6 * DAY
    library.analysis(opened)
    clock.now += 2 * DAY
    assert library.tidy().runs == (old,)
    assert ({r.id for r in library.runs()}, library.folder(old).exists()) == ({opened, waiting}, False)
    with library.db.write() as db:  # read for longer than it may live unopened: its time begins when it is read
        assert queue.claim(db, "w", clock.now) == waiting
        clock.now += 8 * DAY
        queue.renew(db, waiting, "w", clock.now, stage=State.READING)
        queue.end(db, waiting, "w", State.READY)
    assert library.tidy().runs == (opened,)


def test_what_crashes_left_behind_goes_and_nothing_else(library: Library, upload: Upload, clock: Clock) -> None:
    clock.now = 4e9
    kept = library.create_run("a", "me", [upload()])
    finish(library, kept, name="0" * 32 + "-full")
    runs = library.settings.runs
    for name in (".new-" + "1" * 32, ".gone-" + "2" * 32 + "-x", "3" * 32, "notes"):
        (runs / name).mkdir()
    for name in ("analyses/" + "0" * 32 + "-0", "ranks/" + "0" * 32, "ranks/" + "4" * 32, "timelines/" + "4" * 32, "scratch/" + "0" * 32):
        (runs / kept / name).mkdir(parents=True)
    library.tidy()
    assert {p.name for p in runs.iterdir()} == {kept, "notes"}
    left = {str(p.relative_to(runs / kept)) for p in (runs / kept).glob("*/*") if p.is_dir()}
    assert left == {"analyses/" + "0" * 32 + "-full", "ranks/" + "0" * 32}
    assert library.analysis(kept) is not None


@pytest.mark.parametrize("damage", ["", "[[0]]", "{"])
def test_one_damaged_run_keeps_no_other_from_being_cleared(
    damage: str, library: Library, upload: Upload, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now = 4e9
    ids = [library.create_run(str(n), "me", [upload(content=bytes([n]))]) for n in range(2)]
    for id in ids:
        finish(library, id, name="0" * 32 + "-full")
        (library.folder(id) / "ranks" / ("4" * 32)).mkdir()
        (library.folder(id) / "ranks" / ("4" * 32) / "rank").write_bytes(b"x" * 10_000)
    (library.folder(ids[0]) / "timelines" / "timelines.json").write_text(damage)
    with library.db.write() as db:
        for id in ids:
            change(db, id, stored_bytes=size_of(library.folder(id)))
    library.tidy()
    assert [(library.folder(id) / "ranks" / ("4" * 32)).exists() for id in ids] == [True, False]
    assert ids[0] in caplog.text
    stored_now = [run.stored_bytes for run in map(library.run, ids) if run is not None]
    assert stored_now == [size_of(library.folder(id)) for id in ids]
    with pytest.raises(InputError, match="is damaged; read the run again"):
        library.timelines(ids[0])


def test_uploads_of_which_nothing_comes_any_more_are_forgotten(library: Library) -> None:
    spool = Spool(library.settings.uploads)
    abandoned, young = spool.create(10, "a.json", "me"), spool.create(10, "b.json", "me")
    os.utime(spool.part(abandoned.id), (0, 0))
    assert library.tidy().uploads == 1
    assert [a.announced.id for a in spool.all()] == [young.id]


def test_a_young_folder_may_be_a_run_that_is_just_being_made(library: Library, clock: Clock) -> None:
    clock.now = time.time()
    (library.settings.runs / ("3" * 32)).mkdir()
    assert library.tidy().folders == ()


def test_only_what_is_over_is_read_again(library: Library, upload: Upload) -> None:
    id = library.create_run("a", "me", [upload()])
    with pytest.raises(UsageError, match="cancel that first"):
        library.retry(id)
    assert library.cancel(id) and not library.cancel(id)
    library.retry(id)
    assert library.runs()[0].state == State.QUEUED
    with pytest.raises(UnknownRun):
        library.retry("0" * 32)
    with pytest.raises(UsageError, match="needs a file"):
        library.create_run("a", "me", [])
