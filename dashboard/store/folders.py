"""What lies in the folder of a run, and how does it get there whole and go away whole?

<root>/runs/<id>/files/        what was uploaded, under harmless names
<root>/runs/<id>/ranks/        each rank's trace as Parquet (tracekit.store)
<root>/runs/<id>/timelines/    a folder per rank and capture (tracekit.pyramid), and timelines.json, which says whose they are
<root>/runs/<id>/analyses/     a folder per analysis (tracekit.stored); the database says which one is shown
<root>/runs/<id>/scratch/      a folder per attempt with what is unpacked while it reads
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from uuid import uuid4

from tracekit.durable import sync
from tracekit.errors import InputError
from tracekit.wording import size

FILES, RANKS, TIMELINES, ANALYSES, SCRATCH = "files", "ranks", "timelines", "analyses", "scratch"
_ID = re.compile(r"[0-9a-f]{32}")
_NEW, _GONE = ".new-", ".gone-"


def is_id(text: str) -> bool:
    """Whether this is the id of a run: 32 hexadecimal digits, so a safe name of a folder."""
    return _ID.fullmatch(text) is not None


def put_files(runs: Path, id: str, files: Sequence[tuple[Path, PurePosixPath]]) -> Path:
    """Make the folder of a run with its files, whole or not at all; files are linked, copied from another disk.

    Args:
        runs: folder of all runs.
        id: of the run.
        files: (where the bytes lie, where they shall stand under ``files/``).

    Returns:
        The folder.
    """
    beside = runs / f"{_NEW}{id}"
    try:
        for source, place in files:
            target = beside / FILES / place
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _linked(source, target)
        for name in (RANKS, TIMELINES, ANALYSES):
            (beside / name).mkdir()
        folder = runs / id
        beside.rename(folder)
        sync(runs)
        return folder
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def remove_folder(runs: Path, id: str) -> None:
    """Take the folder of a run away; it is gone at once, its bytes a little later."""
    gone = runs / f"{_GONE}{id}-{uuid4().hex[:8]}"
    try:
        (runs / id).rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def leftovers(runs: Path, known: set[str], before: float) -> list[Path]:
    """Folders that belong to no run: of deletions and creations that a crash cut short, none younger than ``before``."""
    out = []
    for path in runs.iterdir():
        half = path.name.startswith((_NEW, _GONE))
        if half or (is_id(path.name) and path.name not in known):
            try:
                if path.name.startswith(_GONE) or path.lstat().st_mtime < before:
                    out.append(path)
            except FileNotFoundError:
                continue
    return out


def old_attempts(folder: Path, analysis: str | None, before: float) -> list[Path]:
    """What attempts to read a run have left in its folder that is not shown any more, none of it younger than ``before``.

    Args:
        folder: of a run of which nothing is being read.
        analysis: name of the analysis that is shown, or None.
        before: seconds since 1970.

    Raises:
        InputError: what says which timelines are shown is damaged, so nothing can be told apart.
    """
    kept = {path.parent.name for path in timelines_of(folder).values()} | {(analysis or "").partition("-")[0], analysis or ""}
    out = []
    for name in (RANKS, TIMELINES, ANALYSES):
        for path in (folder / name).iterdir() if (folder / name).is_dir() else ():
            # an early analysis of the attempt that is shown is none of what is kept
            if path.is_dir() and path.name not in kept and path.lstat().st_mtime < before:
                out.append(path)
    scratch = (folder / SCRATCH).iterdir() if (folder / SCRATCH).is_dir() else ()
    return [*out, *(path for path in scratch if path.lstat().st_mtime < before)]


def make_scratch(folder: Path, attempt: str) -> Path:
    """A folder for what an attempt unpacks: on the disk that is watched, and gone with the run. What killed attempts left there goes now."""
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    (folder / SCRATCH).mkdir(exist_ok=True)
    (folder / SCRATCH / attempt).mkdir()
    return folder / SCRATCH / attempt


def remove_scratch(folder: Path, attempt: str) -> None:
    """Take away what an attempt had unpacked, however it ended."""
    shutil.rmtree(folder / SCRATCH / attempt, ignore_errors=True)


def no_room(folder: Path, min_free_bytes: int) -> str | None:
    """Why nothing more may be written there; None while there is room."""
    free = shutil.disk_usage(folder).free
    if free >= min_free_bytes:
        return None
    return f"the server's disk has {size(free)} left, of which {size(min_free_bytes)} stay free; delete runs, or free space there"


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder; not of what is unpacked there for the time of a reading."""
    total = 0
    for parent, inner, names in os.walk(folder):
        if Path(parent) == folder and SCRATCH in inner:
            inner.remove(SCRATCH)
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_size
            except FileNotFoundError:
                continue
    return total


def write_timelines(folder: Path, timelines: Mapping[tuple[int, int], str]) -> None:
    """Say which rank and capture each timeline is of.

    Args:
        folder: of the run.
        timelines: (rank, capture) -> name of the folder under ``timelines/``.
    """
    text = json.dumps([[rank, capture, name] for (rank, capture), name in sorted(timelines.items())])
    target = folder / TIMELINES / "timelines.json"
    beside = target.with_name(f".{target.name}.{uuid4().hex}")
    beside.write_text(text)
    sync(beside)
    beside.replace(target)
    sync(target.parent)


def timelines_of(folder: Path) -> dict[tuple[int, int], Path]:
    """The folders of a run's timelines by (rank, capture); none where nothing is stored yet.

    Raises:
        InputError: the list of them is damaged.
    """
    try:
        stated = json.loads((folder / TIMELINES / "timelines.json").read_text())
        return {(int(rank), int(capture)): folder / TIMELINES / str(name) for rank, capture, name in stated}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError("the list of this run's timelines is damaged; read the run again", folder.name) from error


def _linked(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        shutil.copyfile(source, target, follow_symlinks=False)
        sync(target)
