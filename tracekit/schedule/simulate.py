"""When would each action of a schedule run, and how large would its bubble be?

An event simulation: a rank runs its actions in order, each as soon as the rank is free and the action's input is there.
F(s) waits for F(s-1), B(s) and I(s) for the backward of stage s+1, W for its own I. What comes from another rank takes
the time of the link; sending occupies nobody. With uniform times this is the model of arXiv:2401.10241, which it
reproduces; with measured ones it is the bubble that a schedule would have on the same machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from tracekit.errors import UsageError
from tracekit.schedule.catalog import Placement
from tracekit.schedule.held import held_peaks, peaks
from tracekit.vocabulary import Action

#: Stage, direction (F, b: a backward that hands a gradient on, W) and microbatch of something that an action waits for.
_Key = tuple[int, str, int]


@dataclass(frozen=True)
class Times:
    """How long each stage's actions take, in ns; a whole backward (B) takes I and W together.

    Attributes:
        forward: F per stage.
        input_gradient: I per stage.
        weight_gradient: W per stage.
    """

    forward: tuple[int, ...]
    input_gradient: tuple[int, ...]
    weight_gradient: tuple[int, ...]

    @classmethod
    def uniform(cls, stages: int, f: int, i: int, w: int) -> Times:
        """The same times on every stage."""
        return cls((f,) * stages, (i,) * stages, (w,) * stages)

    def __call__(self, action: Action) -> int:
        """The time of one action.

        >>> Times.uniform(2, f=3, i=4, w=5)(Action(1, "B", 0))
        9
        """
        backward = {"I": self.input_gradient, "W": self.weight_gradient}
        if action.action == "B":
            return self.input_gradient[action.stage] + self.weight_gradient[action.stage]
        return backward.get(action.action, self.forward)[action.stage]


@dataclass(frozen=True)
class Simulation:
    """What a simulation found. Times count from the start of the window, in int64 ns; tables are made when they are first asked for.

    Attributes:
        orders: per rank its actions in order.
        spans: per rank start and end of each, ns.
    """

    orders: tuple[tuple[Action, ...], ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]

    @cached_property
    def window_ns(self) -> int:
        """First action start to last action end over all ranks."""
        return max(end for lane in self.spans for _, end in lane)

    @cached_property
    def work_ns(self) -> int:
        """Sum of all actions."""
        return sum(end - start for lane in self.spans for start, end in lane)

    @cached_property
    def actions(self) -> pd.DataFrame:
        """Rank, stage, action, microbatch, start_ns, end_ns; per rank in its order."""
        rows = [(rank, *a, *span) for rank, (lane, spans) in enumerate(zip(self.orders, self.spans, strict=True)) for a, span in zip(lane, spans, strict=True)]
        return pd.DataFrame(rows, columns=["rank", "stage", "action", "microbatch", "start_ns", "end_ns"])

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row per rank.

        Columns: rank, work_ns, fill_ns (window start to own first start), wait_ns (between own actions), drain_ns (own last end to window end),
        span_ns (own first start to own last end), and the peaks of :func:`tracekit.schedule.held.held_peaks` over its stages;
        work + fill + wait + drain = window.
        """
        actions = self.actions.assign(work_ns=self.actions["end_ns"] - self.actions["start_ns"])
        found = actions.groupby("rank").agg(work_ns=("work_ns", "sum"), fill_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
        span = found["end_ns"] - found["fill_ns"]
        found = found.assign(wait_ns=span - found["work_ns"], drain_ns=self.window_ns - found["end_ns"], span_ns=span)
        return found[["work_ns", "fill_ns", "wait_ns", "drain_ns", "span_ns"]].reset_index().merge(self._held[1], on="rank")

    @property
    def waits_ns(self) -> tuple[int, ...]:
        """Per rank what it waits between its own actions: ``wait_ns`` of ``ranks``, without a table of all else."""
        return tuple(
            max(end for _, end in lane) - min(start for start, _ in lane) - sum(end - start for start, end in lane) if lane else 0 for lane in self.spans
        )

    @cached_property
    def stages(self) -> pd.DataFrame:
        """One row per stage: stage, rank, work_ns and the same peaks."""
        by_stage = self._held[0]
        work = (self.actions["end_ns"] - self.actions["start_ns"]).groupby(self.actions["stage"]).sum()
        return by_stage.assign(work_ns=work.loc[by_stage["stage"]].to_numpy())[["stage", "rank", "work_ns", *by_stage.columns[2:]]]

    @property
    def in_flight_peak(self) -> int:
        """Most stage microbatches that a rank holds at once."""
        return max(peaks(lane).in_flight for lane in self.orders)

    @cached_property
    def _held(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return held_peaks(self.orders)

    @property
    def bubble_ratio(self) -> float | None:
        """1 - work / (p x window), p = ranks (GPipe, arXiv:1811.06965); None for an empty window."""
        total = len(self.orders) * self.window_ns
        return (total - self.work_ns) / total if total else None

    @property
    def bubble_over_ideal(self) -> float | None:
        """P x window / work - 1 (Megatron-LM, arXiv:2104.04473); None without work."""
        return (len(self.orders) * self.window_ns - self.work_ns) / self.work_ns if self.work_ns else None

    @property
    def longest_stage_bubble_ratio(self) -> float | None:
        """1 - work / span of the rank with the longest span of its own (arXiv:2401.10241 section 5.3); None for an empty window."""
        longest = int(self.ranks["span_ns"].to_numpy().argmax())
        span, work = (int(self.ranks[column].iloc[longest]) for column in ("span_ns", "work_ns"))
        return (span - work) / span if span else None


def simulate(
    orders: Sequence[Sequence[Action]],
    placement: Placement,
    times: Mapping[Action, int] | Callable[[Action], int],
    p2p: int | Mapping[tuple[int, int], int] = 0,
    overhead: int = 0,
    pairs: Collection[Action] = frozenset(),
) -> Simulation:
    """Run a schedule on paper.

    Args:
        orders: per rank its actions in order, from :func:`tracekit.schedule.orders.order` or as measured. A first stage
            may leave I out: its W is then its whole backward.
        placement: which rank holds which stage.
        times: ns per action: :class:`Times`, any other function of the action, or a mapping that has them all.
        p2p: ns from the end of an action on one rank until another rank has its result: one number, or one per
            (sender, receiver). Between stages of the same rank it takes none.
        overhead: ns that a rank needs before each action once it is free and the input is there; bubble, not work.
        pairs: forwards that run as one with the action after them (:func:`tracekit.schedule.orders.overlapped`): both inputs
            are there before the pair starts, both results once it has ended. The pair takes both times one after the
            other; where overlap makes it shorter, let ``times`` say so.

    Returns:
        The simulation.

    Raises:
        UsageError: orders and placement do not fit, an action stands twice or has no time, a link has none, or actions
            wait for each other or for something that no rank runs; the message names them.

    >>> from tracekit.schedule import catalog, orders
    >>> simulate(orders.order("gpipe", 2, 4), catalog.placement("gpipe", 2), Times.uniform(2, 1, 1, 1)).bubble_ratio
    0.2
    """
    _check(orders, placement)
    spans = _run(orders, placement, times if callable(times) else _looked_up(times), _link(p2p), overhead, pairs)
    first = min(start for lane in spans for start, _ in lane)
    return Simulation(tuple(map(tuple, orders)), tuple(tuple((start - first, end - first) for start, end in lane) for lane in spans))


def _run(
    orders: Sequence[Sequence[Action]],
    placement: Placement,
    duration: Callable[[Action], int],
    link: Callable[[int, int], int],
    overhead: int,
    pairs: Collection[Action],
) -> list[list[tuple[int, int]]]:
    """Start and end of every action. Each rank runs until it has to wait for an action that has not run; that one wakes it."""
    split = {(a.stage, a.microbatch) for lane in orders for a in lane if a.action == "I"}
    ends: dict[_Key, int] = {}
    spans: list[list[tuple[int, int]]] = [[] for _ in orders]
    sleepers: dict[_Key, list[int]] = {}
    awake = deque(range(len(orders)))
    while awake:
        rank = awake.popleft()
        lane, done = orders[rank], spans[rank]
        free = done[-1][1] if done else 0
        while len(done) < len(lane):
            unit = lane[len(done) : len(done) + 1 + (lane[len(done)] in pairs)]
            needed = [key for action in unit for key in _inputs(action, placement, split)]
            missing = next((key for key in needed if key not in ends), None)
            if missing is not None:
                sleepers.setdefault(missing, []).append(rank)
                break
            senders = [placement.rank_of[key[0]] for key in needed]
            arrivals = [ends[key] + (0 if sender == rank else link(sender, rank)) for key, sender in zip(needed, senders, strict=True)]
            free = max(free, *arrivals, 0) + overhead
            for action in unit:
                start, free = free, free + duration(action)
                if free < start:
                    raise UsageError(f"action {_text(action)} takes less than no time")
                done.append((start, free))
            for action in unit:
                key = _key(action, split)
                ends[key] = free
                awake.extend(sleepers.pop(key, ()))
    stuck = {key: ranks for key, ranks in sleepers.items() if ranks}
    if stuck:
        waits = [f"rank {rank} waits in {_text(orders[rank][len(spans[rank])])} for {_wanted(key)}" for key, ranks in stuck.items() for rank in ranks]
        raise UsageError(f"the schedule cannot go on: {'; '.join(sorted(waits))}")
    return spans


def _key(action: Action, split: set[tuple[int, int]]) -> _Key:
    """What is there once the action has run."""
    if action.action == "F":
        return action.stage, "F", action.microbatch
    whole = action.action != "W" or (action.stage, action.microbatch) not in split
    return action.stage, "b" if whole else "W", action.microbatch


def _inputs(action: Action, placement: Placement, split: set[tuple[int, int]]) -> Iterator[_Key]:
    """What has to be there before the action can run."""
    stage, direction, microbatch = _key(action, split)
    if direction == "W":
        yield stage, "b", microbatch
        return
    if direction == "b":
        yield stage, "F", microbatch
    neighbour = placement.before(stage) if direction == "F" else placement.after(stage)
    if neighbour is not None:
        yield neighbour, direction, microbatch


def _check(orders: Sequence[Sequence[Action]], placement: Placement) -> None:
    """Every rank has a lane, every action stands once, on the rank that holds its stage."""
    if len(orders) != placement.ranks or not all(orders):
        raise UsageError(f"{placement.ranks} ranks need one order each that is not empty; {sum(map(bool, orders))} are there")
    seen: set[Action] = set()
    for rank, lane in enumerate(orders):
        for a in lane:
            if a in seen:
                raise UsageError(f"action {_text(a)} stands twice in the orders")
            if not 0 <= a.stage < len(placement.rank_of) or placement.rank_of[a.stage] != rank:
                raise UsageError(f"action {_text(a)} stands on rank {rank}, which does not hold stage {a.stage}")
            seen.add(a)


def _looked_up(times: Mapping[Action, int]) -> Callable[[Action], int]:
    """Times from a mapping."""

    def duration(action: Action) -> int:
        if action not in times:
            raise UsageError(f"no time is known for action {_text(action)}")
        return int(times[action])

    return duration


def _link(p2p: int | Mapping[tuple[int, int], int]) -> Callable[[int, int], int]:
    """Time from a sender to a receiver."""

    def between(sender: int, receiver: int) -> int:
        if not isinstance(p2p, Mapping):
            return p2p
        if (sender, receiver) not in p2p:
            raise UsageError(f"no time is known for the link from rank {sender} to rank {receiver}")
        return int(p2p[sender, receiver])

    return between


def _text(action: Action) -> str:
    return f"{action.stage}{action.action}{action.microbatch}"


def _wanted(key: _Key) -> str:
    """A key in words: 3F1, or the backward of 3 for 1."""
    stage, direction, microbatch = key
    return f"{stage}F{microbatch}" if direction == "F" else f"the backward of stage {stage}, microbatch {microbatch}"
