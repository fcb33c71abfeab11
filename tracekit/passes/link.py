"""Which call encloses an event, and which call launched it? Sets ``parent``, ``launch``, and what follows from them.

Parents are found by nesting on each CPU thread. Device work is led to its launching runtime call by the correlation
id (else by the External id of the operator). A ``gloo:*`` execution is led to the ``c10d::`` operator that issued it
by the order of calls within each family. Communication without metadata of its own takes that of its launch.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.ancestry import nearest
from tracekit.columns import Mask, Objects, Rows, integers, nullable
from tracekit.intervals import parents
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Collective, Kind
from tracekit.widths import element_bytes

NESTED = (Kind.OPERATOR, Kind.RANGE, Kind.PYTHON, Kind.LAUNCH)
_METADATA = ("group", "group_desc", "group_ranks", "group_cut", "group_size", "seq", "peer", "nbytes", "elements", "dtype")


def link(trace: RankTrace) -> RankTrace:
    """Fill ``parent`` and ``launch``, and let communication inherit group, sequence and size from its launch."""
    events = trace.events
    parent = _nesting(events)
    launch = _device_launches(events)
    trace, gloo_launch = _gloo_launches(trace)
    launch = np.where(gloo_launch >= 0, gloo_launch, launch)
    trace = trace.with_events(parent=nullable(parent), launch=nullable(launch))
    return _inherit_metadata(trace)


def by_external_id(events: pd.DataFrame) -> Rows:
    """Row of the operator that each event names by its External id; -1 where there is none. Ids are unique within a process."""
    ids = integers(events["external_id"])
    operators = np.flatnonzero(events["kind"].eq(Kind.OPERATOR).to_numpy() & (ids > 0))
    last = pd.Series(operators, index=ids[operators]).groupby(level=0).last()
    return np.where(ids > 0, last.reindex(ids).fillna(-1).to_numpy(np.int64), -1)


def on_cpu_thread(events: pd.DataFrame) -> Mask:
    """Events that nest on a CPU thread; emulated compute is among them."""
    return (events["kind"].isin(NESTED) | (events["kind"].eq(Kind.COMPUTE) & events["device"].isna())).to_numpy()


def _nesting(events: pd.DataFrame) -> Rows:
    rows = np.flatnonzero(on_cpu_thread(events))
    ts, dur = events["ts"].to_numpy()[rows], events["dur"].to_numpy()[rows]
    inner = parents(events["thread"].to_numpy()[rows], ts, ts + dur)
    out = np.full(len(events), -1, np.int64)
    out[rows] = np.where(inner >= 0, rows[inner], -1)
    return out


def _device_launches(events: pd.DataFrame) -> Rows:
    """Launching runtime call of each device event by correlation; else the operator with its External id."""
    out = np.full(len(events), -1, np.int64)
    device = events["device"].notna().to_numpy() & events["kind"].ne(Kind.DEVICE_RANGE).to_numpy()
    for column, kinds in (("correlation", [Kind.LAUNCH]), ("external_id", [Kind.OPERATOR])):
        keys = integers(events[column])
        calls = np.flatnonzero(events["kind"].isin(kinds).to_numpy() & (keys >= 0))
        if (keys[calls] == 0).sum() > 1:  # written where there is no id
            calls = calls[keys[calls] > 0]
        if len(calls):
            # the last of several calls with one id wins: ids are unique within a process
            first = pd.Series(calls, index=keys[calls]).groupby(level=0).last()
            found = first.reindex(keys).to_numpy(np.float64, na_value=-1).astype(np.int64)
            out = np.where(device & (out < 0) & (keys >= 0), found, out)
    return out


def _gloo_family(collective: pd.Series[str]) -> Objects:
    """The family in which gloo executes a collective: a reduce-scatter runs as an all-reduce."""
    names = collective.astype(object).to_numpy()
    return np.where(names == Collective.REDUCE_SCATTER, Collective.ALL_REDUCE, names)


def _gloo_launches(trace: RankTrace) -> tuple[RankTrace, Rows]:
    """Issuing operator of each ``gloo:*`` execution: the k-th of a family was issued by the k-th call."""
    events = trace.events
    out = np.full(len(events), -1, np.int64)
    runs = events["kind"].eq(Kind.COMMUNICATION).to_numpy() & events["device"].isna().to_numpy()
    calls = events["kind"].eq(Kind.OPERATOR).to_numpy() & events["collective"].notna().to_numpy() & runs.any()
    family, ts = _gloo_family(events["collective"]), events["ts"].to_numpy()
    for one in {f for f in family[runs] if pd.notna(f)}:
        run, call = (np.flatnonzero(which & (family == one)) for which in (runs, calls))
        run, call = run[np.argsort(ts[run], kind="stable")], call[np.argsort(ts[call], kind="stable")]
        if len(run) != len(call):
            trace = trace.with_finding(
                "communication_unlinked",
                "warning",
                f"{len(run)} executions of gloo:{one} meet {len(call)} calls; those at the edge of the recording have no caller",
                count=abs(len(run) - len(call)),
            )
            # executions begin after their call: drop runs that began before the first recorded call, then pair in order
            run = run[ts[run] >= ts[call[0]]] if len(call) else run[:0]
        n = min(len(run), len(call))
        out[run[:n]] = call[:n]
    return trace, out


def metadata_source(events: pd.DataFrame) -> Rows:
    """Row of the call from which communication has its metadata: the nearest around its launch that states a group or a size; -1 elsewhere."""
    parent, launch = integers(events["parent"]), integers(events["launch"])
    sized = (events["nbytes"].notna() | events["elements"].notna()).to_numpy()
    has_meta = events["group"].notna().to_numpy() | (events["kind"].eq(Kind.OPERATOR).to_numpy() & sized)
    has_meta &= on_cpu_thread(events)
    rows = np.flatnonzero(events["kind"].eq(Kind.COMMUNICATION).to_numpy())
    found = nearest(parent, launch[rows], has_meta)
    # a launch that ends after its record is not nested in it, and still names it
    named = nearest(parent, by_external_id(events)[rows], has_meta)
    out = np.full(len(events), -1, np.int64)
    out[rows] = np.where(found >= 0, found, named)
    return out


def _inherit_metadata(trace: RankTrace) -> RankTrace:
    """Give communication, where it lacks them, the metadata of its launch or of the call around it."""
    events = trace.events
    communication = events["kind"].eq(Kind.COMMUNICATION).to_numpy()
    on_cpu = communication & events["device"].isna().to_numpy()
    sized = (events["nbytes"].notna() | events["elements"].notna()).to_numpy()
    source = metadata_source(events)
    columns: dict[str, object] = {}
    for column in _METADATA:
        # gloo shows one rank's part of a gather: the caller knows the whole
        missing = events[column].isna().to_numpy() | (on_cpu & sized[np.maximum(source, 0)] & (column == "nbytes"))
        take = communication & missing & (source >= 0)
        columns[column] = _filled(events[column], take, source)
    # the operator knows a reduce-scatter from the all-reduce that gloo runs for it
    relabel = on_cpu & (source >= 0) & ~events["collective"].isin(list(P2P)).to_numpy()
    columns["collective"] = _filled(events["collective"], relabel, source)
    return _sized(trace.with_events(**columns))


def _sized(trace: RankTrace) -> RankTrace:
    """Give sizes to communication of which the caller knows the elements and the execution their type."""
    events = trace.events
    width = pd.Series([element_bytes(str(c)) for c in events["dtype"].cat.categories] + [None], dtype="Int64")
    width = width.take(events["dtype"].cat.codes.to_numpy()).set_axis(events.index)
    known = events["kind"].eq(Kind.COMMUNICATION) & events["nbytes"].isna() & events["elements"].notna() & width.notna()
    return trace.with_events(nbytes=events["nbytes"].where(~known, events["elements"] * width))


def _filled(column: pd.Series, take: Mask, source: Rows) -> pd.Series:
    """The column with the rows of ``take`` replaced by the value at their source."""
    out = column.copy()
    out[take] = column.iloc[source[take]].array
    return out
