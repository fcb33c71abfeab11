"""Which ranks form a pipeline, and which transfer brought each action its input?

The ranks of a pipeline are those of one process group along the mesh axis ``pp``; where no group or mesh tells, those
that exchange activations or gradients between neighbouring stages; where nothing links any two ranks, the ranks of the job in
order, if their stages are placed so. An action F of stage s needs what F of stage s-1
sent, an action B or I what B or I of stage s+1 sent, unless both stages live on one rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import Objects, integers, nullable
from tracekit.job.base import Job
from tracekit.schedule.recognise import Schedule, recognise
from tracekit.vocabulary import Action, Axis, Direction

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Beyond this an action that starts before its input was ready means that clocks differ, not that a trace is coarse.
CLOCK_TOLERANCE_NS = 100_000
#: The same where only the order of ranks makes the pipeline: copies of one stage run at the same time.
_ORDER_TOLERANCE_NS = 1_000


@dataclass(frozen=True)
class Pipeline:
    """One pipeline in one step of one capture.

    Attributes:
        capture, step: where; step is None outside every step.
        number: 0, 1, … in order of the first rank.
        ranks: all its ranks, missing ones too.
        actions: the ``actions`` fact of its ranks with ``rank``, and per action ``whole_backward`` (B, or a W without I),
            ``needs_receive``, ``receive_known``,
            ``transfer_start_ns`` (the later of the two starts), ``transfer_end_ns``, ``source_rank`` (which holds the stage that makes its
            input) and ``input_end_ns`` (when that was made); in order of rank and start.
        stages: stages in all, virtual ones counted.
        complete: every rank and every stage is here.
        causal: no action starts before its input was computed, as it must be where clocks agree.
        by_order: nothing but the order of ranks makes these a pipeline.
    """

    capture: int
    step: int | None
    number: int
    ranks: tuple[int, ...]
    actions: pd.DataFrame
    stages: int
    complete: bool
    causal: bool
    by_order: bool = False

    @cached_property
    def window(self) -> tuple[int, int] | None:
        """Start and end of the window; None where ranks are missing or clocks disagree."""
        if not self.complete or not self.causal:
            return None
        return int(self.actions["start_ns"].to_numpy().min()), int(self.actions["end_ns"].to_numpy().max())

    @cached_property
    def orders(self) -> dict[int, list[Action]]:
        """Of each rank that is here, in order, its actions in order of start."""
        out: dict[int, list[Action]] = {}
        for rank, *action in zip(*(self.actions[c].tolist() for c in ("rank", "stage", "action", "microbatch")), strict=True):
            out.setdefault(rank, []).append(Action(*action))
        return out

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that these orders are of."""
        return recognise(self.orders, len(self.ranks))


class _Messages(NamedTuple):
    """Transfers from one rank to another in one step, in order.

    Attributes:
        carried: of each, whether it goes forward, the stage that receives it (None where neither end says) and its microbatch; None where
            direction or microbatch is not known.
        start: when both ends were ready; -1 where the transfer is unknown.
        end: when it was received; -1 likewise.
    """

    carried: Sequence[tuple[bool, int | None, int] | None]
    start: Ints
    end: Ints


#: Transfers by (step, source, destination).
_Sent = Mapping[tuple[int | None, int, int], _Messages]


def pipelines(job: Job) -> tuple[Pipeline, ...]:
    """Every pipeline of every step, in order of capture, step and first rank; () where no rank has pipeline actions."""
    return job.once("pipelines", lambda: _pipelines(job))


def _pipelines(job: Job) -> tuple[Pipeline, ...]:
    actions = job.table("actions")
    if not len(actions):
        return ()
    found = []
    capture: Any
    step: Any
    for capture, rows in actions.groupby("capture", sort=True):
        p2p = job.p2p[job.p2p["capture"].eq(capture)] if len(job.p2p) else job.p2p
        sent = _sent(p2p)
        lists = _rank_lists(job, rows, p2p)
        in_order = _in_order(job, rows, int(capture)) if all(len(ranks) == 1 for ranks in lists) and not len(p2p) else None
        rows = rows.sort_values(["rank", "start_ns", "end_ns"], kind="stable")
        for number, ranks in enumerate(lists if in_order is None else [in_order]):
            mine = rows[rows["rank"].isin(ranks)]
            for step, here in mine.groupby("step", dropna=False, sort=True):
                place = int(capture), None if pd.isna(step) else int(step), number, ranks
                found.append(_pipeline(*place, here.reset_index(drop=True), sent, by_order=in_order is not None))
    return tuple(sorted(found, key=lambda x: (x.capture, -1 if x.step is None else x.step, x.number)))


