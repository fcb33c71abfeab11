"""Of which kind is each execution of communication, once the call that issued it is known?

A kernel's name tells what NCCL ran, not what was asked for: a barrier runs as an AllReduce of one element, an all-to-all as
sends and receives, and RCCL has one kernel for everything. What was asked for stands, best source first,

1. where a barrier was called: ``c10d::barrier`` or a record above the launch, or a range ``nccl:…_barrier`` over the kernel;
2. in the nearest ``record_param_comms`` above the launch, else in the metadata of the kernel itself;
3. in the kernel's name;
4. where all that says nothing, or only that something was sent, in the operator above the launch, else in a range ``nccl:…`` over it.

An all-reduce of a single byte is a barrier too: older torch ran its barriers so, and nothing else reduces one byte. One element of
a wider type may as well be a loss or a gradient norm, and stays what its caller says.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.ancestry import nearest
from tracekit.columns import Mask, Objects, by_name, choose, integers, named, take
from tracekit.executions import host_records
from tracekit.passes.link import by_external_id
from tracekit.trace import RankTrace
from tracekit.vocabulary import Collective, Kind, collective_of
from tracekit.widths import element_bytes

RECORD = "record_param_comms"
_FUNCTIONAL = ("_c10d_functional::", "c10d_functional::", "_dtensor::")
#: Kinds in which one rank may well have nothing to give, so that 0 bytes can be the truth.
_MAY_BE_EMPTY = [str(k) for k in (Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER)]


def kinds(trace: RankTrace) -> RankTrace:
    """Set ``collective`` of executions to what was asked for; a barrier has no size, and 0 where something must have moved becomes null."""
    events = trace.events
    runs = events["kind"].eq(Kind.COMMUNICATION).to_numpy()
    if not runs.any():
        return _of_host_alone(trace)
    own: Objects = events["collective"].astype(object).to_numpy()
    functional = events["kind"].eq(Kind.OPERATOR).to_numpy() & named(events, lambda n: n.startswith(_FUNCTIONAL))
    asked = choose(functional, by_name(events, collective_of), own)
    calls = events["kind"].eq(Kind.OPERATOR).to_numpy() & pd.notna(asked)
    on_device = runs & events["device"].notna().to_numpy() & (own != Collective.PEER_COPY)

    record = _above(trace, calls & named(events, lambda n: n == RECORD), asked)
    call = _above(trace, calls, asked)
    out = choose(on_device & pd.notna(record), record, own)
    vague = pd.isna(out) | (out == Collective.SEND_RECV)
    out = choose(on_device & vague & pd.notna(call), call, out)
    drawn = _projected(events, on_device)
    out = choose(pd.isna(out) & pd.notna(drawn), drawn, out)
    barrier = _above(trace, calls & (asked == Collective.BARRIER), asked) == Collective.BARRIER
    one_byte = (out == Collective.ALL_REDUCE) & events["nbytes"].eq(1).fillna(False).to_numpy(bool)
    out = choose(on_device & (barrier | one_byte | (drawn == Collective.BARRIER)), Collective.BARRIER, out)
    empty = events["nbytes"].eq(0).fillna(False).to_numpy(bool) & ~np.isin(out.astype(str), _MAY_BE_EMPTY)
    sizeless = runs & (empty | (out == Collective.BARRIER))
    return _of_unknown_types(trace.with_events(collective=pd.Categorical(out, categories=list(Collective)), nbytes=events["nbytes"].mask(sizeless)))


def _of_host_alone(trace: RankTrace) -> RankTrace:
    """Say so where calls were made and no execution of any was recorded."""
    calls = trace.events[host_records(trace.events)]
    if not len(calls):
        return trace
    names = ", ".join(f"{kind} {n}" for kind, n in calls["collective"].astype(str).value_counts().sort_index().items())
    says = (
        f"{len(calls)} communication calls left host records only, no kernel and no execution ({names}; backend {trace.meta.backend or 'unknown'}): "
        "their times are host time; what they took on the device, their waits, overlap and exposed time are unknown"
    )
    return trace.with_finding("host_time_only", "warning", says, count=len(calls))


def _of_unknown_types(trace: RankTrace) -> RankTrace:
    """Say so where the element type is none whose width is known."""
    events = trace.events
    types = [c for c in events["dtype"].cat.categories if element_bytes(str(c)) is None]
    rows = events["kind"].eq(Kind.COMMUNICATION) & events["dtype"].isin(types) & events["nbytes"].isna() & events["collective"].ne(Collective.BARRIER)
    if not rows.any():
        return trace
    names = ", ".join(sorted(events.loc[rows, "dtype"].astype(str).unique()))
    says = f"{int(rows.sum())} communication calls are of element type {names}, whose width is not known: their sizes and bandwidths are unknown"
    return trace.with_finding("element_type_unknown", "warning", says, count=int(rows.sum()))


def _above(trace: RankTrace, mask: Mask, values: Objects) -> Objects:
    """Value of the nearest event of the mask around each execution, its launch, or the operator that it names; None where there is none."""
    events = trace.events
    parent, launch = integers(events["parent"]), integers(events["launch"])
    rows = np.flatnonzero(events["kind"].eq(Kind.COMMUNICATION).to_numpy())
    found = nearest(parent, np.where(launch >= 0, launch, parent)[rows], mask)
    by_id = nearest(parent, by_external_id(events)[rows], mask)
    out: Objects = np.full(len(events), None, object)
    out[rows] = take(values, np.where(found >= 0, found, by_id))
    return out


def _projected(events: pd.DataFrame, runs: Mask) -> Objects:
    """Kind that a projected range ``nccl:…`` names for the device work of the mask that begins inside it on its stream."""
    out: Objects = np.full(len(events), None, object)
    rows = np.flatnonzero(runs)
    ranges = events[events["kind"].eq(Kind.DEVICE_RANGE).to_numpy() & named(events, lambda n: n.startswith(("nccl:", "xccl:")))].sort_values(
        "ts", kind="stable"
    )
    device, stream = integers(events["device"])[rows], integers(events["stream"])[rows]
    ts = events["ts"].to_numpy()[rows]
    for (d, s), mine in ranges.groupby(["device", "stream"], sort=False):
        at = np.searchsorted(mine["ts"].to_numpy(), ts, "right") - 1
        inside = (device == d) & (stream == s) & (at >= 0) & (ts < (mine["ts"] + mine["dur"]).to_numpy()[np.maximum(at, 0)])
        out[rows[inside]] = [collective_of(str(name)) for name in mine["name"].iloc[at[inside]]]
    return out
