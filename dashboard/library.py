"""Which runs are stored, and what do they say? The one thing that pages and uploads talk to; every method may be called from any thread."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from uuid import uuid4

from dashboard.settings import Settings
from dashboard.store import housekeeping, queue, runs
from dashboard.store.database import Database, StoreFull
from dashboard.store.folders import ANALYSES, FILES, is_id, no_room, put_files, remove_folder, timelines_of
from dashboard.store.rows import JobProgress, RunRow, State
from dashboard.store.runs import FileRow
from dashboard.uploads.names import label_of, places
from tracekit import stored
from tracekit.durable import is_full
from tracekit.errors import InputError, TracekitError, UsageError
from tracekit.names import capture_of, rank_of
from tracekit.stored import StoredAnalysis
from tracekit.wording import size

LONGEST_NAME, LONGEST_TAG, MOST_TAGS = 200, 64, 32
#: A page that is looked at all day writes down once an hour that it was.
_OPENED_EVERY_S = 3600.0


class NoRoom(TracekitError):
    """A quota is used up (exit code 4)."""

    exit_code = 4


class UnknownRun(TracekitError, KeyError):
    """There is no run of that id (exit code 2)."""

    exit_code = 2

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "there is no such run"


@dataclass(frozen=True)
class UploadedFile:
    """A file that has arrived and becomes part of a run.

    Attributes:
        path: where its bytes lie, on the disk of ``Settings.root``; the file is linked, so the path may go afterwards.
        label: the relative path that its sender gave it; a label, and harmless parts of it tell rank and capture.
        sha256: hash of its bytes where it is known already.
    """

    path: Path
    label: str
    sha256: str | None = None


class Library:
    """The stored runs of one dashboard.

    Args:
        settings: how the dashboard is run; the folders are made, and the database's schema is brought up to date.
        clock: seconds since 1970; for tests.

    Raises:
        StoreError: the database cannot be used.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        for folder in (settings.root, settings.runs, settings.uploads, settings.temporary):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.db = Database(settings.url)
        self.db.upgrade()
        self.queued = threading.Event()
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, tuple[int, StoredAnalysis]] = OrderedDict()
        self._noted: dict[str, float] = {}

    def runs(self, search: str = "", tag: str | None = None, state: str | None = None, limit: int = 100, offset: int = 0) -> list[RunRow]:
        """Runs, newest first; those whose name or tags hold every word of ``search``."""
        with self.db.read() as db:
            return runs.listed(db, search, tag, state, limit, offset)

    def count(self, search: str = "", tag: str | None = None, state: str | None = None) -> int:
        """How many runs there are of those."""
        with self.db.read() as db:
            return runs.count(db, search, tag, state)

    def tags(self) -> list[tuple[str, int]]:
        """Every tag and how many runs have it, the most used first."""
        with self.db.read() as db:
            return runs.all_tags(db)

    def run(self, id: str) -> RunRow | None:
        """A run, or None where there is none of that id."""
        if not is_id(id):
            return None
        with self.db.read() as db:
            return runs.one(db, id)

    def analysis(self, id: str) -> StoredAnalysis | None:
        """The newest analysis of a run; None where there is none yet, or no such run.

        Raises:
            InputError: it is damaged or gone.
        """
        if not is_id(id):
            return None
        with self.db.read() as db:
            found = runs.analysis_of(db, id)
        if found is None:
            return None
        self._note(id)
        folder, generation = found
        with self._lock:
            known = self._opened.get(id)
            if known is not None and known[0] == generation:
                self._opened.move_to_end(id)
                self._shrink()
                return known[1]
        opened = stored.load(self.folder(id) / ANALYSES / folder)
        with self._lock:
            self._opened[id] = (generation, opened)
            self._opened.move_to_end(id)
            self._shrink()
        return opened

    def folder(self, id: str) -> Path:
        """Where a run is stored, whether it is there or not.

        Raises:
            UnknownRun: this is no id of a run.
        """
        if not is_id(id):
            raise UnknownRun("there is no such run")
        return self.settings.runs / id

    def files(self, id: str) -> list[FileRow]:
        """The files that a run was uploaded as."""
        with self.db.read() as db:
            return runs.files_of(db, id) if is_id(id) else []

    def timelines(self, id: str) -> dict[tuple[int, int], Path]:
        """The folders of a run's stored timelines (``tracekit.pyramid``) by (rank, capture)."""
        return timelines_of(self.folder(id))

    def create_run(self, name: str, owner: str, files: Sequence[UploadedFile]) -> str:
        """Make a run of files that have arrived and queue it to be read; the same contents again give the run that is there.

        The files are linked and the run is written down last: after an error, or a crash, the same call can be made again.

        Returns:
            The id of the run.

        Raises:
            UsageError: there is no file.
            InputError: a label is refused.
            NoRoom: a quota is used up.
            StoreFull: the disk is full.
        """
        if not files:
            raise UsageError("a run needs a file; choose the traces of its ranks")
        labels = [label_of(f.label) for f in files]
        for f in files:
            if f.path.is_symlink() or not f.path.is_file():
                raise InputError("there is no file of it; upload it again", f.label)
        hashed = [replace(f, sha256=f.sha256 or _sha256(f.path)) for f in files]
        fingerprint = fingerprint_of([(label, str(f.sha256)) for label, f in zip(labels, hashed, strict=True)])
        with self.db.read() as db:
            known = runs.same(db, fingerprint)
            if known is not None:
                return known
            self._check_room(sum(f.path.stat().st_size for f in files), owner, runs.stored_bytes(db, owner), runs.stored_bytes(db))
        id = uuid4().hex
        rows = [FileRow(str(place), str(label), f.path.stat().st_size, str(f.sha256)) for f, label, place in zip(hashed, labels, places(labels), strict=True)]
        try:
            put_files(self.settings.runs, id, [(f.path, PurePosixPath(row.place)) for f, row in zip(hashed, rows, strict=True)])
        except OSError as error:
            if not is_full(error):
                raise
            raise StoreFull from error
        try:
            with self.db.write() as db:
                self.db.alone(db, fingerprint)
                known = runs.same(db, fingerprint)
                if known is None:
                    runs.add(db, id, _name(name, labels), owner, fingerprint, rows, self.clock())
                    queue.put(db, id, self.clock())
        except BaseException:
            remove_folder(self.settings.runs, id)
            raise
        if known is not None:
            remove_folder(self.settings.runs, id)
            return known
        self.queued.set()
        return id

    def rename(self, id: str, name: str) -> None:
        """Call a run something else.

        Raises:
            UnknownRun: there is no such run.
            UsageError: the name is empty.
        """
        cleaned = _clean(name, LONGEST_NAME)
        if not cleaned:
            raise UsageError("a run needs a name")
        self._change(id, name=cleaned)

    def set_tags(self, id: str, tags: Sequence[str]) -> None:
        """Give a run exactly these tags.

        Raises:
            UnknownRun: there is no such run.
            UsageError: there are too many.
        """
        wanted = {t for t in (_clean(tag, LONGEST_TAG) for tag in tags) if t}
        if len(wanted) > MOST_TAGS:
            raise UsageError(f"a run has at most {MOST_TAGS} tags")
        with self.db.write() as db:
            if runs.one(db, id) is None:
                raise UnknownRun("there is no such run; it was deleted")
            runs.set_tags(db, id, wanted)

    def delete(self, id: str) -> None:
        """Forget a run and everything that is stored of it; no error where there is none. A reading under way is stopped."""
        if not is_id(id):
            return
        try:
            self._forget(id)
        except StoreFull:  # what the run takes is the room that is needed to write down that it is gone
            remove_folder(self.settings.runs, id)
            self._forget(id)
        with self._lock:
            self._opened.pop(id, None)
            self._noted.pop(id, None)
        remove_folder(self.settings.runs, id)

    def cancel(self, id: str) -> bool:
        """Stop the reading of a run; False where it is over already. What was read of it so far stays to be seen."""
        with self.db.write() as db:
            return queue.cancel(db, id)

    def retry(self, id: str) -> None:
        """Read a run once more: one that failed or was cancelled, or with a newer tracekit.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it is being read, or waits for it.
        """
        with self.db.write() as db:
            self.db.alone(db, id)
            run = runs.one(db, id)
            if run is None:
                raise UnknownRun("there is no such run; it was deleted")
            if not run.state.ended:
                raise UsageError("this run is being read; cancel that first")
            queue.put(db, id, self.clock())
        self.queued.set()

    def progress(self, id: str) -> JobProgress | None:
        """How far the reading of a run is; None where there is no such run."""
        if not is_id(id):
            return None
        with self.db.read() as db:
            found = queue.progress(db, id)
            if found is None or found.state is not State.QUEUED or found.message:
                return found
            before = queue.waiting_before(db, id)
        return replace(found, message=f"{before} before it in the queue" if before else "waits for its turn")

    def stored_bytes(self, owner: str | None = None) -> int:
        """Bytes that the runs take, of one owner or of all."""
        with self.db.read() as db:
            return runs.stored_bytes(db, owner)

    def tidy(self) -> housekeeping.Tidied:
        """Delete runs past their time to live, and what crashes left behind."""
        return housekeeping.tidy(self.db, self.settings, self.clock())

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    def _forget(self, id: str) -> None:
        with self.db.write() as db:
            runs.remove(db, id)

    def _change(self, id: str, **values: object) -> None:
        with self.db.write() as db:
            if not (is_id(id) and runs.change(db, id, **values)):
                raise UnknownRun("there is no such run; it was deleted")

    def _check_room(self, wanted: int, owner: str, own: int, total: int) -> None:
        for quota, used, whose in ((self.settings.quota_bytes_per_user, own, "your"), (self.settings.quota_bytes_total, total, "this server's")):
            if quota is not None and used + wanted > quota:
                raise NoRoom(f"{size(wanted)} do not fit: {size(max(quota - used, 0))} of {whose} {size(quota)} are left; delete runs you no longer need")
        if full := no_room(self.settings.runs, self.settings.min_free_bytes):
            raise StoreFull(full)

    def _note(self, id: str) -> None:
        """Write down that a run was opened, for its time to live."""
        now = self.clock()
        with self._lock:
            if now - self._noted.get(id, float("-inf")) < _OPENED_EVERY_S:
                return
            self._noted[id] = now
        with self.db.write() as db:
            runs.change(db, id, opened_at=now)

    def _shrink(self) -> None:
        """Let go of the analyses that nobody looked at for longest; the one in use is only let go of by whoever asks next."""
        held = {id: opened.held_bytes for id, (_, opened) in self._opened.items()}
        total = sum(held.values())
        for id in list(self._opened)[:-1]:
            if total <= self.settings.analysis_cache_bytes:
                return
            total -= held[id]
            del self._opened[id]
        if total > self.settings.analysis_cache_bytes and self._opened:
            id, (generation, opened) = self._opened.popitem()
            self._opened[id] = (generation, replace(opened, _results={}))


def fingerprint_of(files: Sequence[tuple[PurePosixPath, str]]) -> str:
    """Hash of the contents of some files, whatever their order; of their names only what tells rank and capture counts."""
    lines = sorted(f"{sha256} {rank_of(Path(label))} {capture_of(Path(label))} {label.name if label.name in _SPEAKING else ''}" for label, sha256 in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


#: Files that are known by their names alone.
_SPEAKING = frozenset({"run.json", "memory.json"})


def _name(name: str, labels: Sequence[PurePosixPath]) -> str:
    """What a run is called: as asked, else the folder that its files share, else its first file."""
    shared = PurePosixPath(os.path.commonpath([label.parent for label in labels])) if labels else PurePosixPath()
    return _clean(name, LONGEST_NAME) or _clean(shared.name, LONGEST_NAME) or _clean(labels[0].name, LONGEST_NAME) or "run"


def _clean(text: str, longest: int) -> str:
    """Text as a label: printable, on one line, not too long."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * longest]).split())[:longest].strip()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


__all__ = ["ANALYSES", "FILES", "JobProgress", "Library", "NoRoom", "RunRow", "State", "UnknownRun", "UploadedFile", "fingerprint_of"]
