"""Which files under these paths belong to which rank? Formats by content, ranks by content, else by name.

    paths -> files (archives laid open) -> format of each -> one Source per timeline, with what lies beside it

Nothing is read here but the beginning of each file.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tracekit import beside, readers
from tracekit.durable import is_full
from tracekit.errors import InputError, UsageError
from tracekit.names import capture_of, rank_of
from tracekit.readers.archives import is_archive, unpack
from tracekit.readers.bytes import head
from tracekit.readers.strangers import describe
from tracekit.reading import Reading

#: Files of our own that are no trace, and what stands in a run directory beside one.
_OWN = frozenset({"run.json", "result.json", "memory.json", "report.json", "spans.jsonl"})
_RANK_STATED = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*"?(\d{1,7})\b')


class File(NamedTuple):
    """A file that one of the readers knows.

    Attributes:
        path: where its bytes lie.
        label: what messages call it: ``runs.zip!rank0.json`` for a member of an archive.
        format: name of the reader.
        rank: rank as the beginning of the file, else its name, tells; None where neither does.
    """

    path: Path
    label: Path
    format: str
    rank: int | None


@dataclass(frozen=True)
class Source:
    """The files of one rank and capture.

    Attributes:
        trace: the timeline, or a file that stands for itself.
        beside: files that are joined with it (Flight Recorder, memory snapshot).
        memory: the recorder's memory baseline, where there is one.
        run: the parsed ``run.json`` above it, or {}.
    """

    trace: File
    beside: tuple[File, ...] = ()
    memory: Path | None = None
    run: Mapping[str, Any] = field(default_factory=dict)

    def within(self, folder: Path) -> Source:
        """The same source, its files called by their paths within a folder where they lie there."""
        return replace(self, trace=_within(self.trace, folder), beside=tuple(_within(file, folder) for file in self.beside))


@dataclass(frozen=True)
class Found:
    """What lies under the paths.

    Attributes:
        sources: one per timeline or file that stands for itself.
        ignored: files inside a named folder or archive that are no trace.
        refused: why archives inside a named folder were not opened; with ``reading.keep_going`` only.
    """

    sources: tuple[Source, ...]
    ignored: tuple[str, ...] = ()
    refused: tuple[InputError, ...] = ()


def _within(file: File, folder: Path) -> File:
    return file._replace(label=file.label.relative_to(folder)) if file.label.is_relative_to(folder) else file


def find(paths: Sequence[str | Path], reading: Reading, scratch: Path) -> Found:
    """The files under the paths, each with what belongs to it.

    Args:
        paths: files, archives, or folders that hold either.
        reading: caps for opening archives.
        scratch: an empty folder into which archives are laid open.

    Raises:
        InputError: a path does not exist, is no trace, or holds none.
        UsageError: the traces belong to several runs.
    """
    files: dict[Path, File] = {}
    sorted_out = _Sorted()
    for path in map(Path, paths):
        here = _under(path, reading, scratch)
        sorted_out = sorted_out.and_(here)
        files.update({file.path.resolve(): file for file in here.known if file.path.resolve() not in files})
    run_of = {real: _run_above(file, sorted_out.own) for real, file in files.items()}
    runs = {path: beside.run_json(path) for path in dict.fromkeys(run_of.values()) if path is not None}
    if len(runs) > 1:
        names = ", ".join(str(path.parent) for path in list(runs)[:3])
        raise UsageError(f"these are traces of {len(runs)} runs ({names}{', …' if len(runs) > 3 else ''}); analyse one at a time")
    stood = [Source(file, memory=_memory_beside(file, sorted_out.own), run=runs[run] if (run := run_of[real]) else {}) for real, file in files.items()]
    return Found(tuple(_attached(stood)), sorted_out.unknown, sorted_out.refused)


class _Sorted(NamedTuple):
    """Files by what they are: those a reader knows, the labels of those that none does (and what the first looks like), our own side files by label.

    And why archives among them could not be opened.
    """

    known: tuple[File, ...] = ()
    unknown: tuple[str, ...] = ()
    own: Mapping[Path, Path] = {}
    looks: str | None = None
    refused: tuple[InputError, ...] = ()

    def and_(self, other: _Sorted) -> _Sorted:
        """Both together."""
        looks = self.looks if self.unknown else other.looks
        refused = (*self.refused, *other.refused)
        return _Sorted((*self.known, *other.known), (*self.unknown, *other.unknown), {**self.own, **other.own}, looks, refused)


def _under(path: Path, reading: Reading, scratch: Path) -> _Sorted:
    """The files under one path that the user named."""
    if not path.exists():
        raise InputError("no such file or folder; check the path", path)
    if path.is_dir():
        found = _sorted_out(((p, p) for p in sorted(path.rglob("*")) if p.is_file() and not _hidden(p, path)), reading, scratch)
        if not found.known:
            if found.refused:
                raise found.refused[0]
            raise InputError(f"holds no trace{_told(found)}; give torch.profiler traces, NCCL records, an nsys export, or a run directory", path)
        return found
    start = head(path)
    if is_archive(start) and readers.reader_for(start) is None:
        found = _opened(path, start, reading, scratch)
        if not found.known:
            raise InputError(f"this archive holds no trace{_told(found)}; give one with torch.profiler traces or a run directory", path)
        return found
    file = _known(path, path, start)
    return _Sorted((file if file is not None else File(path, path, "", None),))


def _told(found: _Sorted) -> str:
    if not found.unknown:
        return ""
    first, *others = found.unknown[:3]
    return f", only {', '.join([first + (f' ({found.looks})' if found.looks else ''), *others])}{', …' if len(found.unknown) > 3 else ''}"


def _sorted_out(paths: Iterable[tuple[Path, Path]], reading: Reading, scratch: Path, archives: bool = True) -> _Sorted:
    """Files (path, label) by what they are."""
    known: list[File] = []
    unknown: list[str] = []
    own: dict[Path, Path] = {}
    looks: str | None = None
    opened = _Sorted()
    for path, label in paths:
        if label.name in _OWN:
            own[label] = path
            continue
        start = head(path)
        if archives and is_archive(start) and readers.reader_for(start) is None:
            try:
                opened = opened.and_(_opened(path, start, reading, scratch))
            except InputError as error:
                if not reading.keep_going or is_full(error.__cause__):
                    raise
                opened = opened.and_(_Sorted(refused=(error,)))
        elif (file := _known(path, label, start)) is not None:
            known.append(file)
        else:
            looks = looks or describe(start, name=label.name).partition(";")[0]
            unknown.append(str(label))
    return _Sorted(tuple(known), tuple(unknown), own, looks).and_(opened)


def _opened(path: Path, start: bytes, reading: Reading, scratch: Path) -> _Sorted:
    """The files of an archive; archives inside it stay closed."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    try:
        members, left_out = unpack(path, start, folder, reading)
    except InputError:  # others are read, and need the room
        shutil.rmtree(folder, ignore_errors=True)
        raise
    found = _sorted_out(((m.path, Path(f"{path}!") / m.name) for m in members), reading, scratch, archives=False)
    return found.and_(_Sorted(unknown=tuple(f"{path}!/{name}" for name in left_out)))


