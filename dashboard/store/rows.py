"""What do pages learn of a run, and of the job that reads it? Frozen rows; null is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class State(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    READING = "reading"
    ANALYSING = "analysing"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens by itself."""
        return self in (State.READY, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class RunRow:
    """One run of the list.

    Attributes:
        id: made by the server, 32 hexadecimal digits.
        name: what its user calls it; a label, never a path.
        owner: who uploaded it.
        state: where it stands.
        created_at: when it was uploaded, UTC.
        nbytes: bytes that were uploaded.
        stored_bytes: bytes that it takes on the disk.
        ranks: how many ranks were read.
        steps: how many steps were recorded.
        step_ns: median step time, ns.
        peak_bytes: most memory that a rank had allocated.
        bubble_ratio: bubble of its pipeline.
        verdict: of the health: ok, warnings, unusable.
        headline: where the time went, in a sentence or two.
        tags: its labels, sorted.
        error: why it failed, one line.
        partial: the analysis is of some of the ranks; the others are still being read.
        fingerprint: SHA-256 over the contents of its files.
        generation: grows whenever there is a new analysis; 0: there is none.
    """

    id: str
    name: str
    owner: str
    state: State
    created_at: datetime
    nbytes: int
    stored_bytes: int
    ranks: int | None
    steps: int | None
    step_ns: float | None
    peak_bytes: int | None
    bubble_ratio: float | None
    verdict: str | None
    headline: str | None
    tags: tuple[str, ...]
    error: str | None
    partial: bool
    fingerprint: str
    generation: int


@dataclass(frozen=True)
class JobProgress:
    """How far the reading of a run is.

    Attributes:
        state: where the run stands.
        stage: what is being done: queued, reading, analysing, ready; of a job that failed or was cancelled, what was being done then.
        done: files that are read.
        total: files that there are to read; 0: not known yet.
        events: events of those that are read, and of those that are being read as far as they are counted.
        events_per_s: events read per second so far; of files that are being read, about the share that is over.
        seconds_left: about how long the reading will take yet, by what is over so far; None: unknown.
        ranks_read: the ranks that are read.
        message: what is going on, one line.
        error: why it failed, one line.
        share: about how much of the reading is over, 0 to 1, files that are being read included; None: unknown.
    """

    state: State
    stage: str
    done: int
    total: int
    events: int
    events_per_s: float | None
    seconds_left: float | None
    ranks_read: tuple[int, ...]
    message: str
    error: str | None
    share: float | None = None


@dataclass(frozen=True)
class Summary:
    """What the list shows of an analysis; as in :class:`RunRow`."""

    ranks: int
    steps: int
    step_ns: float | None
    peak_bytes: int | None
    bubble_ratio: float | None
    verdict: str
    headline: str
