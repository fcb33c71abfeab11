"""Which entry of the rank's Flight Recorder is which call? It has group, sequence number and size where the trace has none.

Gloo writes none of these into the profiler's trace, NCCL none before PyTorch 2.2 (and no sequence number for longer). An
entry is created inside the call that it records: inside the ``c10d::`` operator, ``record_param_comms`` or ``nccl:`` range
under which the work was launched. Where nothing was recorded around the launch, or the two clocks have nothing in common,
the k-th execution of a kind is the k-th entry of that kind, if there are equally many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Objects, Rows, choose, integers, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Collective, Kind

#: The entry is created within its call; the two clocks are read a little apart.
_CLOCK_SLACK_NS = 20_000
#: What stands around the making of an entry.
_CALLS = ("c10d::", "_c10d_functional::", "record_param_comms", "nccl:", "xccl:")
_TEXTS = ("group", "group_desc", "group_ranks", "dtype")
_NUMBERS = ("group_size", "seq", "peer", "nbytes")
_OF_GLOO = ("group", "group_desc", "group_ranks", "group_size", "seq")
#: What a kernel's name leaves open: NCCL sends for an all-to-all, a gather or a scatter, and reduces for a barrier.
_OPEN = {
    Collective.SEND_RECV: (Collective.SEND, Collective.RECV, Collective.SEND_RECV, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER),
    Collective.ALL_REDUCE: (Collective.ALL_REDUCE, Collective.BARRIER),
}


def flight_recorder(trace: RankTrace) -> RankTrace:
    """Fill group, sequence number, size and peer of communication that lacks its group or number."""
    events = trace.events
    communication = events["kind"].eq(Kind.COMMUNICATION).to_numpy() & events["collective"].ne(Collective.PEER_COPY).to_numpy()
    on_device = events["device"].notna().to_numpy()
    lacking = communication & (events["group"].isna() | events["seq"].isna()).to_numpy()
    # gloo's recorder leaves sends and receives out
    gloo = communication & ~on_device & events["launch"].notna().to_numpy() & ~events["collective"].isin(list(P2P)).to_numpy()
    return _device(_gloo(trace, np.flatnonzero(gloo)), np.flatnonzero(lacking & on_device))


def _entries(trace: RankTrace, gloo: bool) -> pd.DataFrame:
    """Entries of the rank's dumps that name a group, in the order in which they were made."""
    records = trace.stated.get("records", pd.DataFrame())
    if not len(records):
        return records
    usable = records["source"].eq("flight_recorder") & records["group"].notna() & records["seq"].notna() & records["created_ns"].notna()
    usable &= records["name"].astype("str").str.startswith("gloo:").eq(gloo)
    return records[usable].sort_values(["created_ns", "record"], kind="stable").reset_index(drop=True)


def _gloo(trace: RankTrace, rows: Rows) -> RankTrace:
    """Executions of gloo by the operators that issued them."""
    if not len(rows):
        return trace
    entries = _entries(trace, gloo=True)
    if not len(entries):
        return trace.with_finding(
            "no_flight_recorder",
            "warning",
            "gloo collectives have no group and no sequence number here: set TORCH_FR_BUFFER_SIZE and keep flight_recorder.json beside the trace",
        )
    at = _made_within(trace.events, integers(trace.events["launch"])[rows], entries)
    missing = int((at < 0).sum())
    if missing:
        says = f"{missing} gloo collectives have no Flight Recorder entry: enlarge TORCH_FR_BUFFER_SIZE"
        trace = trace.with_finding("flight_recorder_short", "warning", says, count=missing)
    return _filled(trace, rows[at >= 0], entries.iloc[at[at >= 0]], _OF_GLOO)


def _device(trace: RankTrace, rows: Rows) -> RankTrace:
    """Kernels by the calls that launched them, else by order."""
    entries = _entries(trace, gloo=False)
    if not len(rows) or not len(entries):
        return trace
    events = trace.events
    rows = rows[np.argsort(events["ts"].to_numpy()[rows], kind="stable")]
    kinds = events["collective"].astype(object).to_numpy()[rows]
    call = _calls(events, rows)
    at = np.full(len(rows), -1, np.int64)
    for kind in dict.fromkeys(kinds):
        mine = (kinds == kind) & (call >= 0)
        fits = np.flatnonzero(_fits(entries, kind))
        found = _made_within(events, call[mine], entries.iloc[fits])
        at[mine] = np.where(found >= 0, fits[np.maximum(found, 0)] if len(fits) else -1, -1)
    at[pd.Series(at).duplicated(keep=False).to_numpy()] = -1  # one entry, one execution
    timed = int((at >= 0).sum())
    at = _in_order(events, kinds, at, entries)
    own, told = events["group"].to_numpy(object)[rows], entries["group"].to_numpy(object)[np.maximum(at, 0)]
    at = np.where(pd.isna(own) | (own == told), at, -1)  # a call of another group than the trace says is another call
    trace = _filled(trace, rows[at >= 0], entries.iloc[at[at >= 0]], (*_TEXTS, *_NUMBERS))
    timed = min(timed, int((at >= 0).sum()))
    return _noted(trace, len(rows), timed, int((at >= 0).sum()) - timed)


