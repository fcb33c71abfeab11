"""What did each rank of a pipeline do from the pipeline's first action to its last? Parts that sum to the window exactly.

    window = work + bubble,  work = compute + exposed collective + inner gap,
    bubble = fill + steady wait + p2p transfer + other collective + launch gap + drain

``fill`` runs from the window's start to the rank's first action, ``drain`` from its last action to the window's end.
A gap between actions, before one that needs a receive, is a wait until the transfer starts (both ends ready), then the
transfer; the rest, and every gap before an action that needs none, is collectives of no action (FSDP, DP) or launch gap.
All in int64 ns; overlapped actions count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tracekit.columns import Mask, integers
from tracekit.intervals import EMPTY, Ints, Union, measure, total, union
from tracekit.job.pipelines import Pipeline

#: Parts of a gap between two actions, in the order of the table.
GAP_PARTS = ("steady_wait_ns", "p2p_transfer_ns", "exposed_other_collective_ns", "launch_gap_ns")


class RankParts(NamedTuple):
    """The window as one rank spent it, in ns.

    Attributes:
        rank: global rank.
        first_start_ns, last_end_ns: of its own actions.
        work_ns, gaps_ns: at work, and not at work, between these two.
        bubble_ns, fill_ns, drain_ns: None where the window is not known.
        steady_wait_ns, p2p_transfer_ns, exposed_other_collective_ns, launch_gap_ns: ``GAP_PARTS``; None where clocks disagree.
        receives_unknown: actions whose receive is not known: their gap counts as steady wait, and so do the rank's transfers,
            p2p_transfer_ns being None.
    """

    rank: int
    first_start_ns: int
    last_end_ns: int
    work_ns: int
    gaps_ns: int
    bubble_ns: int | None
    fill_ns: int | None
    steady_wait_ns: int | None
    p2p_transfer_ns: int | None
    exposed_other_collective_ns: int | None
    launch_gap_ns: int | None
    drain_ns: int | None
    receives_unknown: int | None


class _Lane(NamedTuple):
    """The actions of one rank in order of start: when, whether each needs a receive and that is known, and its transfer (-1: unknown)."""

    start: Ints
    end: Ints
    needs: Mask
    known: Mask
    arrive: Ints
    arrived: Ints


def rank_parts(pipeline: Pipeline, gap_collectives: Mapping[tuple[int, int], Union]) -> list[RankParts]:
    """The window of a pipeline divided, for each rank that is here, in order.

    Args:
        pipeline: one pipeline and step.
        gap_collectives: (rank, capture) -> when collectives of no action ran.
    """
    bounds = pipeline.window
    out = []
    for rank, lane in _lanes(pipeline):
        spans = union(lane.start, lane.end)
        first, last, work = int(spans[0][0]), int(spans[1][-1]), total(spans)
        others = gap_collectives.get((rank, pipeline.capture), EMPTY)
        one = RankParts(
            rank=rank,
            first_start_ns=first,
            last_end_ns=last,
            work_ns=work,
            gaps_ns=last - first - work,
            bubble_ns=None if bounds is None else bounds[1] - bounds[0] - work,
            fill_ns=None if bounds is None else first - bounds[0],
            **_gaps(lane, spans, others, pipeline.causal),
            drain_ns=None if bounds is None else bounds[1] - last,
        )
        out.append(one)
    return out


def bubble_times(pipeline: Pipeline) -> dict[int, tuple[Union, Union]]:
    """When each rank waited (fill, steady wait, drain), and when it received; {} where the window is not known.

    Other collectives and launch gaps are no part of it: they are what they are. Of a receive that is not known, all of the gap counts as
    waiting, as in :func:`rank_parts`.
    """
    bounds = pipeline.window
    if bounds is None:
        return {}
    out = {}
    for rank, lane in _lanes(pipeline):
        spans = union(lane.start, lane.end)
        begin, waited, moved, _ = _edges(lane, spans)
        starts = np.concatenate(([bounds[0]], begin, [spans[1][-1]]))
        ends = np.concatenate(([spans[0][0]], waited, [bounds[1]]))
        out[rank] = union(starts, ends), union(waited, moved)
    return out


def by_rank(intervals: pd.DataFrame) -> dict[tuple[int, int], Union]:
    """Intervals of a table with rank, capture, start_ns and end_ns: (rank, capture) -> what they cover."""
    at: Any = intervals.groupby(["rank", "capture"]).indices if len(intervals) else {}
    start, end = intervals["start_ns"].to_numpy(np.int64), intervals["end_ns"].to_numpy(np.int64)
    return {(int(rank), int(capture)): union(start[rows], end[rows]) for (rank, capture), rows in at.items()}


def _lanes(pipeline: Pipeline) -> Iterator[tuple[int, _Lane]]:
    """Each rank that is here with its actions."""
    actions = pipeline.actions
    times = [actions[c].to_numpy(np.int64) for c in ("start_ns", "end_ns")]
    flags = [actions[c].to_numpy(bool) for c in ("needs_receive", "receive_known")]
    transfer = [integers(actions[c]) for c in ("transfer_start_ns", "transfer_end_ns")]
    ranks, first = np.unique(actions["rank"].to_numpy(np.int64), return_index=True)
    for rank, *columns in zip(ranks.tolist(), *(np.split(column, first[1:]) for column in (*times, *flags, *transfer)), strict=True):
        yield rank, _Lane(*columns)


def _edges(lane: _Lane, spans: Union) -> tuple[Ints, Ints, Ints, int]:
    """Of each gap between blocks of work: its start, the end of waiting, the end of the transfer; and how many receives are not known."""
    begin, end = spans[1][:-1], spans[0][1:]
    opener = np.searchsorted(lane.start, end, "left")
    needs, known = lane.needs[opener], lane.known[opener]
    here = needs & known
    # an input that is not known to have come may have come at the last moment: all of its gap is waiting
    waited = np.where(here, np.clip(lane.arrive[opener], begin, end), np.where(needs, end, begin))
    moved = np.where(here, np.clip(lane.arrived[opener], waited, end), waited)
    return begin, waited, moved, int((needs & ~known).sum())


def _gaps(lane: _Lane, spans: Union, others: Union, causal: bool) -> dict[str, int | None]:
    """Sums of the parts of the gaps between the blocks of work of one rank."""
    if not causal:
        return {**dict.fromkeys(GAP_PARTS), "receives_unknown": None}
    end = spans[0][1:]
    begin, waited, moved, unknown = _edges(lane, spans)
    other = measure(others, moved, end)
    transfer = int((moved - waited).sum())
    return {
        "steady_wait_ns": int((waited - begin).sum()) + (transfer if unknown else 0),
        "p2p_transfer_ns": None if unknown else transfer,
        "exposed_other_collective_ns": int(other.sum()),
        "launch_gap_ns": int((end - moved - other).sum()),
        "receives_unknown": unknown,
    }
