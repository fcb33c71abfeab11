"""How do paths become facts? Find each rank's files, read and join them, run the passes, boil down. Read this first.

    paths -> discover: sources (one per rank and capture) -> RankTrace(s) -> join -> passes -> RankFacts -> gather: (rank, capture)

Each source is handled on its own, in this process or in spawned ones; only facts come back, so memory grows with the
largest rank of a worker and not with the number of ranks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tracekit import beside, readers
from tracekit.discover import Source, find
from tracekit.errors import InputError, UsageError
from tracekit.facts import boil_down
from tracekit.findings import finding
from tracekit.gather import Boiled, gather
from tracekit.isolation import isolated
from tracekit.join import join
from tracekit.names import rank_of
from tracekit.passes import run_passes
from tracekit.reading import DEFAULT, Doing, Reading
from tracekit.trace import RankFacts, RankTrace
from tracekit.vocabulary import Severity
from tracekit.wording import plural

#: progress(done, total, what): called after each source.
Progress = Callable[[int, int, str], None]
#: keep(place, trace as its files give it, the same after the passes): called in the process that reads, so it must be picklable. A place
#: is (number of the source, number of the trace within it).
Place = tuple[int, int]
Keep = Callable[[Place, RankTrace, RankTrace], None]
#: early(facts of what has been read so far, by place; numbers of the sources that are over, refused ones too): called in this process, after
#: each source.
Early = Callable[[Mapping[Place, Boiled], frozenset[int]], None]
#: sizes(bytes of each source): called in this process, before the first is read.
Sizes = Callable[[Sequence[int]], None]
#: along(number of a source, what is shown of it, how far it is): called in the process that reads, so it must be picklable.
Along = Callable[[int, str, Doing], None]
#: remember(number of the source, what is shown of it, its facts): called in the process that reads, so it must be picklable.
Remember = Callable[[int, str, Sequence[RankFacts]], None]
#: known(number of the source, what is shown of it): facts that were remembered, or None where it is to be read; called in this process.
Known = Callable[[int, str], list[RankFacts] | None]

#: Below this many compressed bytes, starting worker processes costs more than it saves.
_WORTH_A_POOL = 4 << 20


@dataclass(frozen=True)
class Ingested:
    """What the paths hold.

    Attributes:
        ranks: facts by (rank, capture).
        findings: what was left out or ignored (rows of ``schema.FINDINGS`` as dicts).
    """

    ranks: Mapping[tuple[int, int], RankFacts]
    findings: tuple[Mapping[str, Any], ...] = ()


def ingest(
    paths: Sequence[str | Path],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    reading: Reading = DEFAULT,
    capture: int | None = None,
    within: Path | None = None,
    keep: Keep | None = None,
    early: Early | None = None,
    sizes: Sizes | None = None,
    along: Along | None = None,
    remember: Remember | None = None,
    known: Known | None = None,
) -> Ingested:
    """Read every rank found under the paths and boil it down.

    Args:
        paths: trace files, archives of them, run directories, or folders that hold any of these.
        workers: processes to read with; None: as many as there are cores, none for small inputs.
        progress: called as ``progress(done, total, what)``.
        reading: caps against hostile files, and whether to salvage damaged ones.
        capture: use only the captures of this number.
        within: messages call files by their paths within this folder; None: as they were found.
        keep: is given every trace while it is here, in the process that read it.
        early: is given what is known so far, after each source.
        sizes: is told how large each source is: how much of all the work it is.
        along: is told how far each source is while it is read, stage by stage.
        remember: is given the facts of each source that was read, once they are whole.
        known: knows the facts of sources that need not be read.

    Raises:
        InputError: a path is missing, holds no trace, or a trace in it is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="tracekit-") as scratch:
        found = find(paths, reading, Path(scratch))
        sources = [s if within is None else s.within(within) for s in found.sources]
        if sizes is not None:
            sizes([s.trace.path.stat().st_size for s in sources])
        outcome: dict[int, list[RankFacts] | InputError] = {}
        for number, result in _boil_all(sources, workers, progress, reading, keep, along, remember, known):
            outcome[number] = result
            if early is not None:
                early(_boiled(outcome, sources), frozenset(outcome))
        closed = [InputError(e.reason, str(e.path).removeprefix(f"{within}/"), e.offset) for e in found.refused]
        refused = [*closed, *(result for _, result in sorted(outcome.items()) if isinstance(result, InputError))]
        boiled = list(_boiled(outcome, sources).values())
        if not boiled:
            raise refused[0]
        ranks, findings = gather(boiled, capture)
    findings += [finding("file_refused", Severity.ERROR, e.reason, file=e.path, offset=e.offset) for e in refused]
    if found.ignored:
        named = [name.removeprefix(f"{within}/") for name in found.ignored[:5]]
        many = f"{plural(len(found.ignored), 'other file')} {'was' if len(found.ignored) == 1 else 'were'} ignored"
        says = f"{many}: {', '.join(named)}{', …' if len(found.ignored) > 5 else ''}"
        findings.append(finding("files_ignored", Severity.INFO, says, count=len(found.ignored)))
    return Ingested(ranks, tuple(findings))