def _sent(p2p: pd.DataFrame) -> _Sent:
    """Pipeline transfers, in order."""
    if not len(p2p):
        return {}
    kept = p2p[p2p["axis"].isna() | p2p["axis"].eq(Axis.PP)].sort_values("order", kind="stable")
    step, src, dst = (integers(kept[c]) for c in ("step", "src", "dst"))
    carried, (start, end) = _carried(kept), _moved(kept)
    at: Any = kept.groupby([step, src, dst], sort=False).indices if len(kept) else {}
    return {(None if k < 0 else int(k), int(a), int(b)): _Messages([carried[i] for i in rows], start[rows], end[rows]) for (k, a, b), rows in at.items()}


def _carried(p2p: pd.DataFrame) -> list[tuple[bool, int | None, int] | None]:
    """``_Messages.carried`` of transfers."""
    direction, microbatch = p2p["direction"], p2p["microbatch"]
    forward = direction.eq(Direction.FORWARD).to_numpy(bool)
    received, sent = integers(p2p["recv_stage"]), integers(p2p["send_stage"])
    stage = np.where(received >= 0, received, sent + np.where(forward, 1, -1)).tolist()
    told = ((received >= 0) | (sent >= 0)).tolist()
    known = (direction.notna() & microbatch.notna()).tolist()
    rows = zip(known, forward.tolist(), stage, told, integers(microbatch).tolist(), strict=True)
    return [(f, s if t else None, m) if k else None for k, f, s, t, m in rows]


def _moved(p2p: pd.DataFrame) -> tuple[Ints, Ints]:
    """``_Messages.start`` and ``end`` of transfers."""
    send, receive, received = (integers(p2p[c]) for c in ("send_start_ns", "recv_start_ns", "recv_end_ns"))
    unknown = np.minimum.reduce([send, receive, received]) < 0
    start = np.maximum(send, receive)
    return np.where(unknown, -1, start), np.where(unknown, -1, np.maximum(received, start))


def _rank_lists(job: Job, actions: pd.DataFrame, p2p: pd.DataFrame) -> list[tuple[int, ...]]:
    """Ranks of each pipeline: from the groups where they make sense of the stages, else from who sends to whom."""
    by_rank: Any = actions.groupby("rank")
    stages = {int(rank): frozenset(int(s) for s in part["stage"]) for rank, part in by_rank}
    lists = []
    for text, axis in job.axis_of.items():
        ranks = tuple(int(r) for r in text.split(","))
        here = [stages[r] for r in ranks if r in stages]
        if axis == Axis.PP and here and len(frozenset().union(*here)) == sum(map(len, here)):
            lists.append(ranks)
    covered = {r for ranks in lists for r in ranks}
    loose = {r: s for r, s in stages.items() if r not in covered}
    return sorted([*lists, *_connected(loose, p2p)])


def _connected(stages: dict[int, frozenset[int]], p2p: pd.DataFrame) -> list[tuple[int, ...]]:
    """Ranks linked by sends between neighbouring stages."""
    parts = {rank: {rank} for rank in stages}
    pairs = p2p[["src", "dst"]].drop_duplicates().itertuples(index=False) if len(p2p) else ()
    for src, dst in pairs:
        if src not in parts or dst not in parts or parts[src] is parts[dst]:
            continue
        if any(abs(a - b) == 1 for a in stages[src] for b in stages[dst]):
            parts[src] |= parts[dst]
            for rank in parts[dst]:
                parts[rank] = parts[src]
    return sorted({tuple(sorted(part)) for part in parts.values()})


def _in_order(job: Job, actions: pd.DataFrame, capture: int) -> tuple[int, ...] | None:
    """All ranks of the job, where each that is here holds the stages that its number asks for; None where they are no pipeline."""
    by_rank: Any = actions.groupby("rank")
    stages = {int(rank): sorted({int(s) for s in part["stage"]}) for rank, part in by_rank}
    if set(stages) != {rank for rank, c in job.ranks if c == capture}:
        return None
    p = job.world_size or max(stages) + 1
    looped = all(s % p == rank for rank, held in stages.items() for s in held)
    in_v = all(held == [rank, 2 * p - 1 - rank] for rank, held in stages.items())
    return tuple(range(p)) if p > 1 and (looped or in_v) else None


