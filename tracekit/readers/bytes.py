"""What are the bytes in this file? Plain, gzip (also of several members) or zstd, found by content, with caps against bombs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from isal import igzip_threaded, isal_zlib

from tracekit.errors import InputError
from tracekit.reading import DEFAULT, Reading

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_CHUNK = 4 << 20
#: Below this size a high ratio is harmless: short files of zeros exist.
_RATIO_FROM = 64 << 20
#: What sniffing looks at.
HEAD = 64 << 10


class Content(NamedTuple):
    """The decompressed content of a file, how it was packed, and what is wrong with that where only a part could be unpacked."""

    data: bytes
    packing: str | None = None
    damage: str | None = None


def read_bytes(path: Path, reading: Reading = DEFAULT) -> bytes:
    """The decompressed content of a file.

    Raises:
        InputError: the file cannot be read, its compressed stream is cut or damaged, or a cap is passed.
    """
    return unpacked(path, path, reading).data


def unpacked(path: Path, label: Path, reading: Reading = DEFAULT) -> Content:
    """The decompressed content of a file that messages call ``label``.

    With ``reading.salvage`` a cut or damaged stream gives what comes before the damage.

    Raises:
        InputError: the file cannot be read, its compressed stream is cut or damaged, or a cap is passed.
    """
    parts: list[bytes] = []
    packing = None
    try:
        packing = packing_of(path)
        for part in _chunks(path, label, packing, reading):
            parts.append(part)
    except (EOFError, gzip.BadGzipFile, isal_zlib.error, _ZstdDamage) as error:  # type: ignore[misc]
        says = _damage(error, path, packing)
        if reading.salvage and parts:
            return Content(b"".join(parts), packing, says)
        raise InputError(f"{says}; copy or record it again", label, path.stat().st_size if isinstance(error, EOFError) else None) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", label) from error
    data = b"".join(parts) if len(parts) != 1 else parts[0]
    if packing and data[:4].startswith((_GZIP, _ZSTD)):
        raise InputError(f"compressed twice: inside the {packing} is another compressed file; unpack it once", label)
    return Content(data, packing)


def head(path: Path, size: int = HEAD) -> bytes:
    """The first decompressed bytes, for sniffing; what there is of a cut or damaged file.

    Raises:
        InputError: the file cannot be opened.
    """
    try:
        with path.open("rb") as raw:
            start = raw.read(size)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path) from error
    if start.startswith(_GZIP):
        try:
            return zlib.decompressobj(wbits=31).decompress(start, size)
        except zlib.error:
            return start  # what is wrong with it is told when it is read
    if start.startswith(_ZSTD):
        try:
            return next(_zstd(path, size), b"")
        except (_ZstdDamage, EOFError):
            return start
    return start


def packing_of(path: Path) -> str | None:
    """``gzip``, ``zstd``, or None for a plain file."""
    with path.open("rb") as raw:
        start = raw.read(4)
    return "gzip" if start.startswith(_GZIP) else "zstd" if start == _ZSTD else None


class _ZstdDamage(Exception):
    """The zstd stream cannot be decoded."""


def _chunks(path: Path, label: Path, packing: str | None, reading: Reading) -> Iterator[bytes]:
    """The content piece by piece, until a cap is passed."""
    packed, deadline, size = path.stat().st_size, reading.started(), 0
    for part in _pieces(path, packing, reading.max_bytes):
        size += len(part)
        if size > reading.max_bytes:
            raise InputError(f"holds more than {reading.max_bytes} bytes; raise --max-bytes, or record shorter windows", label, reading.max_bytes)
        if packing and size > _RATIO_FROM and size > packed * reading.max_ratio:
            says = f"unpacks to more than {reading.max_ratio} times its {packed} bytes, as a decompression bomb does; raise --max-ratio if you trust it"
            raise InputError(says, label, size)
        deadline.check(label)
        reading.says("unpack", nbytes=size)
        yield part


def _pieces(path: Path, packing: str | None, most: int) -> Iterator[bytes]:
    if packing == "gzip":
        with igzip_threaded.open(path, "rb", threads=1) as stream:  # type: ignore[no-untyped-call]
            while part := stream.read(_CHUNK):
                yield part
    elif packing == "zstd":
        yield from _zstd(path, _CHUNK)
    else:
        with path.open("rb") as raw:
            # what read() is asked for it sets aside at once: never more than there is
            yield raw.read(min(most, path.stat().st_size) + 1)


def _zstd(path: Path, size: int) -> Iterator[bytes]:
    """The content of a zstd file in pieces; pyarrow brings the decoder along."""
    import pyarrow as pa

    with closing(pa.OSFile(str(path))) as raw:
        try:
            with pa.CompressedInputStream(raw, "zstd") as stream:
                while part := stream.read(size):
                    yield part
        except OSError as error:
            if "truncated" in str(error).lower():
                raise EOFError(str(error)) from error
            raise _ZstdDamage(str(error)) from error


def _damage(error: BaseException, path: Path, packing: str | None) -> str:
    if isinstance(error, EOFError):
        return f"the {packing} stream ends early (the file has {path.stat().st_size} bytes), as when the job was killed or the copy was cut"
    return f"the {packing} stream is damaged ({error})"
