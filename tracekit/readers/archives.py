"""Which files are inside this zip or tar? Laid out flat in a scratch folder, with caps, so that each is read like any other file.

Members keep their own compression (a ``.json.gz`` stays one) and get numbers for names: what an archive calls its members
decides nothing on this disk. Links, devices and archives within the archive are left where they are.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from tracekit.errors import InputError
from tracekit.reading import Deadline, Reading

_CHUNK = 4 << 20
_ZIP = b"PK\x03\x04"
_RATIO_FROM = 64 << 20


class Member(NamedTuple):
    """A file of an archive: where it was laid down, and what the archive calls it."""

    path: Path
    name: PurePosixPath


def is_archive(head: bytes) -> bool:
    """Whether the first (decompressed) bytes are those of a zip or tar."""
    return head.startswith(_ZIP) or head[257:262] == b"ustar"


def unpack(path: Path, head: bytes, folder: Path, reading: Reading) -> tuple[list[Member], list[str]]:
    """Lay an archive's files into a folder.

    Args:
        path: the archive; a tar may be compressed with gzip.
        head: its first decompressed bytes.
        folder: an empty scratch folder.
        reading: caps on the sum of all members, their number and the time.

    Returns:
        The files, in the archive's order, and the names of members that were left out.

    Raises:
        InputError: it is damaged, a member's name climbs out of it, or a cap is passed.
    """
    deadline = reading.started()
    members: list[Member] = []
    left_out: list[str] = []
    budget = _Budget(path, reading)
    try:
        for name, stream in _zip(path) if head.startswith(_ZIP) else _tar(path):
            where = PurePosixPath(name.replace("\\", "/"))
            if where.is_absolute() or ".." in where.parts:
                raise InputError(f"a member's name ({name!r}) climbs out of the archive; it is refused whole, unpack it yourself if you trust it", path)
            if stream is None or where.name.startswith("._") or "__MACOSX" in where.parts:
                left_out.append(name)
                continue
            target = folder / f"{len(members):06d}"
            _lay_down(stream, target, budget, deadline)
            members.append(Member(target, where))
            budget.member()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise InputError(f"the archive is cut or damaged ({error or type(error).__name__}); copy it again", path) from error
    except OSError as error:
        raise InputError(f"the archive cannot be unpacked ({error.strerror or error}); copy it again, or unpack it yourself", path) from error
    return members, left_out


class _Budget:
    """What an archive may still unpack to."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self.reading, self.packed = path, reading, path.stat().st_size
        self.size = self.members = 0

    def spend(self, size: int) -> None:
        """Note bytes laid down."""
        self.size += size
        if self.size > self.reading.max_bytes:
            raise InputError(f"its files hold more than {self.reading.max_bytes} bytes; raise --max-bytes", self.path, self.reading.max_bytes)
        if self.size > _RATIO_FROM and self.size > self.packed * self.reading.max_ratio:
            says = f"unpacks to more than {self.reading.max_ratio} times its {self.packed} bytes, as a decompression bomb does"
            raise InputError(f"{says}; raise --max-ratio if you trust it", self.path, self.size)

    def member(self) -> None:
        """Note a file laid down."""
        self.members += 1
        if self.members > self.reading.max_members:
            raise InputError(f"holds more than {self.reading.max_members} files; raise --max-members", self.path)


def _lay_down(stream: IO[bytes], target: Path, budget: _Budget, deadline: Deadline) -> None:
    with stream, target.open("wb") as out:
        while part := stream.read(_CHUNK):
            budget.spend(len(part))
            deadline.check(budget.path)
            out.write(part)


def _zip(path: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.flag_bits & 0x1:
                raise InputError(f"its member {info.filename!r} is encrypted; unpack it yourself", path)
            yield info.filename, archive.open(info)


def _tar(path: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with tarfile.open(path, "r|*") as archive:
        for info in archive:
            if not info.isdir():
                yield info.name, archive.extractfile(info) if info.isfile() else None
