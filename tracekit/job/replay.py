"""What does a pipeline's own schedule take on paper, with the times that were measured? The test of every what-if.

Each action keeps its measured span. What lies between actions is read off the same recording: where a rank was free before its input was
made, it waited for that input, and the time from the input's end to its start is the *hand-over* (the transfer, and whatever the rank needs
to begin); where the input had been there, the time from the rank's last action to its next is the *overhead*. Medians of both go into
:func:`tracekit.schedule.simulate.simulate`, and the window that comes out is held against the one that was measured.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import integers
from tracekit.errors import UsageError
from tracekit.job.base import Job
from tracekit.job.pipelines import Pipeline, pipelines
from tracekit.schedule.catalog import Placement
from tracekit.schedule.orders import order, overlapped
from tracekit.schedule.recognise import recognise
from tracekit.schedule.simulate import Simulation, simulate
from tracekit.vocabulary import Action

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: So far from the measured window a simulation may be and still be trusted.
TRUSTED = 0.05


@dataclass(frozen=True)
class Replay:
    """One recorded pipeline and step, run again on paper.

    Attributes:
        ranks: the rank at each place in the pipeline.
        orders: per place its actions in the order in which they began.
        placement: which place holds which stage.
        times: measured span of each action in ns; where two overlapped, what was the second one's own.
        handover: ns from an input's end on one rank to the start of what waited for it on another, less the overhead, by
            (from, to) in places; the median.
        overhead: ns between two actions of a rank when nothing is waited for; the median.
        simulation: the schedule with these.
        window_ns: the window as measured.
    """

    ranks: tuple[int, ...]
    orders: tuple[tuple[Action, ...], ...]
    placement: Placement
    times: dict[Action, int]
    handover: dict[tuple[int, int], int]
    overhead: int
    simulation: Simulation
    window_ns: int

    @property
    def error_ratio(self) -> float:
        """How much longer the simulated window is than the measured one, of the latter; negative where it is shorter."""
        return self.simulation.window_ns / self.window_ns - 1

    @property
    def trusted(self) -> bool:
        """Whether the simulation reproduces the measured window well enough to say what another schedule would take."""
        return abs(self.error_ratio) <= TRUSTED

    @cached_property
    def step_by_step(self) -> tuple[Simulation, ...]:
        """The same order simulated with one more of ``CAUSES`` each time; the first is the order with even stages and nothing between actions."""
        kind = _kinds(self)
        even = _means(self, kind)
        own = _means(self, {a: (a.stage, what) for a, what in kind.items()})
        pairs = _pairs(self.orders)
        return (
            simulate(self.orders, self.placement, even, pairs=pairs),
            simulate(self.orders, self.placement, even, self.handover, self.overhead, pairs),
            simulate(self.orders, self.placement, own, self.handover, self.overhead, pairs),
            self.simulation,
        )


def replays(job: Job) -> tuple[Replay | None, ...]:
    """The replay of each of the job's pipelines, in their order."""
    return job.once("replays", lambda: tuple(replay(p) for p in pipelines(job)))


def replay(pipeline: Pipeline) -> Replay | None:
    """Simulate a recorded pipeline with its own times; None where ranks are missing, clocks disagree or an action ran twice."""
    bounds = pipeline.window
    actions, lanes = pipeline.actions, pipeline.orders
    keys = [action for lane in lanes.values() for action in lane]
    if bounds is None or bounds[1] <= bounds[0] or len(set(keys)) < len(keys):
        return None
    by_first_stage = sorted(lanes, key=lambda rank: min(a.stage for a in lanes[rank]))
    place = {rank: i for i, rank in enumerate(by_first_stage)}
    owner = {a.stage: place[rank] for rank, lane in reversed(lanes.items()) for a in lane}
    where = Placement(len(place), tuple(owner[stage] for stage in range(pipeline.stages)))
    orders = tuple(tuple(lanes[rank]) for rank in place)
    spans = (actions["end_ns"] - actions["fresh_start_ns"]).to_numpy(np.int64)
    times = dict(zip(keys, spans.tolist(), strict=True))
    handover, overhead = _between(actions, place)
    try:
        simulation = simulate(orders, where, times, handover, overhead, _pairs(orders))
    except UsageError:  # an order in which actions wait for each other did not run so: overlapped pairs seen by their starts
        return None
    return Replay(tuple(place), orders, where, times, handover, overhead, simulation, bounds[1] - bounds[0])


#: What a bubble is made of, in the order in which the parts are told apart.
CAUSES = ("schedule", "handover", "imbalance", "variation")


