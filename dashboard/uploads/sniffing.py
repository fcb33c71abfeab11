"""Is this file worth sending to the end? Told by its name and its first bytes, by the rules of the readers themselves."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from dashboard.uploads.spool import Refused
from tracekit.readers import reader_for
from tracekit.readers.archives import is_archive
from tracekit.readers.bytes import HEAD, head
from tracekit.readers.strangers import describe

#: Files of a run directory that stand beside the traces; read by their name.
BESIDE = frozenset({"run.json", "result.json", "memory.json", "spans.jsonl"})
#: Bytes of the beginning that tell; they are sent along with the announcement.
FIRST = HEAD
#: A file that stands beside traces is small.
_BESIDE_BYTES = 256 << 20


def refuse_by_name(label: PurePosixPath, size: int) -> None:
    """Refuse a file that cannot be a trace, before a byte of it comes.

    Raises:
        Refused: 415, with what to give instead.
    """
    if size == 0:
        raise Refused(415, f"{label}: the file is empty (0 bytes); record or copy it again")
    if label.name in BESIDE and size > _BESIDE_BYTES:
        raise Refused(413, f"{label}: a {label.name} of {size} bytes is refused; tracekit's own are far smaller")


def refuse_by_content(part: Path, label: PurePosixPath) -> None:
    """Refuse a file by its first bytes.

    Args:
        part: where they lie.
        label: what the sender calls it.

    Raises:
        Refused: 415, with what it looks like and what to give instead.
    """
    if label.name in BESIDE:
        return
    start = head(part)
    if reader_for(start) is None and not is_archive(start):
        raise Refused(415, f"{label}: not a trace I know: {describe(start, name=label.name)}")
