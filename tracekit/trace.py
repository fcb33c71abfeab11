"""What is known of one rank? The frozen RankTrace that readers make and passes refine, and the facts it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tracekit import schema
from tracekit.findings import finding
from tracekit.once import Once


@dataclass(frozen=True)
class RankMeta:
    """What a rank's files say about themselves; None is unknown.

    Attributes:
        rank: global rank.
        capture: number of the profiler cycle (one rank may have several).
        files: the files that were read.
        formats: the formats they were in, as in ``readers.READERS``.
        packings: how each was packed: plain, gzip or zstd.
        device_type: ``cpu`` or ``gpu``: where the work ran; None where no slice was recorded (a Flight Recorder dump alone).
        base_ns: the 0 of the trace's own clock, Unix ns; None where it says none, and times count from its host's boot or from 1970.
        groups: process groups of the trace, name -> {"desc": str, "ranks": tuple of global ranks}.
        threads: thread code -> name of the thread, with pid and tid.
        run: the run directory's ``run.json``, or {}.
        memory_baseline: blocks that stood before the recording (``memory.json``: addr, bytes, category, layer), or None.
    """

    rank: int | None = None
    capture: int = 0
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    device_type: str | None = None
    base_ns: int | None = None
    device_names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    packings: tuple[str, ...] = ()
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    threads: Mapping[int, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    profile_memory: bool | None = None
    with_modules: bool | None = None
    record_shapes: bool | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    memory_baseline: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True)
class RankTrace(Once):
    """All slices of one rank and capture.

    Attributes:
        events: rows of ``schema.EVENTS``.
        samples: rows of ``schema.SAMPLES``.
        meta: what the files say of themselves.
        findings: rows of ``schema.FINDINGS`` as dicts, in the order they were met.
        stated: small tables that a file states outright instead of as events, by their names in ``schema.STATED``.
    """

    events: pd.DataFrame = field(default_factory=lambda: schema.empty(schema.EVENTS))
    samples: pd.DataFrame = field(default_factory=lambda: schema.empty(schema.SAMPLES))
    meta: RankMeta = field(default_factory=RankMeta)
    findings: tuple[Mapping[str, Any], ...] = ()
    stated: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def with_events(self, **columns: Any) -> RankTrace:
        """The same trace with some event columns replaced."""
        return replace(self, events=self.events.assign(**columns))

    def with_finding(self, code: str, severity: str, message: str, **where: Any) -> RankTrace:
        """The same trace with one more health finding; ``where`` may give file, offset and count."""
        return replace(self, findings=(*self.findings, finding(code, severity, message, **{"rank": self.meta.rank, **where})))


@dataclass(frozen=True)
class RankFacts:
    """What one rank is boiled down to: the only thing that travels between the two halves.

    Attributes:
        meta: as in the trace (without the memory baseline).
        tables: one frame per name in ``schema.FACTS``.
    """

    meta: RankMeta
    tables: Mapping[str, pd.DataFrame]

    def __getitem__(self, name: str) -> pd.DataFrame:
        """A table by name; an empty one where the rank has none."""
        got = self.tables.get(name)
        return schema.empty(schema.FACTS[name]) if got is None else got
