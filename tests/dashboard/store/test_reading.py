"""What the child says while it reads, in this process."""

from __future__ import annotations

import dataclasses
import errno
import io
import math
import os
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dashboard.jobs import along, job, reading
from dashboard.jobs.messages import Analysed, Done, Failed, News, Order, Progress
from dashboard.jobs.remembered import Remembered
from dashboard.library import Library, UploadedFile
from dashboard.store.folders import make_scratch, size_of, timelines_of
from dashboard.store.rows import Summary
from tests.dashboard.store.conftest import trace
from tracekit import analyze, discover, pyramid, store, stored
from tracekit.facts.findings import findings
from tracekit.ingest import Ingested, ingest
from tracekit.readers import archives
from tracekit.reading import Doing, Reading
from tracekit.trace import RankTrace
from tracekit.wording import size

Upload = Callable[..., UploadedFile]
Said = Callable[..., tuple[Path, list[News]]]
ATTEMPT = "a" * 32


@pytest.fixture
def said(library: Library, upload: Upload) -> Said:
    """Read some files, and what is said meanwhile."""

    def read(*files: tuple[str, bytes], min_free_bytes: int = 0) -> tuple[Path, list[News]]:
        id = library.create_run("x", "me", [upload(label, content) for label, content in files])
        news: list[News] = []
        reading.read(Order(str(library.folder(id)), ATTEMPT, 1, None, None, min_free_bytes, library.settings.reading), news.append)
        return library.folder(id), news

    return read


