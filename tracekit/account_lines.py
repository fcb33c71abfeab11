"""Which parts of a step's account stand in a line of their own, and which together?"""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.wording import WORK

#: Parts smaller than this share of the step stand together.
SMALL = 0.005
#: What could come back is said from this share of the step on.
WORTH = 0.001


def together(parts: Sequence[object], lengths: Sequence[float]) -> list[bool]:
    """Whether each part of an account stands together with others: the small ones, where there are several; work never does.

    >>> together(["compute", "bubble", "idle", "copies"], [990, 4, 3, 3])
    [False, True, True, True]
    >>> together(["compute", "idle"], [999, 1])
    [False, False]
    """
    whole = sum(lengths)
    small = [length < SMALL * whole and part not in WORK for part, length in zip(parts, lengths, strict=True)]
    return small if sum(small) > 1 else [False] * len(small)


def smaller(count: int) -> str:
    """What the line of those that stand together is called."""
    return f"{count} smaller parts"
