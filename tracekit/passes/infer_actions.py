"""Which pipeline action does work belong to where no range says so? Read off the order of sends, receives and compute.

Sets ``stage``, ``action`` and ``microbatch`` of compute and collectives of a rank that exchanges activations and
gradients with its neighbours but writes no ``PP:`` range (torch's Schedule1F1B, many in-house loops). Where ranges name
actions, only what they leave open is filled in: the stage where the microbatch alone is named (``Forward 3`` of torch's
ScheduleGPipe), and which of two overlapped actions (``PP:(0F3;7B1)OVERLAP_F_B``) an event belongs to, by its phase.

With one stage per rank, every run of forward (or of backward) compute between two sends or receives is one action: a
rank never starts another forward without having sent or received in between. Sequence numbers tell which forward a
backward belongs to, and a backward that goes through the same nodes twice is split: input gradients (I), then weight gradients
(W). Every microbatch must have one unbroken forward and backward (or I and W), and the number of sends and receives must be
what that asks for; where it is not so (virtual stages, other traffic), nothing is set.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.ancestry import inherit
from tracekit.columns import integers
from tracekit.pipeline_place import exchanges, place_in_pipeline
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Collective, Kind, Phase, parse_actions
from tracekit.work import work_masks

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: Part of a microbatch's work: a second pass over the nodes of its backward.
_SECOND = 2
#: A piece that stands apart must be this many times shorter than the pass of its microbatch.
_STRAY = 4


def infer_actions(trace: RankTrace) -> RankTrace:
    """Fill ``stage``, ``action`` and ``microbatch`` where ranges leave them open; the trace itself where they do not."""
    trace = _split_pairs(trace)
    events = trace.events
    calls = exchanges(trace)
    place = place_in_pipeline(trace, calls)
    stated = events["action"].notna()
    if stated.any():
        open_stage = np.flatnonzero((stated & events["stage"].isna()).to_numpy())
        return trace if not len(open_stage) else _with_stage(trace, open_stage, place)
    return trace if place is None else _from_order(trace, calls, *place)


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


def _from_order(trace: RankTrace, calls: Ints, position: int, size: int) -> RankTrace:
    """The trace with actions read off the order of exchanges and compute, step by step."""
    events = trace.events
    action = events["action"].astype(object).to_numpy(copy=True)
    microbatch = integers(events["microbatch"])
    at = _launched(events)
    step = integers(events["step"])
    work, backward = _training_work(trace)
    sequence = np.where(backward, _sequence(events, of_nodes=True), _sequence(events, of_nodes=False))
    for number in np.unique(step[calls]):
        mine = np.sort(at[calls[step[calls] == number]])
        receives = int(events["collective"].eq(Collective.RECV).to_numpy()[calls[step[calls] == number]].sum())
        rows = np.flatnonzero(work & (step == number))
        rows = rows[np.argsort(at[rows], kind="stable")]
        label = _labels(at[rows], backward[rows], sequence[rows], mine)
        if _is_one_stage(label, len(mine), receives, position, size):
            split = np.isin(label // 3, label[label % 3 == _SECOND] // 3)
            action[rows] = np.choose(label % 3, ["F", np.where(split, "I", "B"), "W"])
            microbatch[rows] = label // 3
    found = np.flatnonzero(pd.notna(action))
    if not len(found):
        return trace
    trace = trace.with_finding("actions_inferred", "info", "no range names the pipeline actions: they are read off the order of sends, receives and compute")
    return trace.with_events(
        stage=_set(events["stage"], found, position),
        action=pd.Categorical(action, categories=["F", "B", "I", "W"]),
        microbatch=pd.arrays.IntegerArray(np.maximum(microbatch, 0), microbatch < 0),
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

    Where layers are named, work of no layer (the loss, the division of gradients) belongs to no action.
    """
    events, masks = trace.events, work_masks(trace)
    in_backward = (events["phase"].eq(Phase.BACKWARD) | events["recompute"]).to_numpy()
    training = events["phase"].eq(Phase.FORWARD).to_numpy() | in_backward
    collectives = masks["communication"] & ~events["collective"].isin(list(P2P)).to_numpy()
    work = (masks["compute"] | collectives) & training
    layered = (events["layer"].notna() & events["layer_source"].ne("inferred")).to_numpy()
    if (work & layered & masks["compute"]).any():
        work &= layered
    return work, in_backward


def _sequence(events: pd.DataFrame, of_nodes: bool) -> Ints:
    """Sequence number of the autograd node (else: of the recorded forward operator) that each event runs in; -1 for none."""
    sequence, launch = (integers(events[c]) for c in ("sequence", "launch"))
    is_node = events["fwd_thread"].to_numpy(np.int64, na_value=0) >= 1
    own = (sequence >= 0) & events["kind"].eq(Kind.OPERATOR).to_numpy() & (is_node if of_nodes else ~is_node)
    holder = inherit(integers(events["parent"]), own)
    holder = np.where(launch >= 0, holder[np.maximum(launch, 0)], holder)
    return np.where(holder >= 0, sequence[np.maximum(holder, 0)], -1)


