"""What did each rank of a pipeline do from the pipeline's first action to its last? Parts that sum to the window exactly.

    window = work + bubble,  work = compute + exposed collective + inner gap,
    bubble = fill + steady wait + p2p transfer + other collective + launch gap + drain

``fill`` runs from the window's start to the rank's first action, ``drain`` from its last action to the window's end.
A gap between actions, before one that needs a receive, is a wait until the transfer starts (both ends ready), then the
transfer; the rest, and every gap before an action that needs none, is collectives of no action (FSDP, DP) or launch gap.
All in int64 ns; overlapped actions count once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.intervals import Ints, Union, measure, total, union
from tracekit.job.pipelines import Pipeline

#: Parts of a gap between two actions, in the order of the table.
GAP_PARTS = ("steady_wait_ns", "p2p_transfer_ns", "exposed_other_collective_ns", "launch_gap_ns")


def window(pipeline: Pipeline) -> tuple[int, int] | None:
    """Start and end of the window; None where ranks are missing or clocks disagree."""
    if not pipeline.complete or not pipeline.causal:
        return None
    return int(pipeline.actions["start_ns"].min()), int(pipeline.actions["end_ns"].max())


def rank_parts(pipeline: Pipeline, gap_collectives: pd.DataFrame) -> pd.DataFrame:
    """The window of a pipeline divided, one row per rank that is here.

    Args:
        pipeline: one pipeline and step.
        gap_collectives: the ``gap_collectives`` fact of its capture with ``rank``.

    Returns:
        rank, first_start_ns, last_end_ns, work_ns, gaps_ns (not at work between first and last action), bubble_ns,
        fill_ns, ``GAP_PARTS``, drain_ns, receives_unknown (actions whose receive is not known: their gap counts as
        steady wait, and so do the rank's transfers, p2p_transfer_ns being null). bubble, fill and drain are null where
        the window is not known, the parts of the gaps where clocks disagree.
    """
    bounds = window(pipeline)
    rows: list[dict[str, Any]] = []
    rank: Any
    for rank, actions in pipeline.actions.groupby("rank", sort=True):
        others = gap_collectives[gap_collectives["rank"].eq(rank)]
        spans = union(actions["start_ns"], actions["end_ns"])
        first, last, work = int(spans[0][0]), int(spans[1][-1]), total(spans)
        fill, drain = (None, None) if bounds is None else (first - bounds[0], bounds[1] - last)
        rows.append(
            {
                "rank": int(rank),
                "first_start_ns": first,
                "last_end_ns": last,
                "work_ns": work,
                "gaps_ns": last - first - work,
                "bubble_ns": None if bounds is None else bounds[1] - bounds[0] - work,
                "fill_ns": fill,
                **_gaps(actions, spans, union(others["start_ns"], others["end_ns"]), pipeline.causal),
                "drain_ns": drain,
            }
        )
    return pd.DataFrame(rows).astype(dict.fromkeys(rows[0], "Int64") | {"rank": "int64"})


def bubble_pieces(pipeline: Pipeline) -> pd.DataFrame:
    """When each rank waited or received: rank, start_ns, end_ns, piece (fill, steady_wait, drain; p2p_transfer); no rows where the window is not known.

    Other collectives and launch gaps are no part of it: they are what they are. Of a receive that is not known, all of the gap counts as
    waiting, as in :func:`rank_parts`.
    """
    bounds = window(pipeline)
    frames = []
    rank: Any
    if bounds is not None:
        for rank, actions in pipeline.actions.groupby("rank", sort=True):
            spans = union(actions["start_ns"], actions["end_ns"])
            begin, waited, moved, _ = _edges(actions, spans)
            starts = np.concatenate(([bounds[0]], begin, [spans[1][-1]], waited))
            ends = np.concatenate(([spans[0][0]], waited, [bounds[1]], moved))
            pieces = ["fill", *["steady_wait"] * len(begin), "drain", *["p2p_transfer"] * len(begin)]
            frames.append(pd.DataFrame({"rank": int(rank), "start_ns": starts, "end_ns": ends, "piece": pieces}))
    if not frames:
        return pd.DataFrame({"rank": [], "start_ns": [], "end_ns": [], "piece": []}).astype({"rank": "int64", "start_ns": "int64", "end_ns": "int64"})
    out = pd.concat(frames, ignore_index=True)
    return out[out["end_ns"] > out["start_ns"]].reset_index(drop=True)


def _edges(actions: pd.DataFrame, spans: Union) -> tuple[Ints, Ints, Ints, int]:
    """Of each gap between blocks of work: its start, the end of waiting, the end of the transfer; and how many receives are not known."""
    begin, end = spans[1][:-1], spans[0][1:]
    ordered = actions.sort_values(["start_ns", "end_ns"], kind="stable")
    opener = ordered.iloc[np.searchsorted(ordered["start_ns"].to_numpy(), end, "left")]
    needs, known = opener["needs_receive"].to_numpy(bool), opener["receive_known"].to_numpy(bool)
    arrive, arrived = (opener[c].to_numpy(np.int64, na_value=0) for c in ("transfer_start_ns", "transfer_end_ns"))
    here = needs & known
    # an input that is not known to have come may have come at the last moment: all of its gap is waiting
    waited = np.where(here, np.clip(arrive, begin, end), np.where(needs, end, begin))
    moved = np.where(here, np.clip(arrived, waited, end), waited)
    return begin, waited, moved, int((needs & ~known).sum())


def _gaps(actions: pd.DataFrame, spans: Union, others: Union, causal: bool) -> dict[str, Any]:
    """Sums of the parts of the gaps between the blocks of work of one rank."""
    if not causal:
        return {**dict.fromkeys(GAP_PARTS), "receives_unknown": None}
    end = spans[0][1:]
    begin, waited, moved, unknown = _edges(actions, spans)
    other = measure(others, moved, end)
    transfer = int((moved - waited).sum())
    return {
        "steady_wait_ns": int((waited - begin).sum()) + (transfer if unknown else 0),
        "p2p_transfer_ns": None if unknown else transfer,
        "exposed_other_collective_ns": int(other.sum()),
        "launch_gap_ns": int((end - moved - other).sum()),
        "receives_unknown": unknown,
    }
