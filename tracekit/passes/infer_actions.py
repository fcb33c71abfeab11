"""Which pipeline action does work belong to where no range says so? Read off the order of sends, receives and compute.

Sets ``stage``, ``action`` and ``microbatch`` of compute and collectives of a rank that exchanges activations and
gradients with its neighbours but writes no ``PP:`` range (torch's Schedule1F1B, many in-house loops). Where ranges name
actions, only what they leave open is filled in: the stage where forward and backward alone are named (``Forward 3`` of
torch's ScheduleGPipe, ``forward-compute`` of Megatron-LM), the microbatch where that is not named either, and which of two
overlapped actions (``PP:(0F3;7B1)OVERLAP_F_B``) an event belongs to, by its phase.

Every run of forward (or of backward) compute between two sends or receives is one action: a rank never starts another
forward without having sent or received in between, unless it hands activations to itself. ``action_order`` says which
forward a backward belongs to, ``stage_order`` which stages, virtual ones too, and microbatches they are; where the work of a step
is not whole or its traffic does not fit, nothing is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.action_order import Order, order
from tracekit.action_ranges import action_ranges, stages_of_ranges
from tracekit.ancestry import inherit
from tracekit.columns import Objects, Rows, choose, integers, named, nullable
from tracekit.pipeline_place import ELSEWHERE, NEXT, PREVIOUS, UNKNOWN, exchanges, neighbours, place_in_pipeline
from tracekit.stage_order import Traffic, stage_order
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Action, Collective, Kind, Phase, parse_actions
from tracekit.work import work_masks

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LETTERS = ["F", "B", "I", "W"]
#: Code of the finding that says that actions, or their microbatches, were inferred.
INFERRED = "actions_inferred"


def infer_actions(trace: RankTrace) -> RankTrace:
    """Fill ``stage``, ``action`` and ``microbatch`` where ranges leave them open; the trace itself where they do not."""
    trace = _split_pairs(trace)
    events = trace.events
    calls = exchanges(trace)
    place = place_in_pipeline(trace, calls)
    stated = events["action"].notna()
    if stated.any():
        open_stage = np.flatnonzero((stated & events["stage"].isna()).to_numpy())
        ranges = action_ranges(events)
        if len(open_stage) and len(ranges) and place is not None:
            return _from_ranges(trace, ranges, calls, place)
        return trace if not len(open_stage) else _with_stage(trace, open_stage, place)
    return trace if place is None else _from_order(trace, calls, place)


def _with_stage(trace: RankTrace, rows: Ints, place: tuple[int, int] | None) -> RankTrace:
    """The trace with the stage of actions that name none: the rank's place in its pipeline.

    Where device work names actions and nothing tells of groups, that place is the rank itself; the job checks it.
    """
    events, rank = trace.events, trace.meta.rank
    if place is not None:
        return trace.with_events(stage=_set(events["stage"], rows, place[0]))
    grouped = bool(trace.meta.groups) or events["group_ranks"].notna().any() or bool(trace.meta.run.get("mesh"))
    if rank is None or grouped or events["device"].iloc[rows].isna().any():
        return trace
    says = "kernels name their actions but no stage, and no process group tells the pipeline: the rank's number is taken for its stage"
    return trace.with_finding("stage_inferred", "info", says).with_events(stage=_set(events["stage"], rows, rank))


def _from_order(trace: RankTrace, calls: Rows, place: tuple[int, int]) -> RankTrace:
    """The trace with actions read off the order of exchanges and compute, step by step."""
    events = trace.events
    at, step = _launched(events), integers(events["step"])
    work, backward = _training_work(trace)
    sequence = _sequences(events, backward)
    told = _Told.nothing(len(events))
    for number in np.unique(step[calls]):
        mine = calls[step[calls] == number]
        rows = np.flatnonzero(work & (step == number))
        rows = rows[np.argsort(at[rows], kind="stable")]
        traffic = _traffic(trace, mine)
        if traffic is not None:
            told.read(rows, order(at[rows], backward[rows], sequence[rows], np.sort(at[mine])), traffic, place)
    if not told.any():
        return trace
    return told.onto(trace).with_finding(INFERRED, "info", "no range names the pipeline actions: they are read off the order of sends, receives and compute")


def _from_ranges(trace: RankTrace, ranges: pd.DataFrame, calls: Rows, place: tuple[int, int]) -> RankTrace:
    """The trace with the stage, and where needed the microbatch, of ranges that name forward or backward, step by step."""
    events = trace.events
    at, step = _launched(events), integers(events["step"])
    start = ranges["start_ns"].to_numpy(np.int64)
    inside = np.searchsorted(start, at, "right") - 1
    inside = np.where((inside >= 0) & (at < ranges["end_ns"].to_numpy(np.int64)[np.maximum(inside, 0)]), inside, -1)
    letters = ranges["action"].to_numpy(object)
    backward = (inside >= 0) & (letters[np.maximum(inside, 0)] != "F")
    masks = work_masks(trace)
    collectives = masks["communication"] & ~events["collective"].isin(list(P2P)).to_numpy()
    work = (masks["compute"] | collectives) & (inside >= 0)
    sequence = _sequences(events, backward)
    told, counted = _Told.nothing(len(events)), False
    for number in np.unique(step[work]):
        rows = np.flatnonzero(work & (step == number))
        rows = rows[np.argsort(at[rows], kind="stable")]
        here = np.unique(inside[rows])
        stated = stages_of_ranges(ranges.iloc[here], *place)
        if stated is not None:
            told.fill(rows, dict(zip(here.tolist(), stated, strict=True)), inside[rows])
            continue
        if ranges["microbatch"].iloc[here].notna().all():
            continue
        found = order(at[rows], backward[rows], sequence[rows], start)
        mine = calls[step[calls] == number]
        counted |= told.read(rows, found, _traffic(trace, mine) if len(mine) else None, place)
    out = told.onto(trace.with_events(action=pd.Categorical([None] * len(events), categories=LETTERS)))
    return out.with_finding(INFERRED, "info", "ranges name forward and backward but no microbatch: they are counted") if counted else out


def _traffic(trace: RankTrace, calls: Rows) -> Traffic | None:
    """The sends and receives among some calls; None where one is both, or with a rank that is no neighbour in its group."""
    at = _launched(trace.events)
    both = trace.events["collective"].eq(Collective.SEND_RECV).to_numpy()[calls]
    received = trace.events["collective"].eq(Collective.RECV).to_numpy()[calls]
    toward = neighbours(trace, calls)
    if both.any() or (toward == ELSEWHERE).any():
        return None
    known = bool(len(calls)) and not (toward == UNKNOWN).any()
    ahead, behind = (int(x.sum()) if known else None for x in (~received & (toward == NEXT), received & (toward == PREVIOUS)))
    return Traffic(np.sort(at[calls[~received]]), np.sort(at[calls[received]]), ahead, behind)


@dataclass(frozen=True)
class _Told:
    """Actions found so far, for every event of a trace; -1 and None for none."""

    stage: Ints
    action: Objects
    microbatch: Ints

    @classmethod
    def nothing(cls, count: int) -> _Told:
        return cls(np.full(count, -1, np.int64), np.full(count, None, object), np.full(count, -1, np.int64))

    def any(self) -> bool:
        return bool((self.stage >= 0).any())

    def read(self, rows: Rows, found: Order, traffic: Traffic | None, place: tuple[int, int]) -> bool:
        """Note what the order of one step says; whether it says anything."""
        meaning = stage_order(found.pieces, found.by_sequence, place, traffic, found.starts)
        if meaning is not None:
            self.fill(rows, meaning, found.label)
        return meaning is not None

    def fill(self, rows: Rows, meaning: Mapping[int, Action], label: Ints) -> None:
        """Note the action of each row by its label; negative labels mean none."""
        for one, (stage, action, microbatch) in meaning.items():
            mine = rows[label == one]
            self.stage[mine], self.action[mine], self.microbatch[mine] = stage, action, microbatch

    def onto(self, trace: RankTrace) -> RankTrace:
        """The trace with these actions; others keep their microbatch."""
        events, found = trace.events, self.stage >= 0
        return trace.with_events(
            stage=nullable(np.where(found, self.stage, integers(events["stage"]))),
            action=pd.Categorical(choose(found, self.action, events["action"].astype(object).to_numpy()), categories=LETTERS),
            microbatch=nullable(np.where(found, self.microbatch, integers(events["microbatch"]))),
        )


def _split_pairs(trace: RankTrace) -> RankTrace:
    """Give the events of an overlapped pair's range to its forward or, where they run in backward, to its backward."""
    events = trace.events
    pairs = {c: found for c in events["name"].cat.categories if len(found := parse_actions(str(c))) > 1}
    rows = events[events["name"].isin(list(pairs)) & events["kind"].eq(Kind.RANGE)].sort_values("ts")
    if not len(rows):
        return trace
    at = _launched(events)
    start = rows["ts"].to_numpy(np.int64)
    pair = np.searchsorted(start, at, "right") - 1
    inside = (pair >= 0) & (at < (start + rows["dur"].to_numpy(np.int64))[np.maximum(pair, 0)])
    second = (events["phase"].eq(Phase.BACKWARD) | events["recompute"]).to_numpy()[inside].astype(int)
    forward_first = [sorted(pairs[name][:2], key=lambda a: a.action != "F") for name in rows["name"]]
    stage, microbatch = (np.array([[a[i] for a in both] for both in forward_first])[pair[inside], second] for i in (0, 2))
    action = events["action"].astype(object).to_numpy(copy=True)
    action[inside] = np.array([[a.action for a in both] for both in forward_first], object)[pair[inside], second]
    return trace.with_events(
        stage=_set(events["stage"], np.flatnonzero(inside), stage),
        action=pd.Categorical(action, categories=["F", "B", "I", "W"]),
        microbatch=_set(events["microbatch"], np.flatnonzero(inside), microbatch),
    )


