"""What do a supervisor and the child that reads a run say to each other? One order, then news as lines of JSON; never pickles.

The child holds bytes that somebody uploaded: what comes back from it is decoded by type, and checked like any input.
"""

from __future__ import annotations

import msgspec

from dashboard.store.rows import Summary
from tracekit.reading import Reading

#: No news is longer; a child that says more is broken.
LONGEST = 1 << 20


class Order(msgspec.Struct, frozen=True):
    """What a child shall read, and with what.

    Attributes:
        folder: of the run.
        attempt: 32 hexadecimal digits, new for each attempt; what is written is named after it.
        readers: processes to read with.
        memory_bytes: address space that each process may take for what it reads; None: any.
        seconds: CPU time of each process; None: any.
        min_free_bytes: bytes of the disk that stay free.
        reading: caps against hostile files, and whether to save what damaged ones still hold.
    """

    folder: str
    attempt: str
    readers: int
    memory_bytes: int | None
    seconds: float | None
    min_free_bytes: int
    reading: Reading


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far it is; as in :class:`dashboard.store.rows.JobProgress`."""

    stage: str
    message: str
    done: int = 0
    total: int = 0
    events: int = 0
    events_per_s: float | None = None
    seconds_left: float | None = None
    ranks_read: list[int] = []
    share: float | None = None


class Analysed(msgspec.Struct, frozen=True, tag="analysed"):
    """There is an analysis: its folder under ``analyses/``, and what the list of runs shows of it."""

    folder: str
    partial: bool
    stored_bytes: int
    summary: Summary


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Everything is stored."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It cannot be read; one line that says why and what to do."""

    error: str


News = Progress | Analysed | Done | Failed
