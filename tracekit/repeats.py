"""Where does a sequence repeat itself? The stretch that consists of one unit, again and again, and where its first copy begins.

A model's layers run the same kernels in the same order, so they show as a stretch of copies: ``E abc abc abc H``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: Sequences up to this long are tried with every period; longer ones with the periods that their symbols suggest.
_SHORT = 256
#: How many of those, and over how many later occurrences of the same symbol a period may reach.
_TRIED, _REACH = 64, 8


class Repeat(NamedTuple):
    """A stretch of copies of one unit.

    Attributes:
        start: place of the first copy's first symbol.
        period: symbols in a copy.
        copies: how many copies follow each other.
    """

    start: int
    period: int
    copies: int

    @property
    def end(self) -> int:
        """Place after the last copy."""
        return self.start + self.period * self.copies


def repeat(symbols: Ints, opens: Collection[int] = ()) -> Repeat | None:
    """The stretch of copies that covers most of a sequence; None where nothing follows itself.

    Of several units that cover as much, the shortest is taken. Where the stretch goes on into a part of a further copy, the copies could
    begin at several places: the first that shows a symbol of ``opens`` is taken, else the first.

    >>> repeat(np.array([9, 1, 2, 3, 1, 2, 3, 1, 7]))
    Repeat(start=1, period=3, copies=2)
    >>> repeat(np.array([3, 1, 2, 3, 1, 2, 3, 1, 7]), opens=[1])
    Repeat(start=1, period=3, copies=2)
    """
    best, covered = None, 0
    for period in _periods(symbols):
        same = symbols[:-period] == symbols[period:]
        ends = np.flatnonzero(~np.append(same, False))
        begins = np.append(0, ends[:-1] + 1)
        longest = int(np.argmax(ends - begins))
        length = int(ends[longest] - begins[longest]) + period
        if length >= 2 * period and length // period * period > covered:
            covered = length // period * period
            best = (int(begins[longest]), period, length)
    if best is None:
        return None
    start, period, length = best
    rotations = symbols[start : start + length % period + 1]
    first = np.flatnonzero(np.isin(rotations, list(opens)))
    return Repeat(start + (int(first[0]) if len(first) else 0), period, length // period)


def _periods(symbols: Ints) -> list[int]:
    """Periods worth trying, in rising order."""
    half = len(symbols) // 2
    if len(symbols) <= _SHORT:
        return list(range(1, half + 1))
    order = np.argsort(symbols, kind="stable")
    gaps = [(order[later:] - order[:-later])[symbols[order[later:]] == symbols[order[:-later]]] for later in range(1, min(_REACH, len(symbols) - 1) + 1)]
    found, times = np.unique(np.concatenate(gaps), return_counts=True)
    fits = found <= half
    found, times = found[fits], times[fits]
    return sorted(found[np.argsort(-times, kind="stable")][:_TRIED].tolist())
