"""Which ranks form a pipeline, and which transfer brought each action its input?

The ranks of a pipeline are those of one process group along the mesh axis ``pp``; where no group or mesh tells, those
that exchange activations or gradients between neighbouring stages; where nothing links any two ranks, the ranks of the job in
order, if their stages are placed so. An action F of stage s needs what F of stage s-1
sent, an action B or I what B or I of stage s+1 sent, unless both stages live on one rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import integers
from tracekit.job.base import Job
from tracekit.vocabulary import Axis, Direction

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: Transfers by (step, source, destination).
Messages = Mapping[tuple[int | None, int, int], pd.DataFrame]

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
        messages = _messages(p2p)
        lists = _rank_lists(job, rows, p2p)
        in_order = _in_order(job, rows, int(capture)) if all(len(ranks) == 1 for ranks in lists) and not len(p2p) else None
        for number, ranks in enumerate(lists if in_order is None else [in_order]):
            mine = rows[rows["rank"].isin(ranks)]
            for step, here in mine.groupby("step", dropna=False, sort=True):
                one = _pipeline(int(capture), None if pd.isna(step) else int(step), number, ranks, here, messages, by_order=in_order is not None)
                found.append(one)
    return tuple(sorted(found, key=lambda x: (x.capture, -1 if x.step is None else x.step, x.number)))


def _messages(p2p: pd.DataFrame) -> Messages:
    """Pipeline transfers by (step, source, destination), in order."""
    if not len(p2p):
        return {}
    kept = p2p[p2p["axis"].isna() | p2p["axis"].eq(Axis.PP)].sort_values("order", kind="stable")
    groups: Any = kept.groupby(["step", "src", "dst"], dropna=False, sort=False)
    return {(None if pd.isna(step) else int(step), int(src), int(dst)): rows for (step, src, dst), rows in groups}


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


def _pipeline(capture: int, step: int | None, number: int, ranks: tuple[int, ...], rows: pd.DataFrame, messages: Messages, by_order: bool = False) -> Pipeline:
    rows = rows.sort_values(["rank", "start_ns", "end_ns"], kind="stable", ignore_index=True)
    owner = {int(stage): int(rank) for stage, rank in rows[["stage", "rank"]].drop_duplicates().itertuples(index=False)}
    whole_backward = _whole_backward(rows)
    producer = _producers(rows, whole_backward)
    # where ranks are missing, those that are here tell how many stages a rank has
    stages = max(int(rows["stage"].max()) + 1, len(ranks) * int(rows.groupby("rank")["stage"].nunique().max()))
    whole = rows["rank"].nunique() == len(ranks) and set(owner) == set(range(stages))
    forward = rows["action"].eq("F").to_numpy()
    source_stage = np.where(forward, rows["stage"] - 1, rows["stage"] + 1)
    outside = (source_stage < 0) | (source_stage >= stages) | (rows["action"].eq("W").to_numpy() & ~whole_backward)
    source = np.array([owner.get(int(s), -1) for s in source_stage])
    needs = ~outside & (source != rows["rank"].to_numpy())
    start, end = _transfers(rows, producer, needs, source, step, messages)
    unknown = needs & (start < 0)
    table = rows.assign(
        whole_backward=whole_backward,
        needs_receive=needs,
        receive_known=~unknown,
        transfer_start_ns=pd.arrays.IntegerArray(start, start < 0),
        transfer_end_ns=pd.arrays.IntegerArray(end, start < 0),
        source_rank=pd.arrays.IntegerArray(source, source < 0),
        input_end_ns=pd.arrays.IntegerArray(rows["end_ns"].to_numpy(np.int64)[np.maximum(producer, 0)], producer < 0),
    )
    made = producer >= 0
    ready = rows["end_ns"].to_numpy()[producer[made]]
    tolerance = _ORDER_TOLERANCE_NS if by_order else CLOCK_TOLERANCE_NS
    causal = bool((rows["start_ns"].to_numpy()[made] >= ready - tolerance).all())
    return Pipeline(capture, step, number, ranks, table, stages, whole, causal, by_order)


def _whole_backward(rows: pd.DataFrame) -> Mask:
    """Actions that do a whole backward: B, and a W whose microbatch and stage have no I."""
    keys = pd.MultiIndex.from_frame(rows[["stage", "microbatch"]])
    split = keys.isin(keys[rows["action"].eq("I")])
    return np.asarray(rows["action"].eq("B").to_numpy() | (rows["action"].eq("W").to_numpy() & ~split), np.bool_)


def _producers(rows: pd.DataFrame, whole_backward: Mask) -> Ints:
    """Row of the action that computed each action's input; -1 where there is none (or it is not here)."""
    forward = rows["action"].eq("F").to_numpy()
    hands_on = whole_backward | rows["action"].eq("I").to_numpy()
    places = list(zip(rows["stage"], rows["microbatch"], strict=True))
    forwards = {places[i]: i for i in np.flatnonzero(forward)}
    backwards = {places[i]: i for i in np.flatnonzero(hands_on)}
    out = np.full(len(rows), -1, np.int64)
    for i, (stage, microbatch) in enumerate(places):
        if forward[i]:
            out[i] = forwards.get((stage - 1, microbatch), -1)
        elif hands_on[i]:
            out[i] = backwards.get((stage + 1, microbatch), -1)
    return out