def causes(one: Replay) -> dict[str, float]:
    """Shares of p x window by what causes them, told apart by simulating the same order again and again.

    - ``schedule``: the bubble with even stages and nothing between actions: what the order itself costs.
    - ``handover``: what hand-overs and overheads add to that.
    - ``imbalance``: what the stages' own mean times add: some have more to do.
    - ``variation``: what the single times add: a rank that straggles, a microbatch that takes longer.

    They add up to the bubble ratio of the simulation; a part that makes a bubble smaller is negative.
    """
    ratios = [run.bubble_ratio or 0.0 for run in one.step_by_step]
    return dict(zip(CAUSES, np.diff([0.0, *ratios]).tolist(), strict=True))


def waits(one: Replay) -> pd.DataFrame:
    """What each rank waited between its own actions in the simulation, in ns, by the same causes: rank, and a column per cause."""
    each = np.array([run.waits_ns for run in one.step_by_step], np.int64)
    parts = np.diff(each, axis=0, prepend=np.zeros((1, each.shape[1]), np.int64))
    return pd.DataFrame({"rank": one.ranks, **dict(zip(CAUSES, parts, strict=True))})


def ideal(one: Replay) -> pd.DataFrame:
    """The same order with even stages and nothing between actions: rank, stage, action, microbatch, start_ns, end_ns from the window's start."""
    found = one.step_by_step[0].actions
    return found.assign(rank=np.array(one.ranks, np.int64)[found["rank"]])


def _kinds(one: Replay) -> dict[Action, str]:
    """F, B, I or W; a W whose microbatch and stage have no I is a whole backward."""
    split = {(a.stage, a.microbatch) for a in one.times if a.action == "I"}
    return {a: a.action if a.action != "W" or (a.stage, a.microbatch) in split else "B" for a in one.times}


def _means(one: Replay, group: Mapping[Action, Hashable]) -> dict[Action, int]:
    """For every action the mean time of its group in ns."""
    by_group: dict[Hashable, list[int]] = {}
    for a, ns in one.times.items():
        by_group.setdefault(group[a], []).append(ns)
    mean = {key: round(sum(times) / len(times)) for key, times in by_group.items()}
    return {a: mean[group[a]] for a in one.times}


def _pairs(orders: tuple[tuple[Action, ...], ...]) -> frozenset[Action]:
    """Forwards that run as one with the backward after them, where the schedule is one that has such pairs."""
    known = recognise({place: list(lane) for place, lane in enumerate(orders)}, len(orders))
    if known.name != "dualpipev" or known.microbatches is None:
        return frozenset()
    ran = {a for lane in orders for a in lane}  # a first stage has no input gradient
    if orders != tuple(tuple(a for a in lane if a in ran) for lane in order(known.name, known.ranks, known.microbatches)):
        return frozenset()
    return overlapped(known.name, known.ranks, known.microbatches)


def _between(actions: pd.DataFrame, place: dict[int, int]) -> tuple[dict[tuple[int, int], int], int]:
    """Hand-over by (from, to) of every link that is used, and overhead; medians, a link that never was waited for takes that of the others."""
    rank, started, ended = (actions[c].to_numpy(np.int64) for c in ("rank", "start_ns", "end_ns"))
    source, input_end = (integers(actions[c]) for c in ("source_rank", "input_end_ns"))
    needs = actions["needs_receive"].to_numpy(bool)
    base = started.min()  # times since the epoch do not fit a float64
    start, made = (started - base).astype(np.float64), np.where(input_end < 0, np.nan, input_end - base)
    free = _free(rank, ended - base)
    # an action that began before the last one ended was overlapped with it: nothing lies between
    behind = start - free
    at_once = (behind >= 0) & ~(needs & (made > free)) & ~(needs & np.isnan(made))
    waited = needs & (made >= np.where(np.isnan(free), -np.inf, free))
    overhead = _median(behind[at_once]) or 0
    handover = np.where(waited, start - made, np.nan)
    usual = _median(handover) or 0
    links = sorted(set(zip(source[needs].tolist(), rank[needs].tolist(), strict=True)))
    found = {(a, b): _median(handover[needs & (source == a) & (rank == b)]) for a, b in links}
    return {(place[a], place[b]): max(0, (usual if ns is None else ns) - overhead) for (a, b), ns in found.items()}, overhead


def _free(rank: Ints, end: Ints) -> Floats:
    """When each action's rank had ended all those before it; NaN for its first. Rows are in order of rank and start."""
    first = np.flatnonzero(np.diff(rank, prepend=rank[:1] - 1))
    so_far = np.concatenate([np.maximum.accumulate(lane) for lane in np.split(end, first[1:])])
    out: Floats = np.concatenate(([np.nan], so_far[:-1]))
    out[first] = np.nan
    return out


def _median(values: Floats) -> int | None:
    """The median of what is known, whole; None where nothing is."""
    known = values[~np.isnan(values)]
    return round(float(np.median(known))) if len(known) else None
