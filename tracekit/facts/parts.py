"""What did each ns of a step go to, so that every ns counts once: which compute, and which exposed call?

Compute is divided by phase; where several phases run at once on one device, the ns goes to the first of recompute, backward,
forward, optimizer, other. Exposed communication (no compute of the step at the same time) is divided over its calls: a
collective before a send or receive, since a receive posted early spins while other work goes on; among equals the call that
began first. So the parts, copies and idle time of ``busy`` sum to the step's window exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, integers
from tracekit.intervals import Union, intersect, measure, merge, subtract, total, union
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Phase
from tracekit.work import device_of, devices, intervals_of, work_masks

Rows = npt.NDArray[np.int64]

#: At most so many pieces of one call are told apart; of more, the longest stay alone and those between are put together with the sum of their time.
_PIECES = 16
_ALONE = 7


def parts(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """Tables ``compute_parts`` and ``exposed``, per device and step; step null where the trace has no steps."""
    masks, device = work_masks(trace), device_of(trace)
    step = integers(trace.events["step"])
    numbers = sorted(int(n) for n in trace.events["step"].dropna().unique())
    choices: list[int | None] = list(numbers) if numbers else [None]
    compute, exposed = [], []
    for one in devices(trace):
        for number in choices:
            label = pd.array([number], dtype="Int64")[0]
            here = (device == one) & (True if number is None else step == number)
            compute.append(_compute(trace, masks, here).assign(device=one, step=label))
            exposed.append(_exposed(trace, masks, here).assign(device=one, step=label))
    tables = {"compute_parts": (compute, schema.COMPUTE_PARTS), "exposed": (exposed, schema.EXPOSED)}
    return {name: schema.conform(pd.concat(rows, ignore_index=True), table) if rows else schema.empty(table) for name, (rows, table) in tables.items()}


def _compute(trace: RankTrace, masks: dict[str, Mask], here: Mask) -> pd.DataFrame:
    events = trace.events
    compute, repeated, phase = masks["compute"] & here, events["recompute"].to_numpy(bool), events["phase"]
    slept = intervals_of(events, masks["emulated"] & here)
    kinds = {
        "recompute": repeated,
        "backward": phase.eq(Phase.BACKWARD).to_numpy(),
        "forward": phase.eq(Phase.FORWARD).to_numpy(),
        "optimizer": phase.eq(Phase.OPTIMIZER).to_numpy(),
        "other_compute": np.ones(len(events), bool),
    }
    taken: Union = union([], [])
    rows = []
    for part, mask in kinds.items():
        own = subtract(intervals_of(events, compute & mask), taken)
        taken = merge(taken, own)
        rows.append({"part": part, "duration_ns": total(own), "emulated_ns": total(intersect(own, slept))})
    return pd.DataFrame(rows)


def _exposed(trace: RankTrace, masks: dict[str, Mask], here: Mask) -> pd.DataFrame:
    """Pieces of exposed communication, each with the call that it belongs to."""
    events = trace.events
    compute = intervals_of(events, masks["compute"] & here)
    p2p = events["collective"].isin(list(P2P)).to_numpy() | events["collective"].isna().to_numpy()
    first, second = masks["communication"] & here & ~p2p, masks["communication"] & here & p2p
    found = [_pieces(events, first, compute), _pieces(events, second, merge(compute, intervals_of(events, first)))]
    pieces = pd.concat(found, ignore_index=True)
    calls = events.iloc[pieces["row"].to_numpy()]
    return pieces.assign(
        kind=_texts(calls["collective"]),
        call_start_ns=calls["ts"].to_numpy(),
        call_end_ns=(calls["ts"] + calls["dur"]).to_numpy(),
        group_desc=_texts(calls["group_desc"]),
        group_ranks=_texts(calls["group_ranks"]),
    )


def _texts(column: pd.Series) -> npt.NDArray[np.object_]:
    values = column.astype(object)
    return values.where(values.notna(), None).to_numpy(object)


def _pieces(events: pd.DataFrame, mask: Mask, hidden: Union) -> pd.DataFrame:
    """What of each call lies outside ``hidden`` and outside the calls that began before it: row, start_ns, end_ns, exposed_ns."""
    rows = np.flatnonzero(mask)
    start = events["ts"].to_numpy()[rows]
    end = start + events["dur"].to_numpy()[rows]
    order = np.lexsort((-end, start))
    rows, start, end = rows[order], start[order], end[order]
    before = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end)))[:-1]
    start = np.maximum(start, before)
    own = end > start
    rows, start, end = rows[own], start[own], end[own]
    edges = np.unique(np.concatenate((start, end, *hidden))) if len(rows) else np.empty(0, np.int64)
    low, high = edges[:-1], edges[1:]
    at = np.searchsorted(start, low, "right") - 1
    keep = (at >= 0) & (low < end[np.maximum(at, 0)]) & (measure(hidden, low, high) == 0) if len(rows) else np.zeros(0, bool)
    low, high, at = low[keep], high[keep], at[keep]
    of = pd.DataFrame({"at": at, "length": high - low}).groupby("at", sort=False)
    nth, count = of.cumcount().to_numpy(), of["length"].transform("size").to_numpy()
    alone = of["length"].rank(method="first", ascending=False).le(_ALONE).to_numpy()
    bucket = np.where(count > _PIECES, 2 * pd.Series(alone).groupby(at).cumsum().to_numpy(np.int64) - alone, nth)
    grouped = pd.DataFrame({"row": rows[at], "bucket": bucket, "start_ns": low, "end_ns": high, "exposed_ns": high - low}).groupby(
        ["row", "bucket"], sort=False
    )
    return grouped.agg({"start_ns": "min", "end_ns": "max", "exposed_ns": "sum"}).reset_index().drop(columns="bucket")