def _transfers(rows: pd.DataFrame, producer: Ints, needs: Mask, source: Ints, step: int | None, messages: Messages) -> tuple[Ints, Ints]:
    """Start (both ends ready) and end of the transfer that brought each action its input; -1 where unknown."""
    start, end = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
    sent, rank = rows["end_ns"].to_numpy(), rows["rank"].to_numpy()
    waiting = np.flatnonzero(needs & (producer >= 0))
    for src, dst in sorted(set(zip(source[waiting].tolist(), rank[waiting].tolist(), strict=True))):
        mine = waiting[(source[waiting] == src) & (rank[waiting] == dst)]
        # a rank sends in the order in which it computed
        mine = mine[np.argsort(sent[producer[mine]], kind="stable")]
        here = messages.get((step, src, dst))
        which = None if here is None else _assign(rows.iloc[mine], here)
        if here is None or which is None:
            continue
        times = [integers(here[c])[which] for c in ("send_start_ns", "recv_start_ns", "recv_end_ns")]
        known = np.minimum.reduce(times) >= 0
        begin = np.maximum(times[0], times[1])
        start[mine] = np.where(known, begin, -1)
        end[mine] = np.where(known, np.maximum(times[2], begin), -1)
    return start, end


def _assign(rows: pd.DataFrame, messages: pd.DataFrame) -> Ints | None:
    """Place among the messages of each action's input; None where it cannot be told.

    By direction, stage and microbatch where all messages name them, else by order where there are equally many.
    """
    wanted = list(zip(rows["action"].eq("F"), rows["stage"], rows["microbatch"], strict=True))
    stages = {stage for _, stage, _ in wanted}
    only = next(iter(stages)) if len(stages) == 1 else None
    place: dict[tuple[bool, int, int], int] = {}
    columns = [messages[c].astype(object) for c in ("direction", "recv_stage", "send_stage", "microbatch")]
    for i, (direction, received, sent, microbatch) in enumerate(zip(*columns, strict=True)):
        forward = direction == Direction.FORWARD
        stage = received if pd.notna(received) else sent + (1 if forward else -1) if pd.notna(sent) else only
        if pd.notna(direction) and pd.notna(microbatch) and stage is not None:
            place[forward, int(stage), int(microbatch)] = i
    if len(place) == len(messages) and all(key in place for key in wanted):
        return np.array([place[key] for key in wanted], np.int64)
    return np.arange(len(rows)) if len(messages) == len(rows) else None
