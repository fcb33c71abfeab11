"""How does a window become a file? Chrome JSON (compressed) or Perfetto protobuf, of a size that viewers open."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator

from tracekit.errors import UsageError
from tracekit.timeline.chrome import chrome
from tracekit.timeline.perfetto import perfetto
from tracekit.timeline.run import Run
from tracekit.timeline.selection import select
from tracekit.wording import duration
from tracekit.wording import ranks as rank_list

#: Ending of the file -> what it is.
FORMS = {"json.gz": "Chrome trace, compressed", "pftrace": "Perfetto protobuf"}
MOST_BYTES = 100 * 10**6
_LEVEL = 4
#: zlib writes a gzip file, header and checksum included.
_GZIP = 31


def export(run: Run, start: int, end: int, ranks: Collection[int] | None = None, form: str = "json.gz") -> bytes:
    """The file of a window.

    Args:
        run: the run.
        start: ns since the run's origin.
        end: likewise, exclusive; slices that reach into the window are written whole.
        ranks: only these; None: all.
        form: one of ``FORMS``.

    Raises:
        UsageError: the form is unknown, the window is empty, or holds too much.
        InputError: a stored file is damaged.
    """
    if form not in FORMS:
        raise UsageError(f"{form[:40]!r} cannot be written; there are {', '.join(FORMS)}")
    parts = select(run, start, end, ranks)
    if not parts:
        raise UsageError("no slice reaches into this window; choose another, or other ranks")
    title = f"{duration(end - start)} of ranks {rank_list(p.member.rank for p in parts)}"
    pieces = perfetto(parts) if form == "pftrace" else _compressed(chrome(parts, title))
    out, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > MOST_BYTES:
            raise UsageError(f"this window makes a file of more than {MOST_BYTES // 10**6} MB; zoom in, or choose fewer ranks")
        out.append(piece)
    return b"".join(out)


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
