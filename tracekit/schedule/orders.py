"""In which order does each rank run its actions under a schedule?

Every order is written down from its rule, as in :mod:`tracekit.schedule.recognise`: the counts are those of the papers
and, where it has the schedule, of torch.distributed.pipelining (2.13), which these orders equal action by action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tracekit.schedule.catalog import check_microbatches, placement, rounds
from tracekit.vocabulary import Action

#: Stage and action of which the microbatch has not been counted yet; stage None: the oldest weight gradient still to do.
_Slot = tuple[int | None, str]


def order(name: str, ranks: int, microbatches: int, virtual: int | None = None) -> tuple[tuple[Action, ...], ...]:
    """The actions that each rank runs, in order.

    Args:
        name: a key of :data:`tracekit.schedule.catalog.SCHEDULES`.
        ranks: ranks of the pipeline, p.
        microbatches: microbatches of the step, m. DualPipe runs the second half of them through its stages p ... 2p-1.
        virtual: stages per rank, v; None takes the fewest that the schedule allows.

    Returns:
        Per rank its actions: F, B (whole backward), I (input gradient), W (weight gradient). Pairs that DualPipe and
        DualPipeV overlap stand one after the other, the forward first (:func:`overlapped` tells them).

    Raises:
        UsageError: the schedule is unknown, or cannot run with these numbers; the message says what it allows.

    >>> [" ".join(f"{a.action}{a.microbatch}" for a in lane) for lane in order("1f1b", ranks=2, microbatches=2)]
    ['F0 F1 B0 B1', 'F0 B0 F1 B1']
    """
    where = placement(name, ranks, virtual)
    check_microbatches(name, ranks, microbatches)
    v = len(where.rank_of) // ranks
    return tuple(_lane(name, r, ranks, microbatches, v) for r in range(ranks))


def overlapped(name: str, ranks: int, microbatches: int) -> frozenset[Action]:
    """The forwards that run as one with the backward after them: DualPipe's and DualPipeV's pairs; empty for other schedules.

    On the ranks at the turn the first such pair runs one after the other, as in their code and in torch's.

    Args and errors as in :func:`order`.

    >>> sorted(f"{a.stage}F{a.microbatch}" for a in overlapped("dualpipev", ranks=1, microbatches=3))
    ['0F2', '1F1', '1F2']
    """
    if name not in ("dualpipev", "dualpipe"):
        return frozenset()
    turn = {ranks - 1} if name == "dualpipev" else {ranks // 2 - 1, ranks // 2}
    out: list[Action] = []
    for rank, lane in enumerate(order(name, ranks, microbatches)):
        forwards = [a for a, then in pairwise(lane) if a.action == "F" and then.action == "B"]
        out += forwards[1:] if rank in turn else forwards
    return frozenset(out)


def _lane(name: str, r: int, p: int, m: int, v: int) -> tuple[Action, ...]:
    """One rank's actions."""
    if name == "zbv":
        return tuple(a for a in _numbered(_zbv(r, p, max(m, 2 * p - 1))) if a.microbatch < m)
    if name == "dualpipev":
        return _numbered(_dual(r, 2 * p - 1 - r, r, p, m))
    if name == "dualpipe":
        return _two_ways(r, p, m)
    if name == "looped_bfs":
        return _breadth_first(r, p, m, v)
    left = p - 1 - r  # ranks behind this one
    per_round = m // rounds(p, m) if v > 1 else m
    warmup, weights_after = {
        "gpipe": (m, None),
        "1f1b": (left, None),
        "interleaved_1f1b": ((v - 1) * per_round + 2 * left, None),
        "zb_h1": (left, r),
        "zb_h2": (2 * left, 2 * r),
        "interleaved_zb": ((v - 1) * per_round + left, r),
    }[name]
    forwards = [chunk * p + r for _ in range(m // per_round) for chunk in range(v) for _ in range(per_round)]
    backwards = [chunk * p + r for _ in range(m // per_round) for chunk in reversed(range(v)) for _ in range(per_round)]
    return _numbered(_one_forward_one_backward(forwards, backwards, warmup, weights_after))


def _one_forward_one_backward(forwards: Sequence[int], backwards: Sequence[int], warmup: int, weights_after: int | None) -> Iterable[_Slot]:
    """``warmup`` forwards, then forward and backward in turn, then the backwards that are left.

    Args:
        forwards: the stages of the forwards, in order.
        backwards: the stages of the backwards, in order.
        warmup: forwards before the first pair.
        weights_after: None keeps backwards whole; else they are split, and a weight gradient runs once so many more
            input gradients have followed its own, at the latest at the end.
    """
    yield from ((stage, "F") for stage in forwards[:warmup])
    for k, stage in enumerate(backwards):
        yield from ((ahead, "F") for ahead in forwards[warmup + k : warmup + k + 1])
        yield stage, "B" if weights_after is None else "I"
        if weights_after is not None and k >= weights_after:
            yield None, "W"
    if weights_after is not None:
        yield from [(None, "W")] * min(weights_after, len(backwards))


def _breadth_first(r: int, p: int, m: int, v: int) -> tuple[Action, ...]:
    """All forwards, stage by stage, then all backwards, last stage and last microbatch first."""
    forwards = [Action(chunk * p + r, "F", mb) for chunk in range(v) for mb in range(m)]
    return (*forwards, *(Action(a.stage, "B", a.microbatch) for a in reversed(forwards)))


def _zbv(r: int, p: int, m: int) -> Iterable[_Slot]:
    """ZB-V, for F = I = W; m is at least 2p-1: it is written for that many and shortened where there are fewer."""
    a, b = r, 2 * p - 1 - r
    fa, ia, wa = ((a, action) for action in "FIW")
    fb, ib, wb = ((b, action) for action in "FIW")
    started = 2 * p - 1 - r  # forwards of stage a before the steady phase
    slots = [fa] * (2 * (p - r) - 1) + [fb, fa] * r + [fb, ib, wb] * (p - r)
    slots += [fa, ia, wa, fb, ib, wb] * (m - started) + [ia, wa, fb, ib, wb] * (started - p)
    return slots + [ia, ib] * r + [ia, wa] * (p - r) + [wb] * r + [wa] * r


def _dual(a: int, b: int, r: int, p: int, m: int) -> list[_Slot]:
    """DualPipe's eight phases on the r-th of p ranks that meet at the turn, m microbatches through each of its stages.

    Args:
        a: the stage that the rank's own microbatches reach first.
        b: the other stage, reached after the turn.
        r: place of the rank, 0 farthest from the turn.
        p: ranks up to the turn.
        m: microbatches.
    """
    fa, fb, ba, bb, w = (a, "F"), (b, "F"), (a, "B"), (b, "B"), (None, "W")
    left = p - 1 - r
    slots: list[_Slot] = [fa] * (2 * left) + [fa, fb] * (r + 1) + [(b, "I"), w, fb] * left
    slots += [fa, bb, fb, ba] * (m - 2 * p + r + 1) + [bb, fb, ba] * left
    closing = [b, a] * (r + 1)  # the first half of these backwards whole, the second half split
    slots += [(stage, "B" if k <= r else "I") for k, stage in enumerate(closing)]
    return slots + [w, (a, "I")] * left + [w] * (r + 1)


def _two_ways(r: int, p: int, m: int) -> tuple[Action, ...]:
    """DualPipe: rank r holds stage r of the first copy and p-1-r of the second; half of the microbatches enter at each end."""
    first, second = r, 2 * p - 1 - r
    own, other = (first, second) if r < p // 2 else (second, first)
    lane = _numbered(_dual(own, other, min(r, p - 1 - r), p // 2, m // 2))
    return tuple(a._replace(microbatch=a.microbatch + m // 2) if a.stage >= p else a for a in lane)


def _numbered(slots: Iterable[_Slot]) -> tuple[Action, ...]:
    """Count the microbatches: forwards and backwards of a stage run in their order, weight gradients oldest first."""
    lane: list[Action] = []
    count: Counter[tuple[int, bool]] = Counter()
    waiting: list[tuple[int, int]] = []  # stage and microbatch of input gradients whose weight gradient is to come
    for stage, action in slots:
        if action == "W":
            at = next(k for k, (owner, _) in enumerate(waiting) if stage in (None, owner))
            owner, microbatch = waiting.pop(at)
            lane.append(Action(owner, "W", microbatch))
            continue
        assert stage is not None
        microbatch = count[stage, action == "F"]
        count[stage, action == "F"] += 1
        lane.append(Action(stage, action, microbatch))
        if action == "I":
            waiting.append((stage, microbatch))
    return tuple(lane)
