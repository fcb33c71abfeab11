"""How many microbatches does each stage hold at its peak, and how many bytes is that?

A rank runs one action at a time, so the order alone tells it; no times are needed. A microbatch is held from its forward
to the end of its backward. A split backward frees in two parts: the input gradient (I) what only it needs, the weight
gradient (W) the rest: inputs of the linear layers and the gradients of their outputs (arXiv:2401.10241 section 2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from tracekit.vocabulary import Action

_COUNTS = ["in_flight", "whole_held", "weight_held"]


def held_peaks(orders: Sequence[Sequence[Action]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Peaks of held microbatches, per stage and per rank.

    Args:
        orders: per rank its actions in order.

    Returns:
        Two tables, of stages (``stage``, ``rank``) and of ranks (``rank``; its stages taken together, in stage
        microbatches), each with the peaks, reached at times of their own, of: ``in_flight`` (forward done, backward not
        or not wholly: the count of arXiv:2401.10241 Table 2), ``whole_held`` (forward done, neither B nor I done) and
        ``weight_held`` (I done, W not).

    >>> held_peaks([[Action(0, "F", 0), Action(0, "F", 1), Action(0, "I", 0), Action(0, "W", 0), Action(0, "B", 1)]])[0].iloc[0].tolist()
    [0, 0, 2, 2, 1]
    """
    stages, ranks = [], []
    for rank, lane in enumerate(orders):
        owned = sorted({a.stage for a in lane})
        stages += [(stage, rank, *_peaks([a for a in lane if a.stage == stage])) for stage in owned]
        ranks.append((rank, *_peaks(lane)))
    by_stage = pd.DataFrame(sorted(stages), columns=["stage", "rank", *_COUNTS], dtype="int64")
    return by_stage, pd.DataFrame(ranks, columns=["rank", *_COUNTS], dtype="int64")


def peak_bytes(orders: Sequence[Sequence[Action]], whole: Sequence[int], weight: Sequence[int] | None = None) -> tuple[int, ...]:
    """Most bytes of activations that each rank holds at once.

    Args:
        orders: per rank its actions in order.
        whole: per stage the bytes that one microbatch's forward keeps.
        weight: per stage the bytes of one microbatch that stay from I until W; None keeps all of ``whole`` (an upper bound).

    Returns:
        Bytes per rank.

    >>> peak_bytes([[Action(0, "F", 0), Action(0, "I", 0), Action(0, "F", 1), Action(0, "W", 0), Action(0, "B", 1)]], [10], [4])
    (14,)
    """
    rest = whole if weight is None else weight
    return tuple(max((_cost(kept, whole) + _cost(late, rest) for kept, late in _held(lane)), default=0) for lane in orders)


def _cost(counts: Counter[int], each: Sequence[int]) -> int:
    """Bytes of so many microbatches per stage."""
    return sum(each[stage] * n for stage, n in counts.items())


def _peaks(lane: Iterable[Action]) -> tuple[int, int, int]:
    """The three peaks over some actions of a rank, in the order of the columns."""
    totals = [(kept.total(), late.total()) for kept, late in _held(lane)]
    return max((a + b for a, b in totals), default=0), max((a for a, _ in totals), default=0), max((b for _, b in totals), default=0)


def _held(lane: Iterable[Action]) -> Iterator[tuple[Counter[int], Counter[int]]]:
    """After every action: microbatches per stage of which no backward has run, and of which W is still to run."""
    kept: Counter[int] = Counter()
    late: Counter[int] = Counter()
    split: set[tuple[int, int]] = set()
    for a in lane:
        if a.action == "F":
            kept[a.stage] += 1
        elif a.action == "W" and (a.stage, a.microbatch) in split:
            late[a.stage] -= 1
        else:  # B, I, or the W of a first stage that has no input gradient: its whole backward
            kept[a.stage] -= 1
            if a.action == "I":
                split.add((a.stage, a.microbatch))
                late[a.stage] += 1
        yield kept, late
