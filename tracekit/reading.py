"""How may an input be read? The caps against hostile or mistaken files, and whether to save what a damaged one still holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tracekit.errors import InputError

Stage = Literal["unpack", "decode", "tables", "passes", "keep", "facts"]
#: Where each stage of a file begins and ends, as shares of the time it takes: of a Kineto trace of half a million events with memory events.
#: Another file may differ; what is estimated from these is said with "about".
_SPANS: dict[Stage, tuple[float, float]] = {
    "unpack": (0.0, 0.02),
    "decode": (0.02, 0.12),
    "tables": (0.12, 0.27),
    "passes": (0.27, 0.45),
    "keep": (0.45, 0.52),
    "facts": (0.52, 1.0),
}


@dataclass(frozen=True)
class Doing:
    """How far the reading of one file is.

    Attributes:
        stage: what is being done: unpack, decode, tables (rows are made of records), passes, keep (it is stored), facts.
        done: how much of the stage is done, 0 to 1.
        nbytes: decompressed bytes, so far while it is unpacked, of the whole file after that; None: not known here.
        events: slices and other rows of time that it holds; None: not counted yet.
    """

    stage: Stage
    done: float = 0.0
    nbytes: int | None = None
    events: int | None = None

    @property
    def share(self) -> float:
        """About how much of the time that the file takes is over, 0 to 1.

        >>> Doing("passes").share < Doing("passes", 0.5).share < Doing("facts", 1.0).share
        True
        """
        first, last = _SPANS[self.stage]
        done = self.done**3 if self.stage == "facts" else self.done  # the facts that take long come last
        return first + done * (last - first)


@dataclass(frozen=True)
class Reading:
    """Caps and wishes of one reading; every cap has a flag on the command line.

    Attributes:
        max_bytes: most decompressed bytes of one file or archive member.
        max_ratio: most decompressed bytes per compressed one, asked once a file has grown past 64 MiB: a real trace packs 14 to 30 fold, a bomb
            1,000 fold.
        max_events: most records of one file.
        max_members: most entries of an archive, folders and links too.
        max_seconds: longest time for one file; None: as long as it takes.
        max_memory: most memory, in bytes, of the process that reads; None: no cap of its own. With a cap every file is read in a child process.
        salvage: recover the whole records around damage instead of refusing; the result is marked partial.
        keep_going: a file that is refused becomes an error among the findings, and the others are read.
        tell: is told how far the file is that is being read.
    """

    max_bytes: int = 8 << 30
    max_ratio: int = 100
    max_events: int = 50_000_000
    max_members: int = 100_000
    max_seconds: float | None = None
    max_memory: int | None = None
    salvage: bool = False
    keep_going: bool = False
    tell: Callable[[Doing], None] | None = field(default=None, compare=False)

    def says(self, stage: Stage, done: float = 0.0, *, nbytes: int | None = None, events: int | None = None) -> None:
        """Tell how far the file is, where somebody wants to know."""
        if self.tell is not None:
            self.tell(Doing(stage, done, nbytes, events))

    def started(self) -> Deadline:
        """The clock of one file, started now."""
        return Deadline(self.max_seconds)


@dataclass(frozen=True)
class Deadline:
    """When the reading of a file must have ended.

    Attributes:
        seconds: the time there is in all; None: any.
        begun: monotonic time at which it began.
    """

    seconds: float | None = None
    begun: float = field(default_factory=time.monotonic)

    def check(self, path: Path) -> None:
        """Go on, if there is time.

        Raises:
            InputError: the time is used up.
        """
        if self.seconds is not None and time.monotonic() - self.begun > self.seconds:
            raise InputError(f"took longer than {self.seconds:g} s to read; raise --max-seconds, or split the file", path)


#: What is used where nothing else is asked for.
DEFAULT = Reading()
