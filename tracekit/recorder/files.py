"""How is a file of the run directory written? Whole or not at all: to a temporary name first, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What a recorder writes into a capture's folder.
CAPTURE_FILES = ("trace.json.gz", "flight_recorder.json", "memory.json")


def rank_directory(run: Path, rank: int) -> Path:
    """Folder of one rank.

    >>> rank_directory(Path("runs/tp"), 3).as_posix()
    'runs/tp/rank00003'
    """
    return run / f"rank{rank:05d}"


def capture_directory(run: Path, rank: int, capture: int) -> Path:
    """Folder of one profiler cycle of one rank.

    >>> capture_directory(Path("runs/tp"), 0, 1).as_posix()
    'runs/tp/rank00000/capture001'
    """
    return rank_directory(run, rank) / f"capture{capture:03d}"


def clear_captures(run: Path, rank: int) -> None:
    """Remove what an earlier recording of this rank left here; files that a recorder does not write stay.

    Raises:
        OSError: a file cannot be removed.
    """
    for folder in rank_directory(run, rank).glob("capture[0-9][0-9][0-9]"):
        for name in CAPTURE_FILES:
            (folder / name).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def ranks_beyond(run: Path, world_size: int) -> list[str]:
    """Names of rank folders that this run will not write: left over from a run with more ranks."""
    return sorted(p.name for p in run.glob("rank[0-9][0-9][0-9][0-9][0-9]") if int(p.name.removeprefix("rank")) >= world_size)


def write_text(path: Path, text: str) -> None:
    """Write a file whole; a reader never sees half of it.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    """Write a JSON document whole.

    Raises:
        OSError: the folder cannot be made or written.
        TypeError: a value has no JSON form.
    """
    write_text(path, json.dumps(content, indent=indent) + "\n")