def _known(path: Path, label: Path, start: bytes) -> File | None:
    reader = readers.reader_for(start)
    if reader is None:
        return None
    stated = _RANK_STATED.search(start)
    return File(path, label, reader.name, int(stated[1]) if stated else rank_of(label))


def _attached(sources: list[Source]) -> list[Source]:
    """Every timeline with the files that belong beside it; those that meet none stand for themselves.

    A dump or snapshot belongs to the timelines of its rank; of several captures to those whose folder, or whose number in
    the name, is its own. Without a rank it belongs to the only timeline of its folder.
    """
    belongs = {r.name for r in readers.READERS if r.beside}
    hosting = {r.name for r in readers.READERS if r.timeline}
    timelines = [s for s in sources if s.trace.format not in belongs]
    out = {id(s): s for s in timelines}
    alone: list[Source] = []
    for source in (s for s in sources if s.trace.format in belongs):
        hosts = _hosts(source.trace, [s for s in timelines if s.trace.format in hosting])
        for host in hosts:
            out[id(host)] = replace(out[id(host)], beside=(*out[id(host)].beside, source.trace))
        if not hosts:
            alone.append(source)
    return [*out.values(), *_together(alone)]


def _hosts(file: File, timelines: list[Source]) -> list[Source]:
    """The timelines that a file belongs beside."""
    if file.rank is None:
        near = [s for s in timelines if s.trace.label.parent == file.label.parent] or timelines
        return near if len(near) == 1 else []
    mine = [s for s in timelines if s.trace.rank == file.rank]
    same_folder = [s for s in mine if s.trace.label.parent == file.label.parent]
    same_capture = [s for s in mine if capture_of(file.label) is not None and capture_of(s.trace.label) == capture_of(file.label)]
    return same_folder if len(same_folder) == 1 else same_capture or mine


def _together(alone: list[Source]) -> list[Source]:
    """Dumps and snapshots of one rank that have no timeline, as one source."""
    by_rank: dict[Any, list[Source]] = {}
    for source in alone:
        key = source.trace.rank if source.trace.rank is not None else source.trace.label
        kept = by_rank.setdefault(key, [])
        if any(s.trace.format == source.trace.format for s in kept):
            by_rank[source.trace.label] = [source]  # two of one kind: never one over the other
        else:
            kept.append(source)
    return [replace(first, beside=tuple(s.trace for s in rest)) for first, *rest in by_rank.values()]


def _run_above(file: File, own: Mapping[Path, Path]) -> Path | None:
    """The ``run.json`` of the run directory that a file lies in, on disk or in its archive."""
    above = [up / "run.json" for up in list(file.label.parents)[:4]]
    packed = next((own[p] for p in above if p in own), None)
    return packed or next((p for up in list(file.label.absolute().parents)[:4] if (p := up / "run.json").is_file()), None)


def _memory_beside(file: File, own: Mapping[Path, Path]) -> Path | None:
    path = file.label.parent / "memory.json"
    return own.get(path) or (path if path.is_file() else None)


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
