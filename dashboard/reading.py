"""What does a page know of a run? The run's row, its analysis, and the report document with as much of it as the page shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pandas as pd
from flask import current_app

from dashboard import tables
from dashboard.components.cache import ByteCache
from tracekit.analysis import plain
from tracekit.metrics import METRICS, Result

T = TypeVar("T")

#: Key under which an app keeps what its pages share.
EXTENSION = "tracekit"
#: Seconds after which a run whose pages are all held is opened again, so that the library knows that it is still read.
_AGAIN = 1800.0


class Readable(Protocol):
    """What pages need of an analysis: the reading surface that a live and a stored one share."""

    @property
    def steady_steps(self) -> frozenset[int]:
        """The steps over which means are taken."""

    def result(self, name: str) -> Result:
        """A metric's answer."""

    def health(self) -> dict[str, Any]:
        """Verdict and findings."""

    def run(self) -> dict[str, Any]:
        """What ran."""


class UnknownRun(LookupError):
    """There is no such run; the id is the argument."""


class NotReady(LookupError):
    """The run is there, its analysis is not yet; the run's row is the argument."""


@dataclass(frozen=True)
class Shared:
    """What all pages of one app share.

    Attributes:
        settings: as the server was started.
        library: the stored runs.
        cache: drawings, documents and pages.
        server: the server that holds uploads, or None.
    """

    settings: Any
    library: Any
    cache: ByteCache
    server: Any = None


def shared() -> Shared:
    """What the pages of the app that answers this request share."""
    found: Shared = current_app.extensions[EXTENSION]
    return found


@dataclass(frozen=True)
class View:
    """One run that is ready to be read.

    Attributes:
        shared: what all pages share.
        run: its row in the library.
        generation: changes whenever the analysis does.
    """

    shared: Shared
    run: Any
    generation: int

    @property
    def analysis(self) -> Readable:
        """Its metrics, opened when something is made from them that is not held yet.

        Raises:
            NotReady: it was deleted meanwhile.
            InputError: what was stored of it is damaged.
        """
        found: Readable | None = self.shared.library.analysis(self.id)
        if found is None:
            raise NotReady(self.run)
        return found

    @property
    def id(self) -> str:
        """The run's id."""
        return str(self.run.id)

    def cached(self, key: tuple[Any, ...], make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Something that follows from this run alone, made once per generation."""
        return self.shared.cache.get((self.id, self.generation, *key), make, size)

    def metric(self, name: str) -> dict[str, Any]:
        """One metric as the report document has it; of its large tables what its section reads (``dashboard.tables``)."""
        return self.cached(("metric", name), lambda: _metric(self.analysis, name), _weight)

    def document(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """The report document with these metrics (``step_time`` always among them); all of them where None."""
        wanted = [m.name for m in METRICS] if names is None else ["step_time", *(n for n in names if n != "step_time")]
        return self._head() | {"metrics": {name: self.metric(name) for name in wanted}}

    def brief(self) -> dict[str, Any]:
        """The report document with as much of every metric as the sentence and the key numbers of a run need."""
        analysis = self.analysis
        return self._head() | {"metrics": {m.name: tables.said(m.name, analysis.result(m.name)) for m in METRICS}}

    def available(self) -> frozenset[str]:
        """Metrics that have an answer."""
        analysis = self.analysis
        return frozenset(m.name for m in METRICS if analysis.result(m.name).available)

    def _head(self) -> dict[str, Any]:
        head = self.cached(("head",), lambda: {"health": plain(self.analysis.health()), "run": plain(self.analysis.run())}, _weight)
        return {"schema": "tracekit.report/1", "tracekit": _version(), **head}

    def steady(self) -> frozenset[int]:
        """The steps over which means are taken."""
        return self.cached(("steady",), lambda: frozenset(self.analysis.steady_steps), lambda s: 32 * len(s))

    def steps(self) -> list[int]:
        """Every recorded step."""
        return [int(s) for s in self.document(())["run"].get("steps") or ()]

    def table(self, metric: str, table: str) -> pd.DataFrame | None:
        """A whole table of a metric; None where there is none."""
        if metric not in {m.name for m in METRICS}:
            return None
        return self.analysis.result(metric).tables.get(table)


def open_run(run_id: str) -> View:
    """A run that is ready.

    Raises:
        UnknownRun: there is none of that id.
        NotReady: nothing of it has been analysed yet.
        InputError: what was stored of it is damaged.
    """
    held, run = shared(), known_run(run_id)
    if run is None:
        raise UnknownRun(run_id)
    if not run.generation:
        raise NotReady(run)
    view = View(held, run, int(run.generation))
    view.cached(("opened", int(time.monotonic() // _AGAIN)), lambda: view.analysis is not None, lambda _: 0)
    return view


def known_run(run_id: str) -> Any:
    """The row of a run, in whatever state it is; None where there is none of that id, or none any more."""
    try:
        return shared().library.run(run_id)
    except LookupError:
        return None


def _metric(analysis: Readable, name: str) -> dict[str, Any]:
    about = next(m for m in METRICS if m.name == name)
    result = analysis.result(name)
    shown = tables.entry(result, tables.on_page(name, result))
    return {"title": about.title, "question": about.question, "definition": about.definition, **shown, "notes": [*result.notes, *tables.cut(name, result)]}


def _weight(value: Any) -> int:
    """About the bytes that a document takes in memory: several times its JSON."""
    return 4 * len(json.dumps(value, default=str))


def _version() -> str:
    from tracekit import __version__

    return __version__
