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
from tracekit.columns import Rows
from tracekit.intervals import EMPTY, Union, intersect, measure, merge, subtract, total
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Phase
from tracekit.work import device_of, devices, intervals_of, work_masks, work_rows

#: At most so many pieces of one call are told apart; of more, the longest stay alone and those between are put together with the sum of their time.
_PIECES = 16
_ALONE = 7
#: What compute is divided into; what several of them are at once counts for the first.
_PARTS = ("recompute", "backward", "forward", "optimizer", "other_compute")


def parts(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """Tables ``compute_parts`` and ``exposed``, per device and step; step null where the trace has no steps."""
    work = work_rows(trace)
    numbers = sorted(int(n) for n in trace.events["step"].dropna().unique())
    choices: list[int | None] = list(numbers) if numbers else [None]
    places = [(one, number) for one in devices(trace) for number in choices]
    if not places:
        return {"compute_parts": schema.empty(schema.COMPUTE_PARTS), "exposed": schema.empty(schema.EXPOSED)}
    chosen = [work.get(place, np.empty(0, np.int64)) for place in places]
    compute = _compute(trace, chosen).assign(
        device=np.repeat([one for one, _ in places], len(_PARTS)),
        step=pd.array([number for _, number in places], "Int64").repeat(len(_PARTS)),
    )
    return {"compute_parts": schema.conform(compute, schema.COMPUTE_PARTS), "exposed": schema.conform(_exposed(trace, chosen), schema.EXPOSED)}


def _compute(trace: RankTrace, chosen: list[Rows]) -> pd.DataFrame:
    """Compute of each choice of work, by part: as many rows of each as there are parts."""
    events, masks, part = trace.events, work_masks(trace), _part(trace.events)
    found = []
    for rows in chosen:
        compute, slept = rows[masks["compute"][rows]], intervals_of(events, rows[masks["emulated"][rows]])
        taken: Union = EMPTY
        for number, name in enumerate(_PARTS):
            own = subtract(intervals_of(events, compute[part[compute] == number]), taken)
            taken = merge(taken, own)
            found.append({"part": name, "duration_ns": total(own), "emulated_ns": total(intersect(own, slept))})
    return pd.DataFrame(found)


def _part(events: pd.DataFrame) -> Rows:
    """Number of the part that each event is of where it is compute."""
    phases = (events["phase"].eq(phase).to_numpy() for phase in (Phase.BACKWARD, Phase.FORWARD, Phase.OPTIMIZER))
    return np.select([events["recompute"].to_numpy(bool), *phases], range(len(_PARTS) - 1), len(_PARTS) - 1)


def _exposed(trace: RankTrace, chosen: list[Rows]) -> pd.DataFrame:
    """Pieces of exposed communication of each choice of work, each with the call that it belongs to."""
    events, masks = trace.events, work_masks(trace)
    p2p = events["collective"].isin(list(P2P)).to_numpy() | events["collective"].isna().to_numpy()
    found = []
    for rows in chosen:
        compute, calls = intervals_of(events, rows[masks["compute"][rows]]), rows[masks["communication"][rows]]
        first, second = calls[~p2p[calls]], calls[p2p[calls]]
        found += [_pieces(events, first, compute), _pieces(events, second, merge(compute, intervals_of(events, first)))]
    row, start, end = (np.concatenate(column) for column in zip(*found, strict=True))
    pieces = _put_together(pd.DataFrame({"row": row, "start_ns": start, "end_ns": end}))
    row = pieces["row"].to_numpy()
    call = events.iloc[row]
    return pieces.assign(
        device=device_of(trace)[row],
        step=call["step"].array,
        kind=_texts(call["collective"]),
        call_start_ns=call["ts"].to_numpy(),
        call_end_ns=(call["ts"] + call["dur"]).to_numpy(),
        group_desc=_texts(call["group_desc"]),
        group_ranks=_texts(call["group_ranks"]),
    )


def _texts(column: pd.Series) -> npt.NDArray[np.object_]:
    values = column.astype(object)
    return values.where(values.notna(), None).to_numpy(object)


def _pieces(events: pd.DataFrame, rows: Rows, hidden: Union) -> tuple[Rows, Rows, Rows]:
    """What of each call lies outside ``hidden`` and outside the calls that began before it: row, start and end; pieces of a row in order."""
    start = events["ts"].to_numpy()[rows]
    end = start + events["dur"].to_numpy()[rows]
    order = np.lexsort((-end, start))
    rows, start, end = rows[order], start[order], end[order]
    before = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end)))[:-1]
    start = np.maximum(start, before)
    own = end > start
    rows, start, end = rows[own], start[own], end[own]
    if not len(rows):
        return rows, start, end
    edges = np.unique(np.concatenate((start, end, *hidden)))
    low, high = edges[:-1], edges[1:]
    at = np.searchsorted(start, low, "right") - 1
    keep = (at >= 0) & (low < end[np.maximum(at, 0)]) & (measure(hidden, low, high) == 0)
    return rows[at[keep]], low[keep], high[keep]


def _put_together(pieces: pd.DataFrame) -> pd.DataFrame:
    """At most ``_PIECES`` pieces of each row, of columns row, start_ns and end_ns; with exposed_ns."""
    row, length = pieces["row"], pieces["end_ns"] - pieces["start_ns"]
    of = length.groupby(row, sort=False)
    alone = of.rank(method="first", ascending=False).le(_ALONE)
    # between two that stay alone the others have a common number
    number = 2 * alone.groupby(row, sort=False).cumsum().astype("int64") - alone
    bucket = of.cumcount().where(of.transform("size").le(_PIECES), number)
    grouped = pieces.assign(bucket=bucket, exposed_ns=length).groupby(["row", "bucket"], sort=False)
    return grouped.agg({"start_ns": "min", "end_ns": "max", "exposed_ns": "sum"}).reset_index().drop(columns="bucket")
