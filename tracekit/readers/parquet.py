"""A RankTrace that tracekit itself saved as Parquet (``tracekit.store``): read back unchanged."""

from __future__ import annotations

from pathlib import Path

from tracekit import store
from tracekit.errors import InputError
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankTrace


def sniff(head: bytes) -> bool:
    """Whether the first bytes are those of a Parquet file, whoever wrote it."""
    return head.startswith(store.MAGIC)


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """The saved trace.

    Raises:
        InputError: the file is cut or damaged, of a later version, larger than a cap, or of another program.
    """
    columns = store.columns_of(data)
    if columns is None:
        raise InputError("a Parquet file that is cut or damaged (its end does not say what it holds); copy it again", path, len(data))
    if not store.is_ours(data):
        shown = ", ".join(columns[:6]) + (", …" if len(columns) > 6 else "")
        raise InputError(f"not a trace I know: a Parquet file that tracekit did not write (columns {shown}); give a torch.profiler trace", path)
    return (store.restore(data, path, reading),)
