"""How many microbatches does each stage hold at its peak, and how many bytes is that?

A rank runs one action at a time, so the order alone tells it; no times are needed. A microbatch is held from its forward
to the end of its backward. A split backward frees in two parts: the input gradient (I) what only it needs, the weight
gradient (W) the rest: inputs of the linear layers and the gradients of their outputs (arXiv:2401.10241 section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import NamedTuple

import pandas as pd

from tracekit.vocabulary import Action


class Peaks(NamedTuple):
    """Most microbatches that are held at once, as in the tables of :func:`held_peaks`."""

    in_flight: int
    whole_held: int
    weight_held: int


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
        stages += [(stage, rank, *peaks(a for a in lane if a.stage == stage)) for stage in owned]
        ranks.append((rank, *peaks(lane)))
    by_stage = pd.DataFrame(sorted(stages), columns=["stage", "rank", *Peaks._fields], dtype="int64")
    return by_stage, pd.DataFrame(ranks, columns=["rank", *Peaks._fields], dtype="int64")


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
    return tuple(max(accumulate(kept * whole[stage] + late * rest[stage] for stage, kept, late in _changes(lane)), default=0) for lane in orders)


def peaks(lane: Iterable[Action]) -> Peaks:
    """The peaks over some actions of one rank.

    >>> peaks([Action(0, "F", 0), Action(0, "F", 1), Action(0, "I", 0), Action(0, "W", 0), Action(0, "B", 1)])
    Peaks(in_flight=2, whole_held=2, weight_held=1)
    """
    changes = list(_changes(lane))
    kept, late = list(accumulate(k for _, k, _ in changes)), list(accumulate(w for _, _, w in changes))
    return Peaks(max(map(add, kept, late), default=0), max(kept, default=0), max(late, default=0))


def _changes(lane: Iterable[Action]) -> Iterator[tuple[int, int, int]]:
    """What every action changes: its stage, microbatches of which no backward has run, and those of which W is still to run."""
    split: set[tuple[int, int]] = set()
    for a in lane:
        if a.action == "F":
            yield a.stage, 1, 0
        elif a.action == "I":
            split.add((a.stage, a.microbatch))
            yield a.stage, -1, 1
        elif a.action == "W" and (a.stage, a.microbatch) in split:
            yield a.stage, 0, -1
        else:  # B, or the W of a first stage that has no input gradient: its whole backward
            yield a.stage, -1, 0