def traces(paths: Sequence[str | Path], reading: Reading = DEFAULT, capture: int | None = None) -> Iterator[RankTrace]:
    """The whole trace of every rank found under the paths, after the passes, one at a time; times are each rank's own.

    Raises:
        InputError: a path is missing, holds no trace, or a trace or an archive in it is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="tracekit-") as scratch:
        found = find(paths, reading, Path(scratch))
        for refused in found.refused:
            raise refused
        for source in found.sources:
            yield from (run_passes(trace) for trace in _joined(source, reading) if capture in (None, trace.meta.capture))


def boil(
    source: Source, reading: Reading = DEFAULT, keep: Keep | None = None, number: int = 0, along: Along | None = None, remember: Remember | None = None
) -> list[RankFacts] | InputError:
    """The ranks of one source, from its files to their facts; with ``reading.keep_going`` the refusal, if it is refused."""
    if along is not None:
        reading = replace(reading, tell=partial(along, number, _label(source)))
    try:
        facts = [_passed(trace, keep, (number, i), reading) for i, trace in enumerate(_joined(source, reading))]
    except InputError as error:
        if reading.keep_going:
            return error
        raise
    except MemoryError as error:
        if reading.max_memory is not None:  # the process has a cap of its own, and who set it words what to do
            raise
        refusal = InputError("needs more memory to read than there is for it; allow more, use fewer workers, or record shorter windows", source.trace.label)
        if reading.keep_going:
            return refusal
        raise refusal from error
    if remember is not None:
        remember(number, _label(source), facts)
    return facts


def _passed(trace: RankTrace, keep: Keep | None, place: Place, reading: Reading) -> RankFacts:
    reading.says("passes", events=len(trace.events))
    passed = run_passes(trace, partial(reading.says, "passes"))
    if keep is not None:
        reading.says("keep")
        keep(place, trace, passed)
    return boil_down(passed, partial(reading.says, "facts"))


def _boiled(outcome: Mapping[int, list[RankFacts] | InputError], sources: Sequence[Source]) -> dict[Place, Boiled]:
    """What was read, in the order of the sources."""
    read = [(number, several) for number, several in sorted(outcome.items()) if not isinstance(several, InputError)]
    return {(number, i): Boiled(facts, sources[number].trace.path) for number, several in read for i, facts in enumerate(several)}


def _joined(source: Source, reading: Reading) -> list[RankTrace]:
    """The traces of a source, each with what its other files say; one beside it that cannot be read takes nothing from it."""
    traces = readers.read(source.trace.path, reading, source.trace.label)
    others: list[RankTrace] = []
    alone = replace(reading, tell=None)  # what stands beside a trace is small
    for file in source.beside:
        try:
            others += readers.read(file.path, alone, file.label)
        except InputError as error:
            says = f"{error.reason}; it was left out"
            traces = tuple(t.with_finding("file_beside_refused", "warning", says, file=error.path, offset=error.offset) for t in traces)
    by_name = rank_of(source.trace.label) if len(traces) == 1 else None
    return [_completed(join(trace, others), source, by_name) for trace in traces]


def _completed(trace: RankTrace, source: Source, by_name: int | None) -> RankTrace:
    """The trace with what its name and its run directory add."""
    meta = trace.meta
    rank = by_name if meta.rank is None else meta.rank
    files = meta.files
    if source.memory is not None:
        meta = replace(meta, memory_baseline=beside.memory(source.memory))
        files = (*files, str(source.trace.label.parent / "memory.json"))
    versions = {str(k): str(v) for k, v in dict(source.run.get("versions") or {}).items()}
    host = meta.host or source.run.get("host")
    return replace(trace, meta=replace(meta, rank=rank, run=source.run, files=files, versions=versions, host=host))


def _boil_all(
    sources: list[Source],
    workers: int | None,
    progress: Progress | None,
    reading: Reading,
    keep: Keep | None,
    along: Along | None,
    remember: Remember | None,
    known: Known | None,
) -> Iterable[tuple[int, list[RankFacts] | InputError]]:
    """Facts of every source, or its refusal, with its place in the list, as they become ready."""
    tell = progress or (lambda done, total, what: None)
    left = set(range(len(sources)))

    def over(i: int) -> None:
        left.discard(i)
        tell(len(sources) - len(left), len(sources), _label(sources[i]))

    for i in sorted(left):
        facts = None if known is None else known(i, _label(sources[i]))
        if facts is not None:
            yield i, facts
            over(i)
    size = sum(sources[i].trace.path.stat().st_size for i in left)
    n = min(len(left), workers if workers is not None else (os.cpu_count() or 1) if size > _WORTH_A_POOL else 1)
    capped = reading.max_memory is not None or reading.max_seconds is not None
    if n <= 1 and not capped:
        for i in sorted(left):
            yield i, boil(sources[i], reading, keep, i, along, remember)
            over(i)
        return
    pool: Executor = ThreadPoolExecutor(max(n, 1)) if capped else ProcessPoolExecutor(n, mp_context=get_context("spawn"))
    work = _boil_isolated if capped else boil
    with pool:
        places = {pool.submit(work, sources[i], reading, keep, i, along, remember): i for i in sorted(left)}
        try:
            for future in as_completed(places):
                yield places[future], future.result()
                over(places[future])
            return
        except BrokenProcessPool as error:
            if not reading.keep_going:
                raise UsageError(
                    "a process that read a trace ended at once: in a script, call analyze() under `if __name__ == '__main__':`, or pass workers=1; "
                    "else it ran out of memory: pass fewer workers"
                ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    # which file ended its process cannot be told, so each of those that are left gets a process to itself
    for i in sorted(left):
        yield i, _boil_isolated(sources[i], reading, keep, i, along, remember)
        over(i)


def _boil_isolated(
    source: Source, reading: Reading, keep: Keep | None, number: int, along: Along | None, remember: Remember | None
) -> list[RankFacts] | InputError:
    try:
        return isolated(boil, (source, reading, keep, number, along, remember), source.trace.label, reading.max_memory, reading.max_seconds)
    except InputError as error:
        if reading.keep_going:
            return error
        raise


def _label(source: Source) -> str:
    """What is shown of a source while it is read: enough of its path to tell ranks apart."""
    label = source.trace.label
    return "/".join(label.parts[-3:] if label.name.startswith("trace.json") else label.parts[-1:])


__all__ = ["Along", "Early", "Ingested", "Keep", "Place", "Progress", "Sizes", "Source", "boil", "find", "ingest"]
