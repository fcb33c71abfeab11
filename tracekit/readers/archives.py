"""Which files are inside this zip or tar? Laid out flat in a scratch folder, with caps, so that each is read like any other file.

Members keep their own compression (a ``.json.gz`` stays one) and get numbers for names: what an archive calls its members
decides nothing on this disk. Links, devices and archives within the archive are left where they are.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, NoReturn

from tracekit.errors import InputError
from tracekit.readers.bytes import packing_of
from tracekit.reading import Deadline, Reading

_CHUNK = 4 << 20
_ZIP = b"PK\x03\x04"
_RATIO_FROM = 64 << 20
#: How a zip's member may be packed: what was packed otherwise, Python unpacks all at once, however much it is.
_IN_PIECES = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
#: Entries of a tar that tell something of the next one, such as a long name, and the most bytes of one: they are read as a whole.
_TELLING = frozenset({tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE})
_MOST_TOLD = 64 << 10


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
        path: the archive; a tar may be compressed with gzip or zstd.
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
        for name, size, stream in _zip(path, budget) if head.startswith(_ZIP) else _tar(path, budget):
            deadline.check(path)
            where = PurePosixPath(name.replace("\\", "/"))
            if where.is_absolute() or ".." in where.parts:
                raise InputError(f"a member's name ({name!r}) climbs out of the archive; it is refused whole, unpack it yourself if you trust it", path)
            if stream is None or where.name.startswith("._") or "__MACOSX" in where.parts:
                left_out.append(name)
                budget.spend(size)
                continue
            target = folder / f"{len(members):06d}"
            _lay_down(stream, target, budget, deadline)
            members.append(Member(target, where))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, ValueError, LookupError, OverflowError) as error:
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
        """Note bytes laid down, or unpacked to get past them."""
        self.size += max(size, 0)
        if self.size > self.reading.max_bytes:
            raise InputError(f"its files hold more than {self.reading.max_bytes} bytes; raise --max-bytes", self.path, self.reading.max_bytes)
        if self.size > _RATIO_FROM and self.size > self.packed * self.reading.max_ratio:
            says = f"unpacks to more than {self.reading.max_ratio} times its {self.packed} bytes, as a decompression bomb does"
            raise InputError(f"{says}; raise --max-ratio if you trust it", self.path, self.size)

    def member(self) -> None:
        """Note an entry."""
        self.members += 1
        if self.members > self.reading.max_members:
            raise InputError(f"holds more than {self.reading.max_members} entries; raise --max-members", self.path)


def _lay_down(stream: IO[bytes], target: Path, budget: _Budget, deadline: Deadline) -> None:
    with stream, target.open("wb") as out:
        while part := stream.read(_CHUNK):
            budget.spend(len(part))
            deadline.check(budget.path)
            out.write(part)


def _zip(path: Path, budget: _Budget) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """(name, bytes that must be unpacked to get past it, content) of each file."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            budget.member()
            if info.filename.endswith("/"):
                continue
            if info.flag_bits & 0x1:
                raise InputError(f"its member {info.filename!r} is encrypted; unpack it yourself", path)
            if info.compress_type not in _IN_PIECES:
                says = f"its member {info.filename!r} is packed by method {info.compress_type}, which unpacks without a limit"
                raise InputError(f"{says}; unpack it yourself, or zip it with deflate", path)
            yield info.filename, 0, archive.open(info)


class _Entry(tarfile.TarInfo):
    """An entry of which not more is told before it, or in front of its content, than a name takes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _TELLING and entry.size > _MOST_TOLD:
            raise tarfile.ReadError(f"{entry.size} bytes tell of one member")
        return entry

    def _proc_sparse(self, *_: object) -> NoReturn:
        raise tarfile.ReadError("its members are stored with holes, of which a map without a limit tells")

    _proc_gnusparse_10 = _proc_sparse


def _tar(path: Path, budget: _Budget) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """(name, bytes that must be unpacked to get past it, content; None of a link or device) of each that is no folder."""
    with _opened(path) as archive:
        for info in archive:
            budget.member()
            if not info.isdir():
                yield info.name, info.size, archive.extractfile(info) if info.isfile() else None


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar as a stream, unpacked by what its first bytes say."""
    packing = packing_of(path)
    if packing != "zstd":
        with tarfile.open(path, "r|gz" if packing else "r|", tarinfo=_Entry) as archive:
            yield archive
        return
    import pyarrow as pa

    with (
        closing(pa.OSFile(str(path))) as raw,
        pa.CompressedInputStream(raw, "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as archive,
    ):
        yield archive
