"""How do paths become facts? Find each rank's files, read and join them, run the passes, boil down. Read this first.

    paths -> sources (one per rank and capture) -> RankTrace -> passes -> RankFacts

Each source is handled on its own, in this process or in spawned ones; only facts come back, so memory grows with the
largest rank of a worker and not with the number of ranks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tracekit import beside, readers
from tracekit.errors import InputError, UsageError
from tracekit.facts import boil_down
from tracekit.passes import run_passes
from tracekit.trace import RankFacts, RankMeta, RankTrace

#: progress(done, total, what): called after each source.
Progress = Callable[[int, int, str], None]

#: Below this many compressed bytes, starting worker processes costs more than it saves.
_WORTH_A_POOL = 4 << 20
_SIDE_FILES = frozenset({"run.json", "result.json", "flight_recorder.json", "memory.json", "report.json"})
_RANK_IN_NAME = (re.compile(r"rank[-_]?(\d{1,6})(?!\d)"), re.compile(r"^(\d{1,6})[_.]"))
_CAPTURE_IN_PATH = re.compile(r"(?:capture|iteration_)(\d{1,15})")


@dataclass(frozen=True)
class Source:
    """The files of one rank and capture.

    Attributes:
        trace: the trace itself.
        flight_recorder, memory: side files beside it, where there are any.
        run: the parsed ``run.json`` above it, or {}.
    """

    trace: Path
    flight_recorder: Path | None = None
    memory: Path | None = None
    run: Mapping[str, Any] = field(default_factory=dict)


def ingest(paths: Sequence[str | Path], *, workers: int | None = None, progress: Progress | None = None) -> dict[tuple[int, int], RankFacts]:
    """Read every rank found under the paths and boil it down.

    Args:
        paths: trace files, run directories, or folders that hold either.
        workers: processes to read with; None: as many as there are cores, none for small inputs.
        progress: called as ``progress(done, total, what)``.

    Returns:
        Facts by (rank, capture).

    Raises:
        InputError: a path is missing, holds no trace, or a trace in it is damaged.
    """
    sources = find(paths)
    facts = [f for _, f in sorted(_boil_all(sources, workers, progress), key=lambda pair: pair[0])]
    return _keyed(facts)


def find(paths: Sequence[str | Path]) -> list[Source]:
    """The traces under the paths, with what belongs to them.

    Raises:
        InputError: a path does not exist, or a folder holds no trace.
        UsageError: the traces belong to several runs.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError("no such file or folder; check the path", path)
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and _may_be_trace(p))
        traces = files if path.is_file() else [p for p in files if readers.reader_of(p) is not None]
        if not traces:
            raise InputError("holds no trace; give a folder with torch.profiler traces (.json, .json.gz) or a run directory of tracekit run", path)
        for trace in traces:
            found.setdefault(trace.resolve(), trace)
    run_of = {real: next((p for up in list(real.parents)[:4] if (p := up / "run.json").is_file()), None) for real in found}
    runs = {path: beside.run_json(path) for path in dict.fromkeys(run_of.values()) if path is not None}
    if len(runs) > 1:
        names = ", ".join(str(path.parent) for path in list(runs)[:3])
        raise UsageError(f"these are traces of {len(runs)} runs ({names}{', …' if len(runs) > 3 else ''}); analyse one at a time")
    return [_source(trace, runs[run] if (run := run_of[real]) else {}) for real, trace in found.items()]


def boil(source: Source) -> RankFacts:
    """One rank, from its files to its facts."""
    return boil_down(run_passes(_joined(source)))


def _joined(source: Source) -> RankTrace:
    """The rank's trace with what its other files say."""
    (trace,) = readers.read(source.trace)
    meta = trace.meta
    meta = replace(meta, rank=_rank_in_name(source.trace) if meta.rank is None else meta.rank, capture=_capture(source.trace), run=source.run)
    files = [source.trace]
    if source.flight_recorder:
        meta = replace(meta, flight_recorder=beside.flight_recorder(source.flight_recorder))
        files.append(source.flight_recorder)
    if source.memory:
        meta = replace(meta, memory_baseline=beside.memory(source.memory))
        files.append(source.memory)
    versions = {str(k): str(v) for k, v in dict(source.run.get("versions") or {}).items()}
    return replace(trace, meta=replace(meta, files=tuple(map(str, files)), versions=versions, host=meta.host or source.run.get("host")))


