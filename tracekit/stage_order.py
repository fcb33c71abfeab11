"""Which stages does a rank hold, and of which stage and microbatch is each of its forwards and backwards?

Told from what one rank shows: the order of its forwards and backwards, and how many sends and receives it made. With one
stage per rank any order is possible. With several, the order must be, action by action, that of a known schedule
(interleaved 1F1B, looped breadth-first and their zero-bubble kin, ZB-V and DualPipeV where every forward of the rank
stands apart) with as many transfers as that asks for; of the orders that fit, all must say the same.

Not told: Megatron-LM's interleaved order where the microbatches are no multiple of the ranks, searched orders (ZB-1p),
and the last rank of a V, which hands activations to itself. A middle rank under looped breadth-first looks exactly like
one stage with as many microbatches as it has forwards, whose backwards run in reverse; it is read so, and the job
compares it with its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from tracekit.action_order import BACKWARD, FORWARD, PARTS, SECOND, Ints
from tracekit.errors import UsageError
from tracekit.schedule.catalog import SCHEDULES, placement
from tracekit.schedule.orders import order as scheduled
from tracekit.vocabulary import Action

#: The most stages per rank that are tried.
_VIRTUAL = 16
_LAYOUTS = ("loop", "v")


@dataclass(frozen=True)
class Traffic:
    """A rank's sends and receives of one step.

    Attributes:
        sends, receives: when they were issued, ns, ascending.
        to_next, from_previous: how many of them went to the next rank of the pipeline and came from the one before; None
            where the peers are not known, or are the same rank.
    """

    sends: Ints
    receives: Ints
    to_next: int | None = None
    from_previous: int | None = None


def stage_order(
    pieces: Sequence[int], by_sequence: bool, place: tuple[int, int], traffic: Traffic | None = None, starts: Sequence[int] = ()
) -> Mapping[int, Action] | None:
    """The action of each label of one step.

    Args:
        pieces: labels (``action_order``) in order, one for each unbroken run of work.
        by_sequence: whether Sequence numbers told which forward a backward belongs to.
        place: place of the rank in its pipeline, and ranks of the pipeline.
        traffic: what it sent and received along the pipeline; None where that is not to be asked.
        starts: with ``traffic``: when each piece was launched, ns.

    Returns:
        Per label its action; None where the work is not whole, nothing fits, or several things do.

    >>> stage_order([0, 3, 1, 4], True, (0, 2))[4]
    Action(stage=0, action='B', microbatch=1)
    """
    if not _whole(pieces):
        return None
    one = _one_stage(pieces, place[0])
    found = _several_stages(pieces, by_sequence, place)
    if traffic is not None:
        found = [told for told in found if _flows(told, pieces, starts, traffic, place)]
    likelier = not found or (not by_sequence and _plain(pieces, *place)) or _reversed(pieces)
    if likelier and (traffic is None or _flows(one, pieces, starts, traffic, place)):
        return one
    return found[0] if len(found) == 1 else None


def transfers(actions: Sequence[Action], position: int, size: int) -> tuple[list[bool], list[bool]]:
    """Which forwards and backwards of the rank at a place of its pipeline send their result, and which receive their input.

    Where its stages do not lie in a loop they lie in a V. Weight gradients move nothing.

    >>> transfers([Action(3, "F", 0), Action(3, "B", 0), Action(1, "F", 0)], 1, 2)
    ([False, True, True], [True, False, True])
    """
    held = {a.stage for a in actions}
    looped = all(stage % size == position for stage in held)
    where = placement("1f1b" if len(held) < 2 else "interleaved_1f1b" if looped else "zbv", size, len(held))
    sends, receives = [], []
    for a in actions:
        before, after = where.before(a.stage), where.after(a.stage)
        source, target = (before, after) if a.action == "F" else (after, before)
        receives.append(a.action != "W" and source is not None and where.rank_of[source] != position)
        sends.append(a.action != "W" and target is not None and where.rank_of[target] != position)
    return sends, receives


def _flows(told: Mapping[int, Action], pieces: Sequence[int], starts: Sequence[int], traffic: Traffic, place: tuple[int, int]) -> bool:
    """Whether the traffic is what these actions ask for, and every piece starts after what it needs.

    What a piece needs was received before it, all that was sent was made before it, and no gradient comes back for an
    activation that was not sent. A ring of attention, which sends and receives in the midst of every pass, breaks this.
    """
    lane = [told[label] for label in pieces]
    sends, receives = transfers(lane, *place)
    if (sum(sends), sum(receives)) != (len(traffic.sends), len(traffic.receives)):
        return False
    looped = all(a.stage % place[1] == place[0] for a in lane)
    forward = [a.action == "F" for a in lane]
    if looped and traffic.to_next not in (None, sum(map(all, zip(sends, forward, strict=True)))):
        return False
    if looped and traffic.from_previous not in (None, sum(map(all, zip(receives, forward, strict=True)))):
        return False
    sent, received = (np.searchsorted(times, np.asarray(starts), "left").tolist() for times in (traffic.sends, traffic.receives))
    needed, made = list(accumulate(receives)), [0, *accumulate(sends)]
    handed = dict(zip(pieces, accumulate(map(all, zip(sends, forward, strict=True))), strict=True))
    gone = [handed[label - BACKWARD] if label % PARTS == BACKWARD and receives[i] else 0 for i, label in enumerate(pieces)]
    return all(needed[i] <= received[i] and gone[i] <= sent[i] <= made[i] for i in range(len(pieces)))


def _whole(pieces: Sequence[int]) -> bool:
    """Every forward and backward is one unbroken piece, and none is missing."""
    every = set(pieces)
    count = max(every, default=-1) // PARTS + 1
    return count > 0 and len(every) == len(pieces) and all({PARTS * k + FORWARD, PARTS * k + BACKWARD} <= every for k in range(count))


def _letters(pieces: Sequence[int]) -> str:
    """The order as F and b (a backward that hands a gradient on)."""
    return "".join("Fb"[label % PARTS] for label in pieces if label % PARTS != SECOND)


def _plain(pieces: Sequence[int], position: int, size: int) -> bool:
    """Whether the order is that of one stage under GPipe or 1F1B."""
    letters = _letters(pieces)
    warmup, m = len(letters) - len(letters.lstrip("F")), len(letters) // 2
    return warmup in (m, min(size - position, m))


def _reversed(pieces: Sequence[int]) -> bool:
    """Whether the backwards follow all forwards, in the reverse of their order."""
    kept = [label for label in pieces if label % PARTS != SECOND]
    half = len(kept) // 2
    return kept[half:] == [label + BACKWARD for label in reversed(kept[:half])]


def _one_stage(pieces: Sequence[int], position: int) -> Mapping[int, Action]:
    split = {label // PARTS for label in pieces if label % PARTS == SECOND}
    return {label: Action(position, ("F", "I" if label // PARTS in split else "B", "W")[label % PARTS], label // PARTS) for label in pieces}


def _several_stages(pieces: Sequence[int], by_sequence: bool, place: tuple[int, int]) -> list[Mapping[int, Action]]:
    """What each known schedule of several stages per rank says whose order this is; the same only once."""
    forwards = _letters(pieces).count("F")
    split = any(label % PARTS == SECOND for label in pieces)
    found: list[Mapping[int, Action]] = []
    for name, kind in SCHEDULES.items():
        for v in range(2, min(_VIRTUAL, forwards) + 1):
            if kind.layout not in _LAYOUTS or kind.split != split or forwards % v or (kind.layout == "v" and v != 2):
                continue
            lane = _lane(name, place, forwards // v, v)
            told = None if lane is None else _told(pieces, lane, by_sequence)
            if told is not None and told not in found:
                found.append(told)
    return found


def _lane(name: str, place: tuple[int, int], microbatches: int, virtual: int) -> list[Action] | None:
    """The rank's order under a schedule; None where the schedule cannot run so."""
    position, size = place
    try:
        return list(scheduled(name, size, microbatches, virtual)[position])
    except UsageError:
        return None


def _told(pieces: Sequence[int], lane: Sequence[Action], by_sequence: bool) -> Mapping[int, Action] | None:
    """Per label its action, where forwards and backwards come in the order of the lane and belong together as there."""
    kept = [label for label in pieces if label % PARTS != SECOND]
    moving = [a for a in lane if a.action != "W"]
    if len(kept) != len(moving) or any((label % PARTS == FORWARD) != (a.action == "F") for label, a in zip(kept, moving, strict=True)):
        return None
    out = dict(zip(kept, moving, strict=True))
    split = {label // PARTS for label in pieces if label % PARTS == SECOND}
    for label, a in list(out.items()):
        if label % PARTS != BACKWARD:
            continue
        forward = out[label - BACKWARD]
        if by_sequence and (forward.stage, forward.microbatch) != (a.stage, a.microbatch):
            return None
        out[label] = a._replace(action="I" if label // PARTS in split else "B")
        if label // PARTS in split:
            out[label + SECOND - BACKWARD] = a._replace(action="W")
    return out
