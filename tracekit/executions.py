"""Which communication did a rank run, and inside what was each call issued?

An execution is a kernel, a peer copy, or a ``gloo:*`` range on a CPU run. Where the trace holds none of these (UCC, MPI, a profile
without device activity), the host's own records stand for the calls: their times are *host time*, which says nothing of the device.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Objects, Rows, integers
from tracekit.intervals import measure
from tracekit.trace import RankTrace
from tracekit.vocabulary import FSDP_SPAN, GPIPE_RANGE, OPTIMIZER_SPAN, P2P, PIPELINE_COMM, Kind
from tracekit.work import compute_intervals, device_of

#: The autograd node that adds to a parameter's gradient; data-parallel hooks run inside it.
ACCUMULATE = re.compile(r"^autograd::engine::evaluate_function: .*AccumulateGrad")
_NAMED_FSDP = re.compile(r"^FSDP::\w+ \([^)]+\)$")

_COLUMNS = ["step", "group", "group_desc", "group_ranks", "group_cut", "group_size", "seq", "nbytes", "dtype", "layer", "layer_source"]
_COLUMNS += ["phase", "microbatch", "stage", "peer"]


class Above(NamedTuple):
    """For each call: row of the nearest enclosing event of a sort, -1 where there is none."""

    fsdp: Rows
    accumulate: Rows
    optimizer: Rows
    gpipe: Rows
    comm: Rows
    issuer: Rows


class Executions(NamedTuple):
    """The communication of a rank, in order of start.

    Attributes:
        rows: row of each in the events.
        above: inside what each was issued.
        table: columns that collectives and point-to-point share, ``kind`` (null where unknown) and ``time_source`` among them.
    """

    rows: Rows
    above: Above
    table: pd.DataFrame


def executions(trace: RankTrace, p2p: bool) -> Executions:
    """Collectives, or with ``p2p`` the sends and receives."""
    events = trace.events
    records = host_records(events)
    kind = events["collective"].astype(object)
    wanted = (events["kind"].eq(Kind.COMMUNICATION).to_numpy() | records) & (kind.isin(list(P2P)).to_numpy() == p2p)
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(events["ts"].to_numpy()[rows], kind="stable")]
    above = _above(events, rows)
    on_host = records[rows] | ((trace.meta.device_type == "gpu") & events["device"].isna().to_numpy()[rows])
    return Executions(rows, above, _table(trace, rows, text(kind.iloc[rows]), on_host, above))


def host_records(events: pd.DataFrame) -> Mask:
    """Operators that stand for communication of which no execution was recorded anywhere in the trace, the innermost of each call.

    Only where nothing at all was executed: beside kernels, a record without its own is one of several that share a kernel.
    """
    calls = events["kind"].eq(Kind.OPERATOR).to_numpy() & events["collective"].notna().to_numpy() & events["group_size"].ne(1).fillna(True).to_numpy(bool)
    if not calls.any() or events["kind"].eq(Kind.COMMUNICATION).any():
        return np.zeros(len(events), bool)
    parent = integers(events["parent"])
    outer = np.zeros(len(events), bool)
    at = parent[calls]
    while len(at := np.unique(at[at >= 0])):
        outer[at] = True
        at = parent[at]
    mask: Mask = calls & ~outer
    return mask


def text(column: pd.Series) -> pd.Series:
    """A column as objects, None where null."""
    values = column.astype(object)
    return values.where(values.notna(), None)


def objects(values: Objects, index: pd.Index) -> pd.Series:
    """Values as they are, None included: pandas would make text of them and NaN of None."""
    return pd.Series(values, index=index, dtype=object)


def matching(events: pd.DataFrame, pattern: re.Pattern[str]) -> Mask:
    """Events whose name matches; each distinct name is tried once."""
    flags = [*(bool(pattern.match(str(n))) for n in events["name"].cat.categories), False]
    return np.asarray(flags, np.bool_).take(events["name"].cat.codes.to_numpy(np.int64), mode="wrap")


def _above(events: pd.DataFrame, rows: Rows) -> Above:
    """Climb from every call's launch to the root, all calls at once, and note what is met on the way."""
    issues = events["kind"].eq(Kind.OPERATOR).to_numpy() & events["collective"].notna().to_numpy()
    sorts = [*(matching(events, p) for p in (FSDP_SPAN, ACCUMULATE, OPTIMIZER_SPAN, GPIPE_RANGE, PIPELINE_COMM)), issues]
    parent = integers(events["parent"])
    launch = integers(events["launch"])[rows]
    found = [np.full(len(rows), -1, np.int64) for _ in sorts]
    at = np.where(launch >= 0, launch, parent[rows])
    while (at >= 0).any():
        for mask, first in zip(sorts, found, strict=True):
            hit = (first < 0) & (at >= 0) & mask[at]
            first[hit] = at[hit]
        at = np.where(at >= 0, parent[at], -1)
    return Above(*found)


def _table(trace: RankTrace, rows: Rows, kind: pd.Series, on_host: Mask, above: Above) -> pd.DataFrame:
    events = trace.events
    part = events.iloc[rows]
    end, ts = (part["ts"] + part["dur"]).to_numpy(), _starts(events, rows)
    device = device_of(trace)[rows]
    exposed = end - ts
    for one in np.unique(device[~on_host]):
        here = (device == one) & ~on_host
        exposed[here] -= measure(compute_intervals(trace, int(one)), ts[here], end[here])
    out = part[_COLUMNS].reset_index(drop=True)
    texts = {c: text(out[c]) for c in ("group", "group_desc", "group_ranks", "group_cut", "dtype", "layer", "layer_source", "phase")}
    # fully_shard names no module in the ranges of its root group, which may run inside any layer's span
    root = (above.fsdp >= 0) & ~matching(events, _NAMED_FSDP)[above.fsdp]
    texts |= {c: texts[c].where(~root, None) for c in ("layer", "layer_source")}
    stream = part["stream"].astype("Int64").fillna(part["thread"].astype("Int64")).reset_index(drop=True)
    return out.assign(
        **texts,
        start_ns=ts,
        end_ns=end,
        kind=kind.to_numpy(object),
        exposed_ns=pd.arrays.IntegerArray(exposed, on_host.copy()),
        time_source=np.where(on_host, "host", "device").astype(object),
        device=np.maximum(device, 0),
        stream=stream,
    )


def _starts(events: pd.DataFrame, rows: Rows) -> Rows:
    """Start of each call. Gloo opens the range of a send only once the data is on its way: there the issuing call counts."""
    ts = events["ts"].to_numpy()
    launch = integers(events["launch"])[rows]
    gloo = events["device"].isna().to_numpy()[rows] & events["collective"].isin(list(P2P)).to_numpy()[rows] & (launch >= 0)
    return np.where(gloo, np.minimum(ts[rows], ts[np.maximum(launch, 0)]), ts[rows])
