"""Which runs are named on a command line? Run directories, traces, reports, snapshots, and folders that hold several of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tracekit.compare.snapshot import REPORT_SCHEMA_PREFIX, SNAPSHOT_SCHEMA, Snapshot, from_dict, snapshot
from tracekit.errors import InputError

#: A report larger than this is refused.
MAX_BYTES = 1 << 30
#: Runs that one folder may hold.
MOST_RUNS = 1000

#: Makes the report document of traces.
Analyse = Callable[[Path], dict[str, Any]]


def read_runs(paths: Iterable[Path], analyse: Analyse, *, max_bytes: int = MAX_BYTES) -> list[Snapshot]:
    """The snapshots of every run that the paths name, in their order.

    A file with a ``schema`` of ours is read as a report or snapshot; a folder whose children are runs, reports or
    snapshots stands for all of them; everything else is traces of one run, which ``analyse`` reads.

    Raises:
        InputError: a path is missing, or holds nothing that can be read.
    """
    return [s for path in paths for s in _runs_of(path, analyse, max_bytes)]


def _runs_of(path: Path, analyse: Analyse, max_bytes: int) -> list[Snapshot]:
    if not path.exists():
        raise InputError("there is no such file or folder; name a run directory, a report (tracekit analyze --json), or a folder of either", path)
    if path.is_file():
        document = document_of(path, max_bytes)
        return [_read(document, path)] if document is not None else [snapshot(analyse(path), str(path))]
    if (path / "run.json").is_file():
        return [snapshot(analyse(path), str(path))]
    children = sorted(c for c in path.iterdir() if not c.name.startswith("."))
    runs = [c for c in children if c.is_dir() and (c / "run.json").is_file()]
    found = [(c, document_of(c, max_bytes)) for c in children if c.is_file() and c.suffix == ".json"]
    reports = [(c, d) for c, d in found if d is not None]
    if len(runs) + len(reports) > MOST_RUNS:
        raise InputError(f"this folder holds {len(runs) + len(reports):,} runs; at most {MOST_RUNS:,} are compared", path)
    if runs or reports:
        return [*(snapshot(analyse(c), str(c)) for c in runs), *(_read(d, c) for c, d in reports)]
    return [snapshot(analyse(path), str(path))]


def document_of(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any] | None:
    """A report or snapshot, or None where the file is something else (a trace, which a reader may know).

    Raises:
        InputError: it says that it is one, and is damaged or too large.
    """
    with path.open("rb") as file:
        start = file.read(4096)
        if not _ours(start):
            return None
        if path.stat().st_size > max_bytes:
            raise InputError(f"this report is larger than {max_bytes:,} bytes; raise the cap with --max-bytes if it is yours", path)
        text = start + file.read()
    document = parsed(text, path)
    return document if str(document.get("schema")).startswith("tracekit.") else None


def parsed(text: bytes, path: Path | str) -> dict[str, Any]:
    """A JSON object, strictly: no NaN, no Infinity, no endless nesting.

    Raises:
        InputError: it is none.
    """
    try:
        document = json.loads(text.decode("utf-8-sig"), parse_constant=_no_constant)
    except json.JSONDecodeError as e:
        raise InputError(f"this is damaged JSON: {e.msg}; write the file again", path, e.pos) from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"this is no JSON that tracekit writes: {str(e)[:100]}", path) from e
    if not isinstance(document, dict):
        raise InputError(f"this holds a {type(document).__name__}, not an object", path)
    return document


def _ours(start: bytes) -> bool:
    """Whether a file begins like a document of ours: an object whose schema stands near its start (keys may be sorted)."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith(b"{") and (b'"tracekit.' in text or text.startswith(b'{"about"'))


def _read(document: dict[str, Any], path: Path) -> Snapshot:
    schema = document.get("schema")
    if schema == SNAPSHOT_SCHEMA:
        return from_dict(document, str(path))
    if isinstance(schema, str) and schema.startswith(REPORT_SCHEMA_PREFIX):
        return snapshot(document, str(path))
    raise InputError(f"this is neither a report nor a snapshot but {str(schema)[:60]!r}; write a report with tracekit analyze RUN --json", path)


def _no_constant(name: str) -> float:
    raise ValueError(f"it holds {name}; unknown is null")