def _boil_all(sources: list[Source], workers: int | None, progress: Progress | None) -> Iterable[tuple[int, RankFacts]]:
    """Facts of every source with its place in the list, as they become ready."""
    tell = progress or (lambda done, total, what: None)
    size = sum(s.trace.stat().st_size for s in sources)
    n = min(len(sources), workers if workers is not None else (os.cpu_count() or 1) if size > _WORTH_A_POOL else 1)
    if n <= 1:
        for i, source in enumerate(sources):
            yield i, boil(source)
            tell(i + 1, len(sources), _label(source))
        return
    with ProcessPoolExecutor(n, mp_context=get_context("spawn")) as pool:
        places = {pool.submit(boil, source): i for i, source in enumerate(sources)}
        try:
            for done, future in enumerate(as_completed(places), 1):
                yield places[future], future.result()
                tell(done, len(sources), _label(sources[places[future]]))
        except BrokenProcessPool as error:
            raise UsageError(
                "a process that read a trace ended at once: in a script, call analyze() under `if __name__ == '__main__':`, or pass workers=1; "
                "else it ran out of memory: pass fewer workers"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _label(source: Source) -> str:
    """What is shown of a source while it is read: enough of its path to tell ranks apart."""
    return "/".join(source.trace.parts[-3:] if source.trace.name.startswith("trace.json") else source.trace.parts[-1:])


def _keyed(facts: list[RankFacts]) -> dict[tuple[int, int], RankFacts]:
    """Facts by (rank, capture): captures numbered in order of time within each rank.

    Raises:
        InputError: two files claim the same rank and overlap in time, several files name no rank, or jobs are mixed.
    """
    sizes = {f.meta.world_size: f.meta.files[0] for f in facts if f.meta.world_size}
    if len(sizes) > 1:
        (size, path), (other, beyond) = list(sizes.items())[:2]
        raise InputError(f"records a job of {size} ranks, and {beyond} one of {other}; analyse one job at a time", path)
    nameless = [f for f in facts if f.meta.rank is None]
    if nameless and len(facts) > 1:
        raise InputError(f"no rank in the file or its name, among {len(facts)} files; rename it like rank3.json", nameless[0].meta.files[0])
    by_rank: dict[int, list[RankFacts]] = {}
    for f in facts:
        by_rank.setdefault(f.meta.rank or 0, []).append(f)
    out = {}
    for rank, mine in sorted(by_rank.items()):
        mine.sort(key=lambda f: (f.meta.capture, _start(f)))
        for number, f in enumerate(mine):
            if number and _start(f) < _end(mine[number - 1]):
                raise InputError(f"claims rank {rank} like {mine[number - 1].meta.files[0]}, and both record the same time; give one of them", f.meta.files[0])
            out[rank, number] = RankFacts(replace(f.meta, rank=rank, capture=number), f.tables)
    return out


def _start(facts: RankFacts) -> int:
    return int(facts["extent"]["start_ns"].iloc[0])


def _end(facts: RankFacts) -> int:
    return int(facts["extent"]["end_ns"].iloc[0])


def _source(trace: Path, run: Mapping[str, Any]) -> Source:
    found = {name: p for name in ("flight_recorder.json", "memory.json") if (p := trace.parent / name).is_file()}
    return Source(trace, found.get("flight_recorder.json"), found.get("memory.json"), run)


def _may_be_trace(path: Path) -> bool:
    return path.name not in _SIDE_FILES and (path.suffix in (".json", ".gz") or ".json" in path.name)


def _rank_in_name(path: Path) -> int | None:
    for name in (path.name, path.parent.name, path.parent.parent.name):
        for pattern in _RANK_IN_NAME:
            if m := pattern.search(name):
                return int(m[1])
    return None


def _capture(path: Path) -> int:
    return next((int(m[1]) for name in (path.parent.name, path.name) if (m := _CAPTURE_IN_PATH.search(name))), 0)


__all__ = ["Progress", "RankMeta", "Source", "boil", "find", "ingest"]
