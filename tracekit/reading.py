"""How may an input be read? The caps against hostile or mistaken files, and whether to save what a damaged one still holds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tracekit.errors import InputError


@dataclass(frozen=True)
class Reading:
    """Caps and wishes of one reading; every cap has a flag on the command line.

    Attributes:
        max_bytes: most decompressed bytes of one file or archive member.
        max_ratio: most decompressed bytes per compressed one, asked once a file has grown past 64 MiB: a real trace packs 14 to 30 fold, a bomb
            1,000 fold.
        max_events: most records of one file.
        max_members: most files in an archive.
        max_seconds: longest time for one file; None: as long as it takes.
        max_memory: most memory, in bytes, of the process that reads; None: no cap of its own. With a cap every file is read in a child process.
        salvage: recover the whole records around damage instead of refusing; the result is marked partial.
        keep_going: a file that is refused becomes an error among the findings, and the others are read.
    """

    max_bytes: int = 8 << 30
    max_ratio: int = 100
    max_events: int = 50_000_000
    max_members: int = 100_000
    max_seconds: float | None = None
    max_memory: int | None = None
    salvage: bool = False
    keep_going: bool = False

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