def _numbers(at: Ints, backward: Mask, sequence: Ints, calls: Ints) -> Ints:
    """Microbatch of each piece of one step's work, in order of launch.

    Forwards are numbered as they come, one for every run between two sends or receives. A backward takes the number of
    the forward whose Sequence numbers it carries; where those are unknown, its place among the runs of backward.
    """
    between = np.searchsorted(calls, at, "right")
    new = np.ones(len(at), bool)
    new[1:] = (between[1:] != between[:-1]) | (backward[1:] != backward[:-1])
    out = np.where(backward, np.cumsum(new & backward), np.cumsum(new & ~backward)) - 1
    numbered = ~backward & (sequence >= 0)
    made, first = np.unique(sequence[numbered], return_index=True)
    if not len(made):
        return out
    place = np.minimum(np.searchsorted(made, sequence), len(made) - 1)
    known = backward & (made[place] == sequence)
    # work without such a number (gradient accumulation, reductions) follows the work launched before it
    last = np.maximum.accumulate(np.where(known, np.arange(len(at)), -1))
    same_run = last >= np.maximum.accumulate(np.where(new, np.arange(len(at)), 0))
    by_number = out[numbered][first][place[np.maximum(last, 0)]]
    return np.asarray(np.where(backward, by_number, out), np.int64) if same_run[backward].all() else out


def _labels(at: Ints, backward: Mask, sequence: Ints, calls: Ints) -> Ints:
    """3 x microbatch + part of each piece of one step's work, in order of launch: 0 forward, 1 backward, 2 a second pass over its nodes.

    Nodes that turn up alone in the midst of other microbatches' passes carry no number of their own (an embedding's may be that of
    the forward recorded last): they follow the backward work launched before them.
    """
    label, apart = _passes(_numbers(at, backward, sequence, calls), backward, sequence, np.searchsorted(calls, at, "right"))
    if apart.any():
        sequence = np.where(backward & np.isin(sequence, sequence[apart]), -1, sequence)
        label, _ = _passes(_numbers(at, backward, sequence, calls), backward, sequence, np.searchsorted(calls, at, "right"))
    return label


def _passes(numbers: Ints, backward: Mask, sequence: Ints, between: Ints) -> tuple[Ints, Mask]:
    """Labels by microbatch and pass, and which pieces stand apart from their microbatch's pass and are short against it."""
    apart = np.zeros(len(numbers), bool)
    if not len(numbers):
        return numbers, apart
    starts = _piece_starts(2 * numbers + backward, backward, sequence, between)
    ends = np.append(starts[1:], len(numbers))
    nodes = [set(sequence[start:end].tolist()) - {-1} for start, end in zip(starts, ends, strict=True)]
    stated = np.where(backward[starts], 3 * numbers[starts] + 1, 3 * numbers[starts])
    label = stated.copy()
    for number in np.unique(stated[backward[starts]]):
        mine = np.flatnonzero(stated == number)
        longest = mine[np.argsort((starts - ends)[mine], kind="stable")]
        home, first, second = int(longest[0]), int(longest[:2].min()), int(longest[:2].max())
        if first != second and 2 * len(nodes[first] & nodes[second]) > len(nodes[second]):
            label[second] = number + _SECOND - 1
        for i in mine[np.abs(mine - home) > 1].tolist():
            apart[starts[i] : ends[i]] = label[i] == number and _STRAY * (ends[i] - starts[i]) < ends[home] - starts[home]
    return np.asarray(np.repeat(label, ends - starts), np.int64), apart


def _piece_starts(label: Ints, backward: Mask, sequence: Ints, between: Ints) -> Ints:
    """Where pieces of one microbatch's forward or backward begin: at each change, each exchange, and where nodes come round again."""
    starts = np.flatnonzero(np.append(True, (np.diff(label) != 0) | (np.diff(between) != 0)))
    again = []
    for start, end in zip(starts, np.append(starts[1:], len(label)), strict=True):
        known = start + np.flatnonzero(sequence[start:end] >= 0)
        if backward[start] and len(known):
            turns = known[np.append(True, np.diff(sequence[known]) != 0)]
            again += turns[pd.Series(sequence[turns]).duplicated().to_numpy()][:1].tolist()
    return np.unique(np.append(starts, np.array(again, np.int64)))


def _is_one_stage(label: Ints, calls: int, receives: int, position: int, size: int) -> bool:
    """Whether the work is that of one stage: a forward and an unbroken backward (or two passes) per microbatch, and the traffic fits."""
    if not len(label):
        return False
    runs = 1 + int((np.diff(label) != 0).sum())
    every = np.unique(label)
    count = int(every.max()) // 3 + 1
    whole = np.isin(3 * np.arange(count)[:, None] + [0, 1], every).all() and runs == len(every)
    neighbours = (position > 0) + (position < size - 1)
    return bool(whole) and receives == count * neighbours and calls == 2 * receives


def _set(column: pd.Series, rows: Ints, value: int | Ints) -> pd.Series:
    """The column with other values in some rows."""
    out = column.copy()
    out.iloc[rows] = value
    return out
