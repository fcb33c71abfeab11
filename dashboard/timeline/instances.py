"""Of which collective, or of which send, is a slice one rank's part? What it waited and moved on every rank, as the analysis matched them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit.analysis import plain, records
from tracekit.timeline.run import Run

_SHOWN = ("kind", "axis", "group", "group_ranks", "seq", "nbytes", "dtype", "layer", "direction", "microbatch", "step")
_TIMES = ("transfer_ns", "wait_max_ns", "exposed_max_ns", "busbw_gbps", "wait_is_lower_bound", "matched_by", "wait_resolution_ns")
_SENDS = ("src", "dst", "order", "nbytes", "dtype", "axis", "direction", "microbatch", "step", "transfer_ns", "send_wait_ns", "recv_wait_ns", "matched_by")


def instance_of(analysis: Any, run: Run, found: dict[str, Any]) -> dict[str, Any] | None:
    """The matched collective or send of a slice; None where it is none, or was not matched.

    Args:
        analysis: of the run.
        run: the timelines, for the origin of their times.
        found: what ``search.details`` gave.

    Returns:
        Of a collective ``kind``, ``about`` (what it is) and ``ranks`` (start and end in ns of the run, waiting, transfer); of sends ``kind`` and
        ``sends``: one, or as many as one kernel carried both ways in a batch.
    """
    result = analysis.result("collectives")
    if not result.available:
        return None
    rank, capture = found["rank"], found["capture"]
    start, end = found["start"] + run.origin_ns, found["start"] + found["dur"] + run.origin_ns
    return _collective(result.tables, run, rank, capture, start, end) or _send(result.tables, rank, capture, start, end)


def _collective(tables: Any, run: Run, rank: int, capture: int, start: int, end: int) -> dict[str, Any] | None:
    by_rank, instances = tables.get("by_rank"), tables.get("instances")
    if by_rank is None or instances is None or not len(by_rank):
        return None
    mine = by_rank[by_rank["rank"].eq(rank) & by_rank["start_ns"].eq(start) & by_rank["end_ns"].eq(end)]
    one = instances[instances["instance"].isin(mine["instance"]) & instances["capture"].eq(capture)]
    if len(one) != 1:
        return None
    rows = by_rank[by_rank["instance"].eq(one["instance"].iloc[0])].sort_values("rank")
    ranks = rows.assign(start=rows["start_ns"] - run.origin_ns, end=rows["end_ns"] - run.origin_ns)
    shown = [c for c in ("rank", "start", "end", "wait_ns", "transfer_ns", "exposed_ns") if c in ranks]
    about = plain(one[[c for c in (*_SHOWN, *_TIMES) if c in one]].iloc[0].to_dict())
    return {"kind": "collective", "about": about, "ranks": records(ranks[shown])}


def _send(tables: Any, rank: int, capture: int, start: int, end: int) -> dict[str, Any] | None:
    sends = tables.get("p2p")
    if sends is None or not len(sends):
        return None
    sends = sends[sends["capture"].eq(capture)]
    mine = _ends(sends, "src", "send", rank, start, end) | _ends(sends, "dst", "recv", rank, start, end)
    # a kernel may carry several; gloo's begin with the call, before the slice does, and may end together
    whole = mine & (_begins(sends, "src", "send", rank, start) | _begins(sends, "dst", "recv", rank, start))
    if not whole.any() and int(mine.sum()) != 1:
        return None
    return {"kind": "send", "sends": records(sends.loc[whole if whole.any() else mine, [c for c in _SENDS if c in sends]])}


def _ends(sends: pd.DataFrame, who: str, side: str, rank: int, start: int, end: int) -> pd.Series[bool]:
    """Sends of which a slice may be one end."""
    begin, finish = sends[f"{side}_start_ns"], sends[f"{side}_end_ns"]
    return (sends[who].eq(rank) & finish.eq(end) & begin.le(start)).fillna(False).astype(bool)


def _begins(sends: pd.DataFrame, who: str, side: str, rank: int, start: int) -> pd.Series[bool]:
    return (sends[who].eq(rank) & sends[f"{side}_start_ns"].eq(start)).fillna(False).astype(bool)
