"""Which uploads are on their way, and how far is each? Two files per upload, and the size of one is the truth.

    <id>.json    what was announced: written once, never changed
    <id>.part    the bytes that have arrived; its size is the offset from which the sender goes on
    <hash>.made  which run was made of some uploads, for a sender who did not hear it; kept as long as an upload would be

So a server that is killed knows after its restart what it knew before, and an offset is never ahead of the bytes on the disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import msgspec

from tracekit.durable import sync

PIECE = 1 << 20
_REAP_EVERY_S = 600.0
_LIST_EVERY_S = 30.0
_ID = re.compile(r"^[0-9a-f]{32}$")
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """An upload cannot go on.

    Attributes:
        status: HTTP status that says so.
        offset: bytes that have arrived, where that is what the sender needs to know.
    """

    def __init__(self, status: int, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.offset = status, reason, offset


class Announced(msgspec.Struct, frozen=True):
    """What a sender said before it sent.

    Attributes:
        id: 128 random bits in hexadecimal; the file's name here.
        size: bytes that will come.
        label: relative path that the sender gives it.
        user: whose it is.
        made: when, in seconds of the Unix epoch.
        mark: by which the sender knows the file again, such as its time of change; may be empty.
    """

    id: str
    size: int
    label: str
    user: str
    made: float
    mark: str = ""


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """The hash so far."""


@dataclass(frozen=True)
class Arrived:
    """How far an upload is: what was announced, and the bytes that are there."""

    announced: Announced
    offset: int

    @property
    def complete(self) -> bool:
        """Whether every byte is there."""
        return self.offset == self.announced.size


@dataclass(frozen=True)
class Underway:
    """Uploads on their way: how many, the bytes that were announced, and those of them that are here."""

    count: int = 0
    announced: int = 0
    arrived: int = 0

    def __add__(self, other: Underway) -> Underway:
        return Underway(self.count + other.count, self.announced + other.announced, self.arrived + other.arrived)

    def __sub__(self, other: Underway) -> Underway:
        return Underway(self.count - other.count, self.announced - other.announced, self.arrived - other.arrived)


class Spool:
    """The uploads on their way in one folder.

    Args:
        folder: where they are kept; made where it is missing, readable by this user only.
        idle_s: uploads of which nothing arrived for so long are forgotten, when the next one begins; None: they are kept.
    """

    def __init__(self, folder: Path, idle_s: float | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.idle_s = folder, idle_s
        self._reaped = float("-inf")
        #: Held between asking whether there is room and taking it: two senders never get the same room.
        self.admission = threading.Lock()
        self._lock = threading.Lock()
        self._seen: dict[str, Announced] = {}
        self._hashing: dict[str, tuple[Digest, int]] = {}
        #: What each upload counts for, and the sums by user: asked before every upload, so never added up anew for each.
        self._counted: dict[str, tuple[str, Underway]] = {}
        self._sums: dict[str, Underway] = {}
        self._listed = float("-inf")

    def create(self, size: int, label: str, user: str, mark: str = "") -> Announced:
        """Make room for a new upload; nothing of it has arrived.

        Raises:
            Refused: the disk does not take it (507).
        """
        if self.idle_s is not None and time.monotonic() - self._reaped > _REAP_EVERY_S:
            self._reaped = time.monotonic()
            self.reap(self.idle_s)
        announced = Announced(secrets.token_hex(16), size, label, user, time.time(), mark)
        partial = self.folder / f"{announced.id}.new"
        try:
            with os.fdopen(os.open(self.part(announced.id), os.O_WRONLY | _NEW, 0o600), "wb"):
                pass
            with os.fdopen(os.open(partial, os.O_WRONLY | _NEW, 0o600), "wb") as out:
                out.write(msgspec.json.encode(announced))
                out.flush()
                os.fsync(out.fileno())
            partial.rename(self.folder / f"{announced.id}.json")
            sync(self.folder)
        except OSError as error:
            partial.unlink(missing_ok=True)
            self.delete(announced.id)
            raise Refused(507, f"the disk does not take it ({error.strerror or error}); go on later") from error
        self._count(announced.id, user, Underway(1, size, 0))
        return announced

    def arrived(self, id: str) -> Arrived:
        """How far an upload is.

        Raises:
            Refused: there is none of this id.
        """
        try:
            info = os.lstat(self.part(id))
            announced = self._announced(id)
        except (OSError, msgspec.MsgspecError) as error:
            raise Refused(404, "there is no such upload; it was finished, cancelled or abandoned: start it again") from error
        if not stat.S_ISREG(info.st_mode):
            raise Refused(404, "there is no such upload")
        return Arrived(announced, info.st_size)

    def append(self, id: str, offset: int, stream: IO[bytes]) -> Arrived:
        """Write what comes next, and return how far it then is; whatever has arrived stays, however this ends.

        Raises:
            Refused: there is no such upload (404), another sender is at it (423), it does not go on at ``offset`` (409), more comes
                than was announced (413), or the disk is full (507).
        """
        announced = self.arrived(id).announced
        with self._alone(id) as part:
            at = os.fstat(part).st_size
            if at != offset:
                raise Refused(409, f"the next byte is {at}, not {offset}; ask for the offset and go on there", at)
            digest = self._digest(id, at)
            try:
                while piece := _received(stream, min(PIECE, announced.size - at + 1), at):
                    if at + len(piece) > announced.size:
                        raise Refused(413, f"more bytes came than the {announced.size} that were announced", at)
                    _write(part, piece)
                    at += len(piece)
                    if digest is not None:
                        digest.update(piece)
            except OSError as error:
                raise Refused(507, f"the disk does not take it ({error.strerror or error}); what has arrived is kept, go on later", at) from error
            finally:
                if os.fstat(part).st_nlink:  # else it was cancelled meanwhile
                    self._remember(id, digest, at)
                    self._count(id, announced.user, Underway(1, announced.size, at))
                os.fsync(part)
        return Arrived(announced, at)

    def delete(self, id: str) -> None:
        """Forget an upload and its bytes; no error where there is none."""
        if not _ID.match(id):
            return
        for path in (self.folder / f"{id}.json", self.part(id)):
            path.unlink(missing_ok=True)
        with self._lock:
            self._seen.pop(id, None)
            self._hashing.pop(id, None)
        self._count(id, "", None)

    def underway(self, user: str | None = None) -> Underway:
        """The uploads on their way, of one user or of all, without a look at the disk; what other servers do here is seen in half a minute."""
        if time.monotonic() - self._listed > _LIST_EVERY_S:
            self._listed = time.monotonic()
            there = self.all()
            with self._lock:
                self._counted, self._sums = {}, {}
            for a in there:
                self._count(a.announced.id, a.announced.user, Underway(1, a.announced.size, a.offset))
        with self._lock:
            return sum(self._sums.values(), Underway()) if user is None else self._sums.get(user, Underway())

    def _count(self, id: str, user: str, now: Underway | None) -> None:
        """Count an upload as it is now; no more where None."""
        with self._lock:
            known = self._counted.pop(id, None)
            if known is not None:
                self._sums[known[0]] = self._sums[known[0]] - known[1]
            if now is not None:
                self._counted[id] = (user, now)
                self._sums[user] = self._sums.get(user, Underway()) + now

    def sha256(self, id: str) -> str:
        """Hash of what has arrived, kept along the way where this process saw it all, else read piece by piece.

        Raises:
            Refused: there is no such upload.
        """
        offset = self.arrived(id).offset
        with self._lock:
            known = self._hashing.get(id)
        if known is not None and known[1] == offset:
            return known[0].hexdigest()
        digest = hashlib.sha256()
        with os.fdopen(os.open(self.part(id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as part:
            while piece := part.read(PIECE):
                digest.update(piece)
        self._remember(id, digest, offset)
        return digest.hexdigest()

    def made(self, ids: Collection[str], user: str) -> str | None:
        """The run that was made of exactly these uploads of this user; None where none was, or it is long ago."""
        try:
            return self._made(ids, user).read_text() or None
        except OSError:
            return None

    def finish(self, ids: Collection[str], user: str, run: str) -> None:
        """Forget uploads that have become a run, and remember which: the answer that says so may get lost."""
        partial = self.folder / f"{secrets.token_hex(16)}.new"
        with suppress(OSError):  # a full disk: the run is there, and that is what the answer says
            partial.write_text(run)
            partial.rename(self._made(ids, user))
        for id in ids:
            self.delete(id)

    def _made(self, ids: Collection[str], user: str) -> Path:
        of = hashlib.sha256("\n".join([user, *sorted(set(ids))]).encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{of}.made"

    def all(self, user: str | None = None) -> list[Arrived]:
        """Every upload on its way, oldest first; of one user where one is named."""
        found = []
        for path in self.folder.glob("*.json"):
            with suppress(Refused):
                found.append(self.arrived(path.stem))
        return sorted((a for a in found if user in (None, a.announced.user)), key=lambda a: (a.announced.made, a.announced.id))

    def reap(self, idle_s: float) -> int:
        """Forget uploads of which nothing arrived for so long; how many there were. Half-made ones of a killed server go too."""
        before, gone = time.time() - idle_s, 0
        for path in list(self.folder.iterdir()):
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime < before and path.suffix in (".part", ".new", ".made"):
                    self.delete(path.stem)
                    path.unlink(missing_ok=True)
                    gone += path.suffix == ".part"
        return gone

    def part(self, id: str) -> Path:
        """Where the bytes of an upload lie.

        Raises:
            Refused: this is no id.
        """
        if not _ID.match(id):
            raise Refused(404, "there is no such upload")
        return self.folder / f"{id}.part"

    def _announced(self, id: str) -> Announced:
        with self._lock:
            known = self._seen.get(id)
        if known is not None:
            return known
        with os.fdopen(os.open(self.folder / f"{id}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            announced = msgspec.json.decode(file.read(1 << 16), type=Announced)
        with self._lock:
            self._seen[id] = announced
        return announced

    @contextmanager
    def _alone(self, id: str) -> Iterator[int]:
        """The file of an upload, open for writing at its end and held against every other writer."""
        try:
            part = os.open(self.part(id), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(404, "there is no such upload") from error
        try:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Refused(423, "another sender is writing this upload; wait for it, or send another") from error
            yield part
        finally:
            os.close(part)

    def _digest(self, id: str, at: int) -> Digest | None:
        """The running hash up to ``at``, or None where this process has not seen all of it."""
        with self._lock:
            known = self._hashing.get(id)
        if at == 0:
            return hashlib.sha256()
        return known[0] if known is not None and known[1] == at else None

    def _remember(self, id: str, digest: Digest | None, offset: int) -> None:
        with self._lock:
            if digest is None:
                self._hashing.pop(id, None)
            else:
                self._hashing[id] = (digest, offset)


def _received(stream: IO[bytes], size: int, at: int) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:  # ClientDisconnected of werkzeug is none, and ends the request by itself
        raise Refused(400, "the connection ended early; what has arrived is kept, go on there", at) from error


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
