"""Bytes -> RankTrace: which formats can be read, and which one is this?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tracekit.errors import InputError
from tracekit.readers import kineto
from tracekit.readers.bytes import head, read_bytes
from tracekit.trace import RankTrace


class Reader(NamedTuple):
    """One format: its name, how it is recognised by content, and how it is read."""

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[bytes, Path], RankTrace]


#: In the order in which they are tried.
READERS: tuple[Reader, ...] = (Reader("Kineto trace", kineto.sniff, kineto.read),)


def reader_of(path: Path) -> Reader | None:
    """The reader whose format a file's first bytes show, or None."""
    start = head(path)
    return next((r for r in READERS if r.sniff(start)), None)


def read(path: Path) -> RankTrace:
    """Read one trace file.

    Raises:
        InputError: it is no trace that is known here, or it is cut or damaged.
    """
    reader = reader_of(path)
    if reader is None:
        read_bytes(path)  # a damaged compressed file says so itself
        raise InputError(f"not a trace I know: it begins with {_looks_like(head(path, 32))}; give a torch.profiler JSON (.json or .json.gz)", path)
    return reader.read(read_bytes(path), path)


def _looks_like(start: bytes) -> str:
    if not start:
        return "nothing (the file is empty)"
    text = " ".join(start.decode("utf-8", "replace").split())
    return repr(text[:24]) if text.isprintable() and "\ufffd" not in text else f"bytes {start[:8].hex(' ')}"


__all__ = ["READERS", "Reader", "read", "read_bytes", "reader_of"]
