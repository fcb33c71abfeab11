"""How does what was written outlive a power cut? By waiting until the disk has it, file and name; and is there room for it?"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def is_full(error: BaseException | None) -> bool:
    """Whether a disk said that it, or a quota on it, is full: no fault of the file that was to be written or read."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def sync(path: Path) -> None:
    """Wait until the disk has the bytes of a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
