"""Bytes -> RankTrace: which formats can be read, and which one is this?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tracekit.errors import InputError
from tracekit.reading import DEFAULT, Reading
from tracekit.readers import kineto
from tracekit.readers.bytes import head, read_bytes
from tracekit.trace import RankTrace


class Reader(NamedTuple):
    """One format.

    Attributes:
        name: what it is called in messages and in ``RankMeta.formats``.
        sniff: whether the first bytes (decompressed, up to 64 KiB) are of this format.
        read: content, path (for messages) and caps -> the ranks it holds, one RankTrace each.
        beside: whether it belongs beside a rank's timeline (joined with it where there is one) instead of being one.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[bytes, Path, Reading], tuple[RankTrace, ...]]
    beside: bool = False


#: In the order in which they are tried.
READERS: tuple[Reader, ...] = (Reader("Kineto trace", kineto.sniff, kineto.read),)


def reader_of(path: Path) -> Reader | None:
    """The reader whose format a file's first bytes show, or None."""
    start = head(path)
    return next((r for r in READERS if r.sniff(start)), None)


def read(path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """Read one trace file: the ranks it holds.

    Raises:
        InputError: it is no trace that is known here, or it is cut or damaged.
    """
    reader = reader_of(path)
    if reader is None:
        read_bytes(path)  # a damaged compressed file says so itself
        raise InputError(f"not a trace I know: it begins with {_looks_like(head(path, 32))}; give a torch.profiler JSON (.json or .json.gz)", path)
    return reader.read(read_bytes(path), path, reading)


def _looks_like(start: bytes) -> str:
    if not start:
        return "nothing (the file is empty)"
    text = " ".join(start.decode("utf-8", "replace").split())
    return repr(text[:24]) if text.isprintable() and "\ufffd" not in text else f"bytes {start[:8].hex(' ')}"


__all__ = ["READERS", "Reader", "read", "read_bytes", "reader_of"]
