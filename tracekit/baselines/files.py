"""What does a place for baselines have to do? List, read, write a whole new file or none, delete."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tracekit.errors import InputError, UsageError

#: Names of files in a store: parts of letters, digits, ``-``, ``_`` and ``.``, none of which is hidden.
NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,120}/){0,6}[A-Za-z0-9_-][A-Za-z0-9._-]{0,120}")
#: A file of a store that is larger is not read.
MAX_BYTES = 64 << 20


class Files(Protocol):
    """A place for files. Names are relative, with ``/``."""

    def names(self, under: str) -> list[str]:
        """Names of the files under a folder, sorted; none where there is no such folder."""

    def read(self, name: str) -> bytes:
        """A file's bytes.

        Raises:
            InputError: it is not there, or cannot be read.
        """

    def write(self, files: Iterable[tuple[str, bytes]], message: str) -> None:
        """Write files, in their order, each whole or not at all. One that is there already is as new afterwards, whatever it held.

        Raises:
            UsageError: the place cannot be written.
        """

    def delete(self, names: Iterable[str], message: str) -> None:
        """Delete files; one that is gone already is no error.

        Raises:
            UsageError: the place cannot be written.
        """

    def modified(self, name: str) -> int | None:
        """When a file was last written, Unix-epoch ns; None where it is gone, or where this place does not say."""


def checked(name: str) -> str:
    """A name that stays inside the store.

    Raises:
        InputError: it does not.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name[:80]!r} is no name of a file in a baseline store")
    return name


class Folder:
    """Files in a folder of this machine. A file appears by a rename, so that nobody ever sees a part of one."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def names(self, under: str) -> list[str]:
        """Names of the files under a folder, sorted; those being written are left out."""
        # os.walk passes over folders that another job deletes meanwhile
        found = (Path(top) / name for top, _, names in os.walk(self._root / checked(under)) for name in names if not name.startswith("."))
        return sorted(p.relative_to(self._root).as_posix() for p in found if p.is_file())

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        path = self._root / checked(name)
        try:
            if path.stat().st_size > MAX_BYTES:
                raise InputError(f"larger than {MAX_BYTES:,} bytes, which no snapshot is", path)
            return path.read_bytes()
        except OSError as e:
            raise InputError(f"cannot be read: {e.strerror or e}", path) from e

    def write(self, files: Iterable[tuple[str, bytes]], message: str) -> None:
        """Write files; each is on the disk before its name is."""
        for name, data in files:
            path = self._root / checked(name)
            try:
                if not _refreshed(path, data):
                    _written(path, data)
            except OSError as e:
                raise UsageError(f"cannot write {path}: {e.strerror or e}; name a folder that is writable") from e

    def delete(self, names: Iterable[str], message: str) -> None:
        """Delete files, and the folders that are empty then."""
        for name in names:
            path = self._root / checked(name)
            try:
                path.unlink(missing_ok=True)
            except OSError as e:
                raise UsageError(f"cannot delete {path}: {e.strerror or e}") from e
            for folder in path.parents:
                if folder == self._root:
                    break
                try:
                    folder.rmdir()
                except FileNotFoundError:  # another job was faster
                    continue
                except OSError:  # it is not empty
                    break

    def modified(self, name: str) -> int | None:
        """When a file was last written."""
        try:
            return (self._root / checked(name)).stat().st_mtime_ns
        except OSError:
            return None


def _refreshed(path: Path, data: bytes) -> bool:
    """Whether a file holds this already; it counts as written just now, so that nobody prunes what is about to be pointed to."""
    try:
        same = path.stat().st_size == len(data) and path.read_bytes() == data
        if same:
            os.utime(path)
    except FileNotFoundError:
        return False
    return same


def _written(path: Path, data: bytes, tries: int = 5) -> None:
    """A whole file under its name, on the disk before it has it."""
    for left in reversed(range(tries)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".writing-", delete=False) as file:
                partial = Path(file.name)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(0o644)
            partial.replace(path)
            return
        except FileNotFoundError:
            # another job has just pruned the folder while it was empty
            if not left:
                raise
