"""What does the child do with a run? Read its ranks, store each, show early what is known, then analyse and store everything.

    files/ -> ingest (in processes) -> per rank: ranks/<attempt>/*.parquet, timelines/<attempt>/*/ -> analyses/<attempt>-n/ -> news

Everything is written under names of this attempt, beside what another attempt or an earlier analysis has left, and only the news
make it count.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dashboard.jobs.along import Line, listening
from dashboard.jobs.messages import Analysed, Done, Failed, News, Order, Progress
from dashboard.jobs.remembered import Remembered
from dashboard.jobs.summary import summary_of
from dashboard.jobs.what_ifs import simulated
from dashboard.store.database import FULL
from dashboard.store.folders import ANALYSES, FILES, RANKS, TIMELINES, make_scratch, no_room, remove_scratch, size_of, write_timelines
from tracekit import pyramid, store, stored
from tracekit.analysis import of_ranks
from tracekit.durable import is_full, sync
from tracekit.errors import InputError, TracekitError
from tracekit.gather import Boiled, gather
from tracekit.ingest import Ingested, Place, ingest
from tracekit.trace import RankFacts, RankTrace
from tracekit.wording import clean, plural, size

#: An early analysis may take this share of the time; the rest is for reading.
_EARLY_SHARE = 0.2
#: With fewer seconds of reading to come, it would only make the whole one come later.
_WORTH_SHOWING_S = 5.0
_LONGEST_ERROR = 600
#: How far a file is, is said no more often than this, and time left not before so much of the work is over.
_TELL_S = 0.25
_TELLING_SHARE = 0.05
_DOING = {
    "unpack": "takes in",
    "decode": "decodes",
    "tables": "makes tables of",
    "passes": "links and classifies the events of",
    "keep": "stores",
    "facts": "adds up",
}
_OPTION = re.compile(r"raise (--[a-z-]+)")
#: What the command line's options are called where a server is started.
_SERVERS = {"--max-memory": "--job-memory", "--max-seconds": "--job-seconds"}
_FULL = f"{FULL}, and read it again"
_LARGER = "start tracekit serve with a larger "
#: A file of a few events takes as long as so many bytes of a large one.
_AS_IF = 1 << 19
#: Below so many bytes, starting processes takes longer than reading.
_WORTH_PROCESSES = 4 << 20


def read(order: Order, tell: Callable[[News], None]) -> None:
    """Read a run, and tell how it goes; ends with Done or Failed, whatever happens to it."""
    files = Path(order.folder) / FILES
    try:
        _read(order, files, tell)
    except TracekitError as error:
        tell(_failed(_FULL if is_full(error.__cause__) else str(error), files))
    except MemoryError:
        allowed = "there is" if order.memory_bytes is None else f"the {size(order.memory_bytes)} that it may use"
        tell(_failed(f"needs more memory than {allowed}; upload fewer ranks or shorter windows, or raise --job-memory", files))
    except OSError as error:
        if not is_full(error):
            raise
        tell(_failed(_FULL, files))


def _read(order: Order, files: Path, tell: Callable[[News], None]) -> None:
    folder = Path(order.folder)
    for name in (RANKS, TIMELINES):
        (folder / name / order.attempt).mkdir()
    remembered = Remembered(folder, order.attempt)
    remembered.adopt()
    watch = _Watch(order, tell, remembered)
    tell(Progress("reading", "looking for traces"))
    workers = order.readers if size_of(files) > _WORTH_PROCESSES else 1
    with _scratch(folder, order.attempt), listening(watch.along) as along:
        ingested = ingest(
            [files],
            workers=workers,
            progress=watch.read,
            reading=order.reading,
            within=files,
            keep=Keep(folder, order.attempt, order.min_free_bytes),
            early=watch.early,
            sizes=watch.found,
            along=along,
            remember=remembered.remember,
            known=watch.known,
        )
    tell(watch.progress("analysing", f"brings {plural(len(ingested.ranks), 'rank')} together"))
    analysis = of_ranks(_for_server(ingested))
    for name in (RANKS, TIMELINES):
        sync(folder / name / order.attempt)
        sync(folder / name)
    write_timelines(folder, _timelines(ingested, watch.boiled, order.attempt))
    _sweep(folder, order.attempt)  # before the run is measured: what is gone counts against no quota
    name = f"{order.attempt}-full"
    stored.save(analysis, folder / ANALYSES / name, extras=simulated(analysis))
    remembered.forget()
    tell(Analysed(name, False, size_of(folder), summary_of(analysis)))
    tell(Done())


@contextmanager
def _scratch(folder: Path, attempt: str) -> Iterator[None]:
    """What is unpacked lies in the folder of the run for as long as the block runs."""
    before, tempfile.tempdir = tempfile.tempdir, str(make_scratch(folder, attempt))
    try:
        yield
    finally:
        tempfile.tempdir = before
        remove_scratch(folder, attempt)


@dataclass(frozen=True)
class Keep:
    """Stores a rank while it is here; called in the process that read it.

    Attributes:
        folder: of the run.
        attempt: names the folders to write in.
        min_free_bytes: bytes of the disk that stay free.
    """

    folder: Path
    attempt: str
    min_free_bytes: int

    def __call__(self, place: Place, trace: RankTrace, passed: RankTrace) -> None:
        """Store the trace as Parquet and its timeline, if it has slices.

        Raises:
            DiskFull: there is no room left but what stays free.
        """
        if full := no_room(self.folder, self.min_free_bytes):
            raise DiskFull(full)
        name = _name(place)
        rank = self.folder / RANKS / self.attempt / f"{name}.parquet"
        store.save(trace, rank)
        sync(rank)
        if len(passed.events):
            pyramid.build(passed, self.folder / TIMELINES / self.attempt / name)


class DiskFull(TracekitError):
    """There is no room for what is read (exit code 4)."""

    exit_code = 4


@dataclass
class _Now:
    """A file that is being read: about how much of the work is over, and its events and bytes once they are known."""

    share: float = 0.0
    events: int | None = None
    nbytes: int | None = None


@dataclass
class _Watch:
    """Counts what was read and is being read, and shows early what it says; files in work are heard of in another thread."""

    order: Order
    tell: Callable[[News], None]
    remembered: Remembered
    began: float = field(default_factory=time.monotonic)
    boiled: Mapping[Place, Boiled] = field(default_factory=dict)
    done: int = 0
    total: int = 0
    shown: int = 0
    again_at: float = 0.0
    sizes: Sequence[int] = ()
    over: frozenset[int] = frozenset()
    known_sources: set[int] = field(default_factory=set)
    known_events: int = 0
    now: dict[int, _Now] = field(default_factory=dict)
    told_at: float = field(default_factory=time.monotonic)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def found(self, sizes: Sequence[int]) -> None:
        """There are sources of so many bytes."""
        with self.lock:
            self.sizes = [nbytes + _AS_IF for nbytes in sizes]
            self.total = len(sizes)

    def known(self, number: int, label: str) -> list[RankFacts] | None:
        """What an earlier attempt has read; its time was another's, so it is no part of how fast this one is."""
        facts = self.remembered.known(number, label)
        if facts is not None:
            self.known_sources.add(number)
            self.known_events += sum(_events(f) for f in facts)
        return facts

    def along(self, line: Line) -> None:
        """A file is so far."""
        with self.lock:
            if line.number in self.over or not 0 <= line.number < len(self.sizes):
                return  # it was read or refused meanwhile; or there is none such
            file = self.now.setdefault(line.number, _Now())
            file.share = max(file.share, min(max(line.doing.share, 0.0), 1.0))
            file.events = file.events if line.doing.events is None else line.doing.events
            file.nbytes = file.nbytes if line.doing.nbytes is None else line.doing.nbytes
            if time.monotonic() - self.told_at >= _TELL_S:
                much = f"{plural(file.events, 'event')}" if file.events is not None else size(file.nbytes) if file.nbytes else ""
                self._tell(self.progress("reading", f"{_DOING[line.doing.stage]} {clean(line.name, 160)}" + (f" ({much})" if much else "")))

    def read(self, done: int, total: int, what: str) -> None:
        """A file is read."""
        with self.lock:
            self.done, self.total = done, total
            now = self.progress("reading", f"read {clean(what, 160)}")
            self._tell(now)
        if (now.seconds_left or 0) >= _WORTH_SHOWING_S and time.monotonic() >= self.again_at:
            self._show()

    def early(self, boiled: Mapping[Place, Boiled], over: frozenset[int]) -> None:
        """What is known so far, and which sources are over."""
        with self.lock:
            self.boiled, self.over = boiled, over
            self.now = {number: file for number, file in self.now.items() if number not in over}

    def progress(self, stage: str, message: str) -> Progress:
        """Where it stands."""
        took = time.monotonic() - self.began
        read = sum(_events(b.facts) for b in self.boiled.values())
        events = read + sum(file.events or 0 for file in self.now.values())
        own = read - self.known_events + sum(file.share * (file.events or 0) for file in self.now.values())
        per_s = own / took if own > 0 and took > 0 else None
        parts = [*((number, 1.0) for number in self.over), *((number, file.share) for number, file in self.now.items())]
        share = min(1.0, sum(self.sizes[n] * part for n, part in parts) / sum(self.sizes)) if self.sizes else None
        mine = (share or 0.0) - (sum(self.sizes[n] for n in self.known_sources) / sum(self.sizes) if self.sizes else 0.0)
        left = took * (1 - (share or 0.0)) / mine if mine >= _TELLING_SHARE and stage == "reading" else None
        ranks = {b.facts.meta.rank for b in self.boiled.values() if b.facts.meta.rank is not None}
        return Progress(stage, message, self.done, self.total, events, per_s, left, sorted(ranks), share)

    def _tell(self, now: Progress) -> None:
        self.told_at = time.monotonic()
        self.tell(now)

    def _show(self) -> None:
        """Analyse the ranks that are here, if they can stand for themselves."""
        began = time.monotonic()
        try:
            ranks, findings = gather(list(self.boiled.values()))
            analysis, folder, name = of_ranks(_for_server(Ingested(ranks, tuple(findings)))), Path(self.order.folder), f"{self.order.attempt}-{self.shown}"
            stored.save(analysis, folder / ANALYSES / name, partial=True)
            self.tell(Analysed(name, True, size_of(folder), summary_of(analysis)))
        except (InputError, TracekitError):
            # so far they contradict each other or lack a rank; with the others they may not, and if they do the end says so
            self.again_at = began
            return
        self.shown += 1
        self.again_at = time.monotonic() + (time.monotonic() - began) / _EARLY_SHARE