def test_each_rank_is_stored_and_shown_before_all_are_read(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_WORTH_SHOWING_S", 0.0)
    monkeypatch.setattr(reading, "_TELL_S", math.inf)
    folder, news = said(("job/rank1.json", trace(1, 2)), ("job/rank0.json", trace(0, 2)))
    told = [
        (n.stage, n.done, n.ranks_read) if isinstance(n, Progress) else (n.folder, n.partial, n.summary.ranks) if isinstance(n, Analysed) else n for n in news
    ]
    assert told == [
        ("reading", 0, []),
        ("reading", 1, [0]),
        (f"{ATTEMPT}-0", True, 1),
        ("reading", 2, [0, 1]),
        ("analysing", 2, [0, 1]),
        (f"{ATTEMPT}-full", False, 2),
        Done(),
    ]
    progress = [n for n in news if isinstance(n, Progress)]
    assert (progress[1].message, progress[1].total, progress[2].events) == ("read rank0.json", 2, 2 * 14)
    assert all(n.events_per_s for n in progress[1:])

    early, full = (stored.load(folder / "analyses" / f"{ATTEMPT}-{which}") for which in ("0", "full"))
    assert (early.partial, early.run()["ranks"], full.partial) == (True, [0], False)
    document, wanted = full.to_dict(), analyze(folder / "files", workers=1).to_dict()
    assert document["run"].pop("source") == ["job/rank0.json", "job/rank1.json"]
    assert {str(Path(s).relative_to(folder / "files")) for s in wanted["run"].pop("source")} == {"job/rank0.json", "job/rank1.json"}
    assert document["metrics"] == wanted["metrics"]

    timelines = {key: pyramid.open(path) for key, path in timelines_of(folder).items()}
    assert {key: (t.index["rank"], t.index["events"]) for key, t in timelines.items()} == {(0, 0): (0, 14), (1, 0): (1, 14)}
    kept = [store.load(p) for p in sorted((folder / "ranks" / ATTEMPT).iterdir())]
    assert Counter(t.meta.rank for t in kept) == {0: 1, 1: 1} and all(len(t.events) == 14 for t in kept)


def test_an_attempt_goes_on_where_the_one_before_it_was_cut_off(library: Library, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    id = library.create_run("x", "me", [upload(f"rank{rank}.json", trace(rank, 3)) for rank in range(3)])
    folder, news = library.folder(id), list[News]()

    def cut(one: News) -> None:
        if isinstance(one, Progress) and one.done == 2:
            raise KeyboardInterrupt

    def order(attempt: str) -> Order:
        return Order(str(folder), attempt, 1, None, None, 0, library.settings.reading)

    with pytest.raises(KeyboardInterrupt):
        reading.read(order("b" * 32), cut)
    for rank in (0, 1):
        (folder / "files" / f"rank{rank}.json").write_bytes(trace(rank, 3, steps=9))
    monkeypatch.setattr(reading, "_TELL_S", math.inf)
    reading.read(order(ATTEMPT), news.append)
    progress = [n for n in news if isinstance(n, Progress)]
    assert [(n.done, n.ranks_read, n.events) for n in progress if n.stage == "reading"] == [(0, [], 0), (1, [0], 14), (2, [0, 1], 28), (3, [0, 1, 2], 42)]
    assert [n.events_per_s is None for n in progress[:4]] == [True, True, True, False], "what was read before says nothing of how fast it goes now"
    assert stored.load(folder / "analyses" / f"{ATTEMPT}-full").run()["ranks"] == [0, 1, 2]
    assert {p.name for p in (folder / "ranks").iterdir()} == {ATTEMPT}
    assert sorted(p.name for p in (folder / "ranks" / ATTEMPT).iterdir()) == [f"s0000{n}-0.parquet" for n in range(3)]
    assert {key: pyramid.open(path).index["events"] for key, path in timelines_of(folder).items()} == {(rank, 0): 14 for rank in range(3)}


def test_how_far_a_single_file_is_is_told_while_it_is_read(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TELL_S", 0.0)
    _, news = said(("rank0.json", trace(0)))
    told = [n for n in news if isinstance(n, Progress) and n.stage == "reading" and n.total and n.done < n.total]
    assert list(dict.fromkeys(n.message for n in told)) == [
        f"takes in rank0.json ({size(len(trace(0)))})",
        f"decodes rank0.json ({size(len(trace(0)))})",
        "makes tables of rank0.json (14 events)",
        "links and classifies the events of rank0.json (14 events)",
        "stores rank0.json (14 events)",
        "adds up rank0.json (14 events)",
    ]
    shares = [n.share for n in told if n.share is not None]
    assert shares == sorted(shares) and len(shares) == len(told) and shares[-1] == 1.0
    assert all(n.events_per_s and n.seconds_left is not None for n in told if n.message.startswith("adds up"))


def test_what_was_told_too_late_or_by_nobody_changes_nothing(library: Library) -> None:
    news: list[News] = []
    with along.listening(lambda line: news.append(Progress("reading", line.name))) as tell:
        tell(0, "x" * 500, Doing("decode"))
        Path(tell.pipe).write_bytes(b"no progress\n")
    tell(0, "nobody listens", Doing("facts"))
    assert [n.message for n in news if isinstance(n, Progress)] == ["x" * 160]
    watch = reading._Watch(Order("", ATTEMPT, 1, None, None, 0, Reading()), news.append, Remembered(Path(), ATTEMPT))
    watch.found([1, 1])
    watch.early({(0, 0): SimpleNamespace(facts=None)}, frozenset({0}))
    for number, name in ((0, "late"), (2, "none such"), (-1, "none such")):
        watch.along(along.Line(number, name, Doing("facts")))
    assert (len(news), watch.now) == (1, {})


def test_how_much_is_over_goes_by_the_sizes_of_the_files_and_what_is_refused_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TELL_S", 0.0)
    monkeypatch.setattr(reading, "_AS_IF", 0)
    news: list[Progress] = []
    watch = reading._Watch(Order("", ATTEMPT, 1, None, None, 0, Reading()), news.append, Remembered(Path(), ATTEMPT))  # type: ignore[arg-type]
    watch.found([800, 100, 100])
    watch.along(along.Line(1, "small", Doing("facts", 1.0)))
    watch.early({}, frozenset({1}))
    watch.read(1, 3, "small, which is refused")
    watch.along(along.Line(0, "large", Doing("passes", 0.0)))
    assert [n.share for n in news] == [0.1, 0.1, pytest.approx((100 + 800 * Doing("passes").share) / 1000)]


def test_a_file_system_without_pipes_keeps_nothing_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mkfifo", refuses)
    with along.listening(lambda line: pytest.fail(str(line))) as tell:
        tell(0, "x", Doing("decode"))


def test_what_is_unpacked_lies_with_its_run_and_goes_with_the_attempt(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[Path] = []

    def seen(path: Path, head: bytes, folder: Path, asked: Reading) -> tuple[list[archives.Member], list[str]]:
        unpacked.append(folder)
        return archives.unpack(path, head, folder, asked)

    monkeypatch.setattr(discover, "unpack", seen)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        for rank in (0, 1):
            out.writestr(f"rank{rank}.json", trace(rank, 2))
    before = tempfile.gettempdir()
    folder, news = said(("job.zip", packed.getvalue()))
    assert news[-1] == Done() and stored.load(folder / "analyses" / f"{ATTEMPT}-full").run()["ranks"] == [0, 1]
    assert [path.is_relative_to(folder / "scratch" / ATTEMPT) for path in unpacked] == [True]
    assert (list((folder / "scratch").iterdir()), tempfile.gettempdir()) == ([], before)


def test_what_earlier_attempts_left_counts_against_no_quota(library: Library, upload: Upload) -> None:
    id = library.create_run("x", "me", [upload("rank0.json", trace(0))])
    old = library.folder(id) / "ranks" / ("b" * 32)
    old.mkdir()
    (old / "s00000-0.parquet").write_bytes(b"x" * 100_000)
    news: list[News] = []
    reading.read(Order(str(library.folder(id)), ATTEMPT, 1, None, None, 0, library.settings.reading), news.append)
    told = [n.stored_bytes for n in news if isinstance(n, Analysed)]
    assert (told, old.exists()) == ([size_of(library.folder(id))], False)


def test_what_a_killed_attempt_had_unpacked_goes_with_the_next(tmp_path: Path) -> None:
    make_scratch(tmp_path, "b" * 32)
    kept = make_scratch(tmp_path, ATTEMPT)
    assert list((tmp_path / "scratch").iterdir()) == [kept]
    (kept / "unpacked").write_bytes(bytes(100))
    (tmp_path / "stays").write_bytes(bytes(7))
    assert size_of(tmp_path) == 7


def test_options_in_a_reason_are_those_of_the_server(said: Said, library: Library) -> None:
    assert [reading._served(says) for says in ("x; raise --max-memory", "x; raise --max-events, or y", "x; allow more, use fewer workers, or y")] == [
        "x; start tracekit serve with a larger --job-memory",
        "x; start tracekit serve with a larger --max-events, or y",
        "x; start tracekit serve with a larger --job-memory, or y",
    ]
    library.settings = dataclasses.replace(library.settings, reading=dataclasses.replace(library.settings.reading, max_events=20))
    folder, _ = said(("rank0.json", trace(0, 2)), ("rank1.json", trace(1, 2, steps=9)))
    health = stored.load(folder / "analyses" / f"{ATTEMPT}-full").health()["findings"]
    assert ["start tracekit serve with a larger --max-events" in f["message"] for f in health if f["code"] == "file_refused"] == [True]
    _, facts = next(iter(ingest([folder / "files"]).ranks.items()))
    beside = RankTrace(meta=facts.meta).with_finding("file_beside_refused", "warning", "too large; raise --max-bytes")
    worded = reading._for_server(Ingested({(0, 0): dataclasses.replace(facts, tables={**facts.tables, **findings(beside)})}))
    assert worded.ranks[0, 0]["findings"]["message"].tolist() == ["too large; start tracekit serve with a larger --max-bytes"]
    library.settings = dataclasses.replace(library.settings, reading=dataclasses.replace(library.settings.reading, max_bytes=100))
    _, news = said(("rank0.json", trace(0)))
    assert isinstance(news[-1], Failed) and "start tracekit serve with a larger --max-bytes" in news[-1].error


def test_ranks_that_cannot_be_told_apart_are_only_said_at_the_end(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_WORTH_SHOWING_S", 0.0)
    first, second = (trace(0, kernels=k).replace(b'"rank": 0', b'"node": 0') for k in (3, 4))
    _, news = said(("a.json", first), ("b.json", second))
    assert isinstance(news[-1], Failed) and "rename them like rank3.json" in news[-1].error


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ((("notes.txt", b"hello"),), "the upload: holds no trace, only notes.txt"),
        ((("rank0.json", b'{"traceEvents": 5}'),), "rank0.json: "),
        ((("r/rank0.json", trace(0, 2)), ("r/rank1.json", trace(1, 4))), "records a job of 2 ranks, and r/rank1.json one of 4"),
    ],
)
def test_what_cannot_be_read_is_said_by_its_senders_names(files: tuple[tuple[str, bytes], ...], says: str, said: Said) -> None:
    folder, news = said(*files)
    assert isinstance(news[-1], Failed)
    assert says in news[-1].error and str(folder.parent) not in news[-1].error and "\n" not in news[-1].error


def test_a_damaged_rank_takes_nothing_from_the_others(said: Said) -> None:
    folder, news = said(("rank0.json", trace(0, 2)), ("rank1.json", trace(1, 2)[:-40]))
    assert news[-1] == Done()
    opened = stored.load(folder / "analyses" / f"{ATTEMPT}-full")
    assert opened.run()["ranks"] == [0, 1]
    assert [f["file"] for f in opened.health()["findings"] if f["severity"] != "info"][:1] == ["rank1.json"]


def test_an_archive_that_cannot_be_opened_takes_nothing_from_the_ranks_beside_it(said: Said) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("rank1.json", trace(1, 2))
    cut = packed.getvalue()[:-40]
    folder, news = said(("job/rank0.json", trace(0, 2)), ("job/rank1.zip", cut))
    assert news[-1] == Done()
    opened = stored.load(folder / "analyses" / f"{ATTEMPT}-full")
    (refused,) = [f for f in opened.health()["findings"] if f["code"] == "file_refused"]
    assert (opened.run()["ranks"], refused["file"], refused["severity"]) == ([0], "job/rank1.zip", "error")
    _, news = said(("rank1.zip", cut))
    assert isinstance(news[-1], Failed) and news[-1].error.startswith("rank1.zip: the archive is cut or damaged")


def test_a_disk_that_fills_up_ends_the_reading(said: Said, tmp_path: Path) -> None:
    _, news = said(("rank0.json", trace(0)), min_free_bytes=shutil.disk_usage(tmp_path).total)
    assert isinstance(news[-1], Failed) and "stay free; delete runs" in news[-1].error


@pytest.mark.parametrize("where", [(reading.store, "save"), (archives, "_lay_down")])
def test_a_disk_without_room_is_said_to_be_full(where: tuple[object, str], said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*where, full)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("rank0.json", trace(0))
    _, news = said(("job.zip", packed.getvalue()))
    assert news[-1] == Failed("the server's disk is full; delete runs, or free space there, and read it again")


@pytest.mark.parametrize("name", ["../escape", f"{ATTEMPT}-full/..", "", f"{ATTEMPT}-x"])
def test_a_child_cannot_name_a_folder_of_its_own_choice(name: str, library: Library) -> None:
    news = Analysed(name, False, 1, Summary(1, 1, None, None, None, "ok", "Fine."))
    with pytest.raises(ValueError, match="it names the folder"):
        job.Job(library, "0" * 32, "w")._hear(news)
