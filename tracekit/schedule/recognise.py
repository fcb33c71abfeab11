"""Which pipeline schedule is this? Named from the order in which each rank runs its actions, never from a label.

A schedule is recognised by where the stages live (one per rank, in a loop, or in a V), by whether the backward is split,
and by how many forwards a rank runs before its first backward. The counts are those of the papers and of
torch.distributed.pipelining:

- ``gpipe``: every forward before any backward (arXiv:1811.06965).
- ``1f1b``: p - r forwards on the r-th rank, then one backward, one forward (PipeDream-Flush, arXiv:2104.04473).
- ``interleaved_1f1b``: v stages per rank in a loop, (v-1)g + 2(p-1-r) + 1 forwards, g microbatches per round (2104.04473).
- ``looped_bfs``: as that, but every forward before any backward, stage by stage (arXiv:2211.05953).
- ``zb_h1``, ``zb_h2``: split backward with p - r and 2(p - r) - 1 forwards (arXiv:2401.10241).
- ``interleaved_zb``: split backward, v stages in a loop, (v-1)g + p - r forwards (torch's ScheduleInterleavedZeroBubble).
- ``zbv``, ``dualpipev``: stages r and 2p-1-r on rank r; ``zbv`` splits every backward, ``dualpipev`` only those outside
  its overlapped pairs (2401.10241 section 6, arXiv:2412.19437).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tracekit.vocabulary import Action

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Schedule:
    """A recognised schedule.

    Attributes:
        name: one of the names above, or ``unknown``.
        ranks: ranks of the pipeline, p.
        stages: stages of the pipeline, virtual ones counted; None where ranks disagree.
        virtual: stages per rank, v; None where ranks disagree.
        microbatches: microbatches per step, m; None where ranks disagree.
        placement: ``loop`` (stage s on rank s mod p), ``v`` (stages r and 2p-1-r), or None.
    """

    name: str
    ranks: int
    stages: int | None = None
    virtual: int | None = None
    microbatches: int | None = None
    placement: str | None = None


@dataclass(frozen=True)
class _Lane:
    """One rank's order, with what the rules ask of it."""

    r: int  # place of the rank in the pipeline
    p: int
    v: int
    m: int
    order: tuple[Action, ...]

    @property
    def letters(self) -> str:
        """The order as F and b (a backward that hands a gradient on: B or I); weight gradients left out."""
        return "".join("F" if a.action == "F" else "b" for a in self.order if a.action != "W")

    @property
    def warmup(self) -> int:
        """Forwards before the first backward."""
        return len(self.letters) - len(self.letters.lstrip("F"))

    @property
    def total(self) -> int:
        """Forwards in all."""
        return self.m * self.v

    @property
    def per_round(self) -> int:
        """Microbatches that a looped schedule runs through one stage before it turns to the next."""
        return self.m // max(1, self.m // self.p)

    def one_forward_one_backward(self, warmup: int) -> bool:
        """Exactly ``warmup`` forwards, then backward and forward in turn, then the backwards that are left."""
        k = min(warmup, self.total)
        return self.letters == "F" * k + "bF" * (self.total - k) + "b" * k


def recognise(orders: Mapping[int, Sequence[Action]], ranks: int | None = None) -> Schedule:
    """Name the schedule of one pipeline and step.

    Args:
        orders: per rank its actions in the order in which they start; the keys only tell ranks apart.
        ranks: ranks of the whole pipeline, when more than ``orders`` holds.

    Returns:
        The schedule; ``unknown`` where an action is missing or doubled, where no rule fits, or where ranks are missing
        and more than one rule fits those that are here.

    >>> F, B = (lambda s, m: Action(s, "F", m)), (lambda s, m: Action(s, "B", m))
    >>> recognise({0: [F(0, 0), F(0, 1), B(0, 0), B(0, 1)], 1: [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]}).name
    '1f1b'
    """
    p = max(ranks or 0, len(orders))
    orders = {rank: _with_empty_input_gradients(order) for rank, order in orders.items()}
    owned = {rank: tuple(sorted({a.stage for a in order})) for rank, order in orders.items()}
    degrees = {len(stages) for stages in owned.values()}
    counts = {len({a.microbatch for a in order}) for order in orders.values()}
    v = degrees.pop() if len(degrees) == 1 else None
    m = counts.pop() if len(counts) == 1 else None
    placement = _placement(tuple(owned.values()), p, v)
    known = Schedule(UNKNOWN, p, None if v is None else p * v, v, m, placement)
    if not v or not m or placement is None or not all(_is_whole(order, v, m) for order in orders.values()):
        return known
    lanes = [_Lane(owned[rank][0], p, v, m, tuple(order)) for rank, order in orders.items()]
    split = any(a.action == "I" for lane in lanes for a in lane.order)
    fits = [name for name, rule in _rules(placement, v, split).items() if all(map(rule, lanes))]
    if not fits or (len(fits) > 1 and len(orders) < p):
        return known
    return Schedule(fits[0], p, p * v, v, m, placement)


