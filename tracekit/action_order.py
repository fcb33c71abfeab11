"""In which order did a rank run forwards and backwards, and which forward does each backward belong to?

Work is given in order of launch, with the Sequence number of the autograd node (of the recorded forward operator) that it
ran in. Every run of forward work between two boundaries (sends and receives, or the starts of ranges) is one forward;
Sequence numbers tell which forward a backward belongs to, and a backward that goes through the same nodes twice is split:
input gradients, then weight gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: Part of a forward's label: its own work, its backward, a second pass over the nodes of its backward.
FORWARD, BACKWARD, SECOND = 0, 1, 2
#: Labels are 3 x number of the forward + part.
PARTS = 3
#: A piece that stands apart must be this many times shorter than the pass of its forward.
_STRAY = 4


class Order(NamedTuple):
    """What each piece of one step's work is.

    Attributes:
        label: 3 x number of the forward + part (0 forward, 1 backward, 2 a second pass over its nodes); -1 for forward work
            that no backward goes back through, such as the making of a batch.
        at: when each was launched, ns.
        by_sequence: Sequence numbers told which forward each backward belongs to; else its place among the backwards did.
    """

    label: Ints
    at: Ints
    by_sequence: bool

    @property
    def pieces(self) -> list[int]:
        """The labels in order, one for each unbroken run of work."""
        kept: list[int] = self.label[self._heads].tolist()
        return kept

    @property
    def starts(self) -> list[int]:
        """When each of ``pieces`` was launched, ns."""
        times: list[int] = self.at[self._heads].tolist()
        return times

    @property
    def _heads(self) -> Ints:
        """Place of the first work of each unbroken run."""
        kept = np.flatnonzero(self.label >= 0)
        heads: Ints = kept[np.append(True, np.diff(self.label[kept]) != 0)[: len(kept)]]
        return heads


def order(at: Ints, backward: Mask, sequence: Ints, boundaries: Ints) -> Order:
    """Label one step's work.

    Args:
        at: when each piece was launched, ns, ascending.
        backward: which pieces run in backward.
        sequence: Sequence number of the node or operator around each; -1 for none.
        boundaries: times between which forward work is one forward, ns, ascending.

    Returns:
        One label for each piece. Nodes that turn up alone in the midst of other passes carry no number of their own (an
        embedding's may be that of the forward recorded last): they follow the backward work launched before them.

    >>> order(np.array([1, 3, 5, 7]), np.array([False, False, True, True]), np.array([8, 9, 9, 8]), np.array([2, 4, 6])).pieces
    [0, 3, 4, 1]
    """
    between = np.searchsorted(boundaries, at, "right")
    numbers, by_sequence = _numbers(backward, sequence, between)
    label, apart = _passes(numbers, backward, sequence, between)
    if apart.any():
        sequence = np.where(backward & np.isin(sequence, sequence[apart]), -1, sequence)
        numbers, by_sequence = _numbers(backward, sequence, between)
        label, _ = _passes(numbers, backward, sequence, between)
    return Order(_without_strays(label) if by_sequence else label, at, by_sequence)


def _without_strays(label: Ints) -> Ints:
    """Labels counted anew without the forwards that have no backward; those become -1."""
    taken = np.unique(label[label % PARTS != FORWARD] // PARTS)
    place = np.searchsorted(taken, label // PARTS)
    found = np.isin(label // PARTS, taken)
    return np.where(found, PARTS * place + label % PARTS, -1)


def _numbers(backward: Mask, sequence: Ints, between: Ints) -> tuple[Ints, bool]:
    """Number of the forward that each piece is or goes back through, and whether Sequence numbers told."""
    new = np.ones(len(between), bool)
    new[1:] = (between[1:] != between[:-1]) | (backward[1:] != backward[:-1])
    out = np.where(backward, np.cumsum(new & backward), np.cumsum(new & ~backward)) - 1
    numbered = np.flatnonzero(~backward & (sequence >= 0))
    # the last operator that saw a number made the node with it
    made, last_first = np.unique(sequence[numbered][::-1], return_index=True)
    if not len(made):
        return out, False
    maker = out[numbered][::-1][last_first]
    place = np.minimum(np.searchsorted(made, sequence), len(made) - 1)
    known = backward & (made[place] == sequence)
    # work without such a number (gradient accumulation, reductions) follows the work launched before it in the same run; at its
    # head (the loss) that after it
    rows, run = np.arange(len(between)), np.cumsum(new)
    before = np.maximum.accumulate(np.where(known, rows, -1))
    after = np.minimum.accumulate(np.where(known, rows, len(rows))[::-1])[::-1]
    near = np.where((before >= 0) & (run[np.maximum(before, 0)] == run), before, np.minimum(after, len(rows) - 1))
    if not backward.any() or not (known[near] & (run[near] == run))[backward].all():
        return out, False
    return np.asarray(np.where(backward, maker[place[near]], out), np.int64), True


def _passes(numbers: Ints, backward: Mask, sequence: Ints, between: Ints) -> tuple[Ints, Mask]:
    """Labels by forward and pass, and which pieces stand apart from their forward's pass and are short against it."""
    apart = np.zeros(len(numbers), bool)
    if not len(numbers):
        return numbers, apart
    starts = _piece_starts(2 * numbers + backward, backward, sequence, between)
    ends = np.append(starts[1:], len(numbers))
    nodes = [set(sequence[start:end].tolist()) - {-1} for start, end in zip(starts, ends, strict=True)]
    stated = np.where(backward[starts], PARTS * numbers[starts] + BACKWARD, PARTS * numbers[starts])
    label = stated.copy()
    for number in np.unique(stated[backward[starts]]):
        mine = np.flatnonzero(stated == number)
        longest = mine[np.argsort((starts - ends)[mine], kind="stable")]
        home, first, second = int(longest[0]), int(longest[:2].min()), int(longest[:2].max())
        if first != second and 2 * len(nodes[first] & nodes[second]) > len(nodes[second]):
            label[second] = number + SECOND - BACKWARD
        for i in mine[np.abs(mine - home) > 1].tolist():
            apart[starts[i] : ends[i]] = label[i] == number and _STRAY * (ends[i] - starts[i]) < ends[home] - starts[home]
    return np.asarray(np.repeat(label, ends - starts), np.int64), apart


def _piece_starts(label: Ints, backward: Mask, sequence: Ints, between: Ints) -> Ints:
    """Where pieces of one forward or backward begin: at each change, each boundary, and where nodes come round again."""
    starts = np.flatnonzero(np.append(True, (np.diff(label) != 0) | (np.diff(between) != 0)))
    again = []
    for start, end in zip(starts, np.append(starts[1:], len(label)), strict=True):
        known = start + np.flatnonzero(sequence[start:end] >= 0)
        if backward[start] and len(known):
            turns = known[np.append(True, np.diff(sequence[known]) != 0)]
            again += turns[pd.Series(sequence[turns]).duplicated().to_numpy()][:1].tolist()
    return np.unique(np.append(starts, np.array(again, np.int64)))
