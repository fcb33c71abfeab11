"""What are the bytes in this file? Plain or gzip (also of several members), found by content; nothing else is guessed."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from isal import igzip_threaded, isal_zlib

from tracekit.errors import InputError

_GZIP = b"\x1f\x8b"
_CHUNK = 4 << 20
#: A trace of this size would not fit the memory it is decoded in; a bomb is stopped here.
MAX_BYTES = 8 << 30


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The decompressed content of a file.

    Raises:
        InputError: the file cannot be read, its gzip stream is cut or damaged, or it is larger than ``limit``.
    """
    try:
        with path.open("rb") as raw:
            if raw.read(2) != _GZIP:
                raw.seek(0)
                # what read() is asked for it sets aside at once: never more than there is
                return _whole(raw.read(min(limit, path.stat().st_size) + 1), path, limit)
        with igzip_threaded.open(path, "rb", threads=1) as stream:  # type: ignore[no-untyped-call]
            parts, size = [], 0
            while chunk := stream.read(_CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    break
            return _whole(b"".join(parts), path, limit)
    except EOFError as error:
        size = path.stat().st_size
        says = f"the gzip stream ends early (the file has {size} bytes); was the job killed or the copy cut? Copy or record it again"
        raise InputError(says, path, size) from error
    except (gzip.BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc]
        raise InputError(f"the gzip stream is damaged ({error}); copy or record it again", path) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path) from error


def head(path: Path, size: int = 4096) -> bytes:
    """The first decompressed bytes, for sniffing; what there is of a cut file.

    Raises:
        InputError: the file cannot be opened.
    """
    try:
        with path.open("rb") as raw:
            start = raw.read(size)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path) from error
    if not start.startswith(_GZIP):
        return start
    with path.open("rb") as raw:
        try:
            return zlib.decompressobj(wbits=31).decompress(raw.read(1 << 16), size)
        except zlib.error:
            return start  # what is wrong with it is told when it is read


def _whole(data: bytes, path: Path, limit: int) -> bytes:
    if len(data) > limit:
        raise InputError(f"holds more than {limit} bytes; split the recording into shorter windows", path, limit)
    return data