def _pipeline(capture: int, step: int | None, number: int, ranks: tuple[int, ...], rows: pd.DataFrame, sent: _Sent, by_order: bool) -> Pipeline:
    """The pipeline of some ranks in one step, of their actions in order of rank and start."""
    rank, stage, microbatch, began, ended = (rows[c].to_numpy(np.int64) for c in ("rank", "stage", "microbatch", "start_ns", "end_ns"))
    action = rows["action"].to_numpy(object)
    places = list(zip(stage.tolist(), microbatch.tolist(), strict=True))
    owner = dict(zip(stage.tolist(), rank.tolist(), strict=True))
    whole_backward = _whole_backward(action, places)
    producer = _producers(action, places, whole_backward)
    # where ranks are missing, those that are here tell how many stages a rank has
    held = Counter(r for r, _ in set(zip(rank.tolist(), stage.tolist(), strict=True)))
    stages = max(int(stage.max()) + 1, len(ranks) * max(held.values()))
    whole = len(held) == len(ranks) and set(owner) == set(range(stages))
    source_stage = np.where(action == "F", stage - 1, stage + 1)
    outside = (source_stage < 0) | (source_stage >= stages) | ((action == "W") & ~whole_backward)
    source = np.array([owner.get(s, -1) for s in source_stage.tolist()], np.int64)
    needs = ~outside & (source != rank)
    made = producer >= 0
    input_end = np.where(made, ended[producer], -1)
    wanted = [(a == "F", *place) for a, place in zip(action, places, strict=True)]
    start, end = _transfers(wanted, input_end, np.flatnonzero(needs & made), source, rank, step, sent)
    more = pd.DataFrame(
        {
            "whole_backward": whole_backward,
            "needs_receive": needs,
            "receive_known": ~needs | (start >= 0),
            "transfer_start_ns": nullable(start),
            "transfer_end_ns": nullable(end),
            "source_rank": nullable(source),
            "input_end_ns": nullable(input_end),
        }
    )
    tolerance = _ORDER_TOLERANCE_NS if by_order else CLOCK_TOLERANCE_NS
    causal = bool((began >= input_end - tolerance)[made].all())
    return Pipeline(capture, step, number, ranks, pd.concat([rows, more], axis=1), stages, whole, causal, by_order)


def _whole_backward(action: Objects, places: Sequence[tuple[int, int]]) -> Mask:
    """Actions that do a whole backward: B, and a W whose microbatch and stage have no I."""
    split = {places[i] for i in np.flatnonzero(action == "I").tolist()}
    alone = np.array([place not in split for place in places], np.bool_)
    return np.asarray((action == "B") | ((action == "W") & alone), np.bool_)


def _producers(action: Objects, places: Sequence[tuple[int, int]], whole_backward: Mask) -> Ints:
    """Row of the action that computed each action's input; -1 where there is none (or it is not here)."""
    forward = action == "F"
    hands_on = whole_backward | (action == "I")
    forwards = {places[i]: i for i in np.flatnonzero(forward).tolist()}
    backwards = {places[i]: i for i in np.flatnonzero(hands_on).tolist()}
    out = np.full(len(places), -1, np.int64)
    for i, (stage, microbatch) in enumerate(places):
        if forward[i]:
            out[i] = forwards.get((stage - 1, microbatch), -1)
        elif hands_on[i]:
            out[i] = backwards.get((stage + 1, microbatch), -1)
    return out


def _transfers(
    wanted: Sequence[tuple[bool, int, int]], input_end: Ints, waiting: Ints, source: Ints, rank: Ints, step: int | None, sent: _Sent
) -> tuple[Ints, Ints]:
    """Start (both ends ready) and end of the transfer that brought each action its input; -1 where unknown.

    Args:
        wanted: of each action whether it is a forward, its stage and microbatch.
        input_end: when its input was made, ns.
        waiting: rows of the actions whose input another rank made.
        source: rank that holds the stage of its input.
        rank: its own.
        step: their step.
        sent: the transfers that there were.
    """
    start, end = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
    for src, dst in set(zip(source[waiting].tolist(), rank[waiting].tolist(), strict=True)):
        mine = waiting[(source[waiting] == src) & (rank[waiting] == dst)]
        # a rank sends in the order in which it computed
        mine = mine[np.argsort(input_end[mine], kind="stable")]
        here = sent.get((step, src, dst))
        which = None if here is None else _assign([wanted[i] for i in mine], here.carried)
        if here is not None and which is not None:
            start[mine], end[mine] = here.start[which], here.end[which]
    return start, end


def _assign(wanted: Sequence[tuple[bool, int, int]], carried: Sequence[tuple[bool, int | None, int] | None]) -> Ints | None:
    """Place among the messages of each action's input; None where it cannot be told.

    By direction, stage and microbatch where all messages name them, else by order where there are equally many.
    """
    stages = {stage for _, stage, _ in wanted}
    only = next(iter(stages)) if len(stages) == 1 else None
    place: dict[tuple[bool, int, int], int] = {}
    for i, one in enumerate(carried):
        if one is None:
            continue
        forward, told, microbatch = one
        stage = only if told is None else told
        if stage is not None:
            place[forward, stage, microbatch] = i
    if len(place) == len(carried) and all(key in place for key in wanted):
        return np.array([place[key] for key in wanted], np.int64)
    return np.arange(len(wanted)) if len(carried) == len(wanted) else None