def _launched(events: pd.DataFrame) -> Ints:
    """When each event was launched: the start of its launching call, or its own."""
    ts = events["ts"].to_numpy(np.int64)
    launch = integers(events["launch"])
    return np.where(launch >= 0, ts[launch], ts)


def _training_work(trace: RankTrace) -> tuple[Mask, Mask]:
    """Masks of compute and collectives in forward and backward, and of those among them in backward.

    Where layers are named and hold most of the compute, work of no layer (the loss, the division of gradients) belongs to no action.
    """
    events, masks = trace.events, work_masks(trace)
    in_backward = (events["phase"].eq(Phase.BACKWARD) | events["recompute"]).to_numpy()
    training = events["phase"].eq(Phase.FORWARD).to_numpy() | in_backward
    collectives = masks["communication"] & ~events["collective"].isin(list(P2P)).to_numpy()
    # cutting a tensor from its graph computes nothing, and is done to what a stage hands on
    cuts = ~in_backward & events["kind"].eq(Kind.OPERATOR).to_numpy() & named(events, lambda name: name.startswith("aten::detach"))
    work = (masks["compute"] | collectives) & training & ~cuts
    layered = (events["layer"].notna() & events["layer_source"].ne("inferred")).to_numpy()
    computing, dur = work & masks["compute"], events["dur"].to_numpy(np.int64)
    if 2 * int(dur[computing & layered].sum()) > int(dur[computing].sum()):
        work &= layered
    return work, in_backward


def _sequences(events: pd.DataFrame, backward: Mask) -> Ints:
    """Sequence number of the autograd node (in forward: of the recorded operator) that each event runs in; -1 for none."""
    return np.where(backward, _sequence(events, of_nodes=True), _sequence(events, of_nodes=False))


def _sequence(events: pd.DataFrame, of_nodes: bool) -> Ints:
    """Sequence number of the autograd node (else: of the recorded forward operator) that each event runs in; -1 for none."""
    sequence, launch = (integers(events[c]) for c in ("sequence", "launch"))
    is_node = events["fwd_thread"].to_numpy(np.int64, na_value=0) >= 1
    own = (sequence >= 0) & events["kind"].eq(Kind.OPERATOR).to_numpy() & (is_node if of_nodes else ~is_node)
    holder = inherit(integers(events["parent"]), own)
    holder = np.where(launch >= 0, holder[np.maximum(launch, 0)], holder)
    return np.where(holder >= 0, sequence[np.maximum(holder, 0)], -1)


def _set(column: pd.Series, rows: Ints, value: int | Ints) -> pd.Series:
    """The column with other values in some rows."""
    out = column.copy()
    out.iloc[rows] = value
    return out
