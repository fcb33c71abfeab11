"""Which stored timelines make a run, on which clocks? Opened once and kept while nothing about the run changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from dashboard.components.cache import OVERHEAD, ByteCache
from tracekit.errors import InputError
from tracekit.timeline.run import Run, open_run

#: Answers are kept up to so many bytes together.
CACHE_BYTES = 48 * 2**20
#: Runs that are kept open, however many ranks each has: their files are mapped, not held.
OPEN_RUNS = 4


class Library(Protocol):
    """What is needed of the stored runs."""

    def run(self, run_id: str) -> Any:
        """The row of a run; LookupError or None where there is none."""

    def timelines(self, run_id: str) -> Mapping[tuple[int, int], Path] | Sequence[Path]:
        """Folders that ``tracekit.pyramid.build`` wrote, by (rank, capture) where that is known; more come while ranks are read."""

    def analysis(self, run_id: str) -> Any:
        """The analysis so far; LookupError, FileNotFoundError or None where there is none yet."""


class UnknownRun(LookupError):
    """There is no such run."""


class Opened:
    """The runs of a library as timelines.

    Args:
        library: the stored runs.
        limit: bytes that answers may take.
    """

    def __init__(self, library: Library, limit: int = CACHE_BYTES) -> None:
        self._library = library
        self.cache = ByteCache(limit)
        self._runs = ByteCache(OPEN_RUNS * OVERHEAD)

    def run(self, run_id: str) -> tuple[Run, tuple[Any, ...]]:
        """A run, and a key that changes whenever what it shows does.

        Raises:
            UnknownRun: there is none.
            InputError: no timeline of it is stored, or one is damaged.
        """
        try:
            row = self._library.run(run_id)
        except LookupError as error:
            raise UnknownRun(run_id) from error
        if row is None:
            raise UnknownRun(run_id)
        folders = self._library.timelines(run_id)
        state = getattr(row, "state", None)
        if not folders and state is not None and not state.ended:
            raise InputError("its ranks are still being read; the timeline comes when all are in")
        stamps = tuple(folders) if not isinstance(folders, Mapping) else tuple(folders.items())
        key = (run_id, int(getattr(row, "generation", 0) or 0), hash(stamps))
        # counted, not weighed: a run is far cheaper to hold than to open again for every window
        run: Run = self._runs.get(key, lambda: open_run(folders, self._clocks(run_id)), lambda _: 0)
        return run, key

    def analysis(self, run_id: str) -> Any | None:
        """The analysis so far, or None."""
        try:
            return self._library.analysis(run_id)
        except (LookupError, FileNotFoundError):
            return None

    def _clocks(self, run_id: str) -> pd.DataFrame | None:
        analysis = self.analysis(run_id)
        return None if analysis is None else analysis.result("clock").tables.get("ranks")