def _timelines(ingested: Ingested, boiled: Mapping[Place, Boiled], attempt: str) -> dict[tuple[int, int], str]:
    """Which timeline each rank and capture has; facts keep their tables when they are given their place, so these tell."""
    of = {id(b.facts.tables["extent"]): place for place, b in boiled.items() if _events(b.facts)}
    return {key: f"{attempt}/{_name(of[found])}" for key, facts in ingested.ranks.items() if (found := id(facts.tables["extent"])) in of}


def _events(facts: RankFacts) -> int:
    return int(facts["extent"]["events"].iloc[0])


def _name(place: Place) -> str:
    return f"s{place[0]:05d}-{place[1]}"


def _sweep(folder: Path, attempt: str) -> None:
    """What earlier attempts left goes; the analysis that they may have shown stays for whoever is reading it."""
    for name in (RANKS, TIMELINES):
        for path in (folder / name).iterdir():
            if path.is_dir() and path.name != attempt:
                shutil.rmtree(path, ignore_errors=True)


def _for_server(ingested: Ingested) -> Ingested:
    """What was found, worded for whoever reads it on a page."""

    def worded(facts: RankFacts) -> RankFacts:
        found = facts["findings"]
        return replace(facts, tables={**facts.tables, "findings": found.assign(message=found["message"].map(_served))}) if len(found) else facts

    ranks = {key: worded(facts) for key, facts in ingested.ranks.items()}
    return replace(ingested, ranks=ranks, findings=tuple({**f, "message": _served(str(f["message"]))} for f in ingested.findings))


def _served(says: str) -> str:
    """What is said on the command line, as it is done on a server."""
    says = _OPTION.sub(lambda found: _LARGER + _SERVERS.get(found[1], found[1]), says)
    return says.replace("allow more, use fewer workers", f"{_LARGER}--job-memory")


def _failed(error: str, files: Path) -> Failed:
    """The reason, with files by the names that their sender knows, and options by whose they are."""
    return Failed(clean(_served(error).replace(f"{files}/", "").replace(str(files), "the upload"), _LONGEST_ERROR))
