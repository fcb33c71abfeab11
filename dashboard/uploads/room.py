"""Is there room for this upload? Asked before the first byte is taken: size of the file, quota of its user and of all, space on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from dashboard.uploads.spool import Refused, Spool, Underway
from tracekit.wording import size

#: Files of one run; a job of 4,096 ranks has three each.
MOST_FILES = 20_000


@dataclass(frozen=True)
class Limits:
    """How much may be uploaded.

    Attributes:
        file_bytes: most bytes of one file.
        user_bytes: most bytes of one user, stored runs and open uploads together.
        total_bytes: the same of all users.
        keep_free_bytes: bytes of the disk that stay free.
        open_uploads: most uploads of one user that are on their way at a time; a whole run fits.
    """

    file_bytes: int = 64 << 30
    user_bytes: int | None = None
    total_bytes: int | None = None
    keep_free_bytes: int = 1 << 30
    open_uploads: int = MOST_FILES


#: Bytes of stored runs: of one user, or of all where None is given.
Stored = Callable[[str | None], int]


def check(spool: Spool, limits: Limits, stored: Stored, user: str, wanted: int) -> None:
    """Refuse an upload that there is no room for; to be asked while ``spool.admission`` is held.

    Args:
        spool: uploads on their way; what they have announced counts as if it were here.
        limits: what is allowed.
        stored: bytes that stored runs hold.
        user: who sends.
        wanted: bytes that are announced.

    Raises:
        Refused: 413 for a limit, 507 for the disk, 429 for too many at a time; one line that says which.
    """
    if wanted > limits.file_bytes:
        raise Refused(413, f"the file has {size(wanted)}, more than the {size(limits.file_bytes)} that one file may have; record shorter windows")
    own, every = spool.underway(user), spool.underway()
    if own.count >= limits.open_uploads:
        raise Refused(429, f"{own.count} uploads are on their way, the most allowed; finish or cancel some")
    if limits.user_bytes is not None:
        left = limits.user_bytes - stored(user) - own.announced
        if wanted > left:
            says = f"{size(wanted)} do not fit your quota: {size(max(left, 0))} of {size(limits.user_bytes)} are left"
            raise Refused(413, f"{says}{_underway(own)}; delete runs you no longer need")
    if limits.total_bytes is not None:
        left = limits.total_bytes - stored(None) - every.announced
        if wanted > left:
            says = f"{size(wanted)} do not fit: {size(max(left, 0))} of this server's {size(limits.total_bytes)} are left"
            raise Refused(413, f"{says}{_underway(every)}; delete runs")
    free = shutil.disk_usage(spool.folder).free - limits.keep_free_bytes - (every.announced - every.arrived)
    if wanted > free:
        raise Refused(507, f"the server's disk has room for {size(max(free, 0))}, not for {size(wanted)}; delete runs, or free space there")


def _underway(uploads: Underway) -> str:
    """What uploads on their way hold of a quota: those that nobody goes on with are cleared away in time."""
    return f", {size(uploads.announced)} are held by uploads on their way" if uploads.announced else ""