def _with_empty_input_gradients(order: Sequence[Action]) -> list[Action]:
    """The order with the I that the first stage does not do: it has no input gradient, and its W is the whole backward."""
    split = {(a.stage, a.microbatch) for a in order if a.action == "I"}
    out: list[Action] = []
    for a in order:
        if a.action == "W" and a.stage == 0 and (a.stage, a.microbatch) not in split:
            out.append(a._replace(action="I"))
        out.append(a)
    return out


def _placement(owned: Sequence[tuple[int, ...]], p: int, v: int | None) -> str | None:
    """Where the stages live: every rank of it must agree, and no stage may live twice."""
    every = [stage for stages in owned for stage in stages]
    if not v or len(set(every)) != len(every) or max(every) >= p * v:
        return None
    if all(stages == tuple(range(stages[0], p * v, p)) for stages in owned):
        return "loop"
    if v == 2 and all(sum(stages) == 2 * p - 1 for stages in owned):
        return "v"
    return None


def _is_whole(order: Sequence[Action], v: int, m: int) -> bool:
    """Every stage and microbatch has one F, then one B or one I followed by one W, and nothing else."""
    seen: dict[tuple[int, int], str] = {}
    for a in order:
        seen[a.stage, a.microbatch] = seen.get((a.stage, a.microbatch), "") + a.action
    return len(seen) == v * m and set(seen.values()) <= {"FB", "FIW"}


def _rules(placement: str, v: int, split: bool) -> dict[str, Callable[[_Lane], bool]]:
    """The schedules that such a placement allows, the plainest first, and what each asks of every rank."""
    if placement == "v":
        if not split:
            return {}
        return {
            "zbv": lambda x: not any(a.action == "B" for a in x.order) and x.warmup - _v_warmup(x) in (0, 1),
            "dualpipev": lambda x: any(a.action == "B" for a in x.order) and x.warmup - _v_warmup(x) in (0, 1),
        }
    if v == 1 and split:
        return {
            "zb_h1": lambda x: x.warmup == min(x.p - x.r, x.m),
            "zb_h2": lambda x: x.warmup == min(2 * (x.p - x.r) - 1, x.m),
        }
    if v == 1:
        return {
            "gpipe": lambda x: x.warmup == x.m,
            "1f1b": lambda x: x.one_forward_one_backward(x.p - x.r),
        }
    if split:
        return {"interleaved_zb": lambda x: x.warmup == min((x.v - 1) * x.per_round + x.p - x.r, x.total)}
    return {
        "looped_bfs": lambda x: x.warmup == x.total and _stage_by_stage(x),
        "interleaved_1f1b": lambda x: x.one_forward_one_backward((x.v - 1) * x.per_round + 2 * (x.p - 1 - x.r) + 1),
    }


def _v_warmup(lane: _Lane) -> int:
    """Forwards before the first backward where two stages lie in a V: 2p of them, fewer with few microbatches."""
    return min(2 * lane.p - 1 - lane.r, lane.m) + min(lane.r + 1, lane.m)


def _stage_by_stage(lane: _Lane) -> bool:
    """All forwards of one stage before any of the next."""
    stages = [a.stage for a in lane.order if a.action == "F"]
    return stages == sorted(stages)
