"""Which pipeline action does work belong to where no range says so? Read off the order of sends, receives and compute.

Sets ``stage``, ``action`` and ``microbatch`` of compute and collectives of a rank that exchanges activations and
gradients with its neighbours but writes no ``PP:`` range (torch's Schedule1F1B, many in-house loops). Where ranges name
actions, only what they leave open is filled in: the stage where the microbatch alone is named (``Forward 3`` of torch's
ScheduleGPipe), and which of two overlapped actions (``PP:(0F3;7B1)OVERLAP_F_B``) an event belongs to, by its phase.

With one stage per rank, every run of forward (or of backward) compute between two sends or receives is one action: a
rank never starts another forward without having sent or received in between. Sequence numbers tell which forward a
backward belongs to. Every microbatch must have one unbroken forward and backward, and the number of sends and receives
must be what that asks for; where it is not so (virtual stages, split backwards, other traffic), nothing is set.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import integers
from tracekit.passes.link import inherit
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Axis, Collective, Kind, Phase, group_axis, parse_actions
from tracekit.work import work_masks

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def infer_actions(trace: RankTrace) -> RankTrace:
    """Fill ``stage``, ``action`` and ``microbatch`` where ranges leave them open; the trace itself where they do not."""
    trace = _split_pairs(trace)
    events = trace.events
    calls = _exchanges(trace)
    place = _place(trace, calls)
    if place is None:
        return trace
    position, size = place
    stated = events["action"].notna()
    if stated.any():
        open_stage = (stated & events["stage"].isna()).to_numpy()
        return trace.with_events(stage=_set(events["stage"], np.flatnonzero(open_stage), position)) if open_stage.any() else trace
    return _from_order(trace, calls, position, size)


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
        numbers = _numbers(at[rows], backward[rows], sequence[rows], mine)
        if _is_one_stage(numbers, backward[rows], len(mine), receives, position, size):
            action[rows] = np.where(backward[rows], "B", "F")
            microbatch[rows] = numbers
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


def _exchanges(trace: RankTrace) -> Ints:
    """Rows that send or receive along the pipeline: the calls on the CPU where they are recorded, else the kernels."""
    events = trace.events
    p2p = events["collective"].isin(list(P2P)).to_numpy()
    axis = {str(c): group_axis(str(c)) for c in events["group_desc"].cat.categories}
    elsewhere = events["group_desc"].isin([desc for desc, name in axis.items() if name not in (None, Axis.PP)]).to_numpy()
    calls = p2p & ~elsewhere & events["kind"].eq(Kind.OPERATOR).to_numpy()
    parent = integers(events["parent"])
    calls &= ~np.where(parent >= 0, calls[parent], False)
    if calls.any():
        return np.flatnonzero(calls)
    return np.flatnonzero(p2p & ~elsewhere & events["kind"].eq(Kind.COMMUNICATION).to_numpy())


def _place(trace: RankTrace, calls: Ints) -> tuple[int, int] | None:
    """(place of this rank in its pipeline, ranks of the pipeline): from the group it exchanges in, else from the mesh."""
    rank = trace.meta.rank
    if rank is None:
        return None
    inside = trace.events["group_ranks"].iloc[calls].dropna().astype(str)
    for text in inside.value_counts().index[:1]:
        ranks = sorted(int(r) for r in text.split(","))
        return (ranks.index(rank), len(ranks)) if rank in ranks and len(ranks) > 1 else None
    for group in trace.meta.groups.values():
        if group_axis(group.get("desc")) == Axis.PP and rank in group["ranks"]:
            return sorted(group["ranks"]).index(rank), len(group["ranks"])
    mesh = trace.meta.run.get("mesh") or {}
    size = int(mesh.get("pp") or 1)
    if size < 2:
        return None
    names = list(mesh)
    inner = int(np.prod([int(mesh[n] or 1) for n in names[names.index("pp") + 1 :]]))
    return rank // inner % size, size


def _launched(events: pd.DataFrame) -> Ints:
    """When each event was launched: the start of its launching call, or its own."""
    ts = events["ts"].to_numpy(np.int64)
    launch = integers(events["launch"])
    return np.where(launch >= 0, ts[launch], ts)


def _training_work(trace: RankTrace) -> tuple[Mask, Mask]:
    """Masks of compute and collectives in forward and backward, and of those among them in backward.

    Where layers are known, work of no layer (the loss, the division of gradients) belongs to no action.
    """
    events, masks = trace.events, work_masks(trace)
    in_backward = (events["phase"].eq(Phase.BACKWARD) | events["recompute"]).to_numpy()
    training = events["phase"].eq(Phase.FORWARD).to_numpy() | in_backward
    collectives = masks["communication"] & ~events["collective"].isin(list(P2P)).to_numpy()
    work = (masks["compute"] | collectives) & training
    layered = events["layer"].notna().to_numpy()
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


def _is_one_stage(numbers: Ints, backward: Mask, calls: int, receives: int, position: int, size: int) -> bool:
    """Whether the work is that of one stage: a forward and an unbroken backward per microbatch, and the traffic fits."""
    if not len(numbers):
        return False
    label = 2 * numbers + backward
    runs = 1 + int((np.diff(label) != 0).sum())
    count = int(numbers.max()) + 1
    whole = np.array_equal(np.unique(label), np.arange(2 * count)) and runs == 2 * count
    neighbours = (position > 0) + (position < size - 1)
    return whole and receives == count * neighbours and calls == 2 * receives


def _set(column: pd.Series, rows: Ints, value: int | Ints) -> pd.Series:
    """The column with other values in some rows."""
    out = column.copy()
    out.iloc[rows] = value
    return out