def _fits(entries: pd.DataFrame, kind: Any) -> Mask:
    """Entries that an execution of this kind, by its kernel's name, may be."""
    if pd.isna(kind):
        return np.ones(len(entries), bool)
    may_be: Mask = entries["kind"].isin([str(k) for k in _OPEN.get(Collective(str(kind)), (Collective(str(kind)),))]).to_numpy()
    return may_be


def _calls(events: pd.DataFrame, rows: Rows) -> Rows:
    """Row of the outermost call to torch.distributed around each launch; -1 where none was recorded."""
    around = named(events, lambda name: name.startswith(_CALLS))
    parent, launch = integers(events["parent"]), integers(events["launch"])
    out, at = np.full(len(rows), -1, np.int64), launch[rows]
    while (at >= 0).any():
        out = np.where((at >= 0) & around[at], at, out)
        at = np.where(at >= 0, parent[at], -1)
    return out


def _made_within(events: pd.DataFrame, call: Rows, entries: pd.DataFrame) -> Rows:
    """Number of the entry that was created during each call, -1 where none was; the k-th execution of one call has the k-th."""
    if not len(entries):
        return np.full(len(call), -1, np.int64)
    created = entries["created_ns"].to_numpy(np.int64)
    start, end = events["ts"].to_numpy()[call], (events["ts"] + events["dur"]).to_numpy()[call]
    nth = pd.Series(call).groupby(call).cumcount().to_numpy()
    out = np.full(len(call), -1, np.int64)
    for slack in (0, _CLOCK_SLACK_NS):
        at = np.searchsorted(created, start - slack) + nth
        within = (at < len(created)) & (created[np.minimum(at, len(created) - 1)] <= end + slack)
        out = np.where((out < 0) & within & ~np.isin(at, out), at, out)
    return out


def _in_order(events: pd.DataFrame, kinds: Objects, at: Rows, entries: pd.DataFrame) -> Rows:
    """What is left, by order within each kind, where equally many entries are left; only entries made during the recording, if the clocks tell."""
    created = entries["created_ns"].to_numpy(np.int64)
    first, last = int(events["ts"].min()), int((events["ts"] + events["dur"]).max())
    during = (created >= first) & (created <= last)
    free = (during if during.any() else np.ones(len(entries), bool)) & ~np.isin(np.arange(len(entries)), at)
    out = at.copy()
    for kind in dict.fromkeys(kinds):
        left, fits = np.flatnonzero((kinds == kind) & (at < 0)), np.flatnonzero(free & _fits(entries, kind))
        if len(left) == len(fits) and pd.notna(kind):
            out[left] = fits
            free[fits] = False
    return out


def _filled(trace: RankTrace, rows: Rows, entries: pd.DataFrame, columns: tuple[str, ...]) -> RankTrace:
    """The trace with what its entries say, where the events themselves say nothing; ambiguous kinds become the entries'."""
    if not len(rows):
        return trace
    events, new = trace.events, {}
    for column in columns:
        values = events[column].to_numpy(object, copy=True)
        open_ = pd.isna(values[rows])
        values[rows[open_]] = entries[column].to_numpy(object)[open_]
        new[column] = pd.Categorical(choose(pd.isna(values), None, values)) if column in _TEXTS else pd.array(values, "Int64")
    kind, told = events["collective"].to_numpy(object, copy=True), entries["kind"].to_numpy(object)
    vague = pd.isna(kind[rows]) | pd.Series(kind[rows]).isin([str(k) for k in _OPEN]).to_numpy()
    kind[rows[vague & pd.notna(told)]] = told[vague & pd.notna(told)]
    return trace.with_events(**new, collective=pd.Categorical(kind)) if "peer" in columns else trace.with_events(**new)


def _noted(trace: RankTrace, asked: int, timed: int, ordered: int) -> RankTrace:
    if timed or ordered:
        how = f", {ordered} of them by their order alone" if ordered else ""
        says = f"{timed + ordered} executions took group, sequence number and size from the Flight Recorder{how}"
        trace = trace.with_finding("flight_recorder_joined", "info", says, count=timed + ordered)
    short = asked - timed - ordered
    if short:
        says = f"{short} executions without group or sequence number meet no Flight Recorder entry: enlarge TORCH_FR_BUFFER_SIZE, dump at the capture's end"
        trace = trace.with_finding("flight_recorder_short", "warning", says, count=short)
    return trace
