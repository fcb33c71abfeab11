"""What did an attempt that was cut off leave to the next? Sources that were read whole: their facts, and with them their traces and timelines.

    ranks/<attempt>/s00003.facts, s00003-0.parquet, s00003-1.parquet    timelines/<attempt>/s00003-0/, s00003-1/

The facts are written last, so where they are, all that belongs to them is. Once the whole run is analysed they are of no more use and go.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dashboard.store.folders import RANKS, TIMELINES
from tracekit import __version__, facts_file
from tracekit.errors import InputError
from tracekit.trace import RankFacts

_FACTS = ".facts"


@dataclass(frozen=True)
class Remembered:
    """The facts of the sources of a run; may be asked, and told, in any process.

    Attributes:
        folder: of the run.
        attempt: names the folders to write in.
    """

    folder: Path
    attempt: str

    def adopt(self) -> None:
        """Take over what other attempts have read whole. Links, no copies: whoever still shows the results of such an attempt keeps them."""
        for before in sorted((self.folder / RANKS).iterdir()):
            if before.is_dir() and before.name != self.attempt:
                for facts in sorted(before.glob(f"s*{_FACTS}")):
                    with suppress(OSError):  # what cannot be taken over is read again
                        self._take_over(before.name, facts)

    def known(self, number: int, label: str) -> list[RankFacts] | None:
        """The facts of a source; None where it is to be read."""
        try:
            return facts_file.load(self._file(number), _of(label))
        except InputError:
            return None

    def remember(self, number: int, label: str, facts: Sequence[RankFacts]) -> None:
        """Store the facts of a source whose traces and timelines are stored."""
        facts_file.save(facts, self._file(number), _of(label))

    def forget(self) -> None:
        """All is analysed."""
        for path in (self.folder / RANKS / self.attempt).glob(f"s*{_FACTS}"):
            path.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.folder / RANKS / self.attempt / f"s{number:05d}{_FACTS}"

    def _take_over(self, before: str, facts: Path) -> None:
        name = facts.stem
        for kind in (RANKS, TIMELINES):
            for path in (self.folder / kind / before).glob(f"{name}-*"):
                _link(path, self.folder / kind / self.attempt / path.name)
        _link(facts, self.folder / RANKS / self.attempt / facts.name)


def _link(path: Path, target: Path) -> None:
    """The same file, or folder of files, under another name too."""
    if path.is_dir():
        target.mkdir(exist_ok=True)
        for inner in path.iterdir():
            _link(inner, target / inner.name)
    elif not target.exists():
        os.link(path, target)


def _of(label: str) -> str:
    """Another version may make other facts of the same file."""
    return f"tracekit {__version__}: {label}"
