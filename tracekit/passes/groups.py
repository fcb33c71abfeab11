"""Which process group does each gloo collective belong to? Joined from the Flight Recorder and the mesh.

Gloo writes neither group nor sequence number into the profiler's trace. The rank's Flight Recorder dump has both,
and the time at which each call was made: the entry that was created while a ``c10d::`` operator ran is that call.
The peer of a gloo send or receive is known as a rank within its group; the mesh of ``run.json`` makes it global.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import Mask, choose, integers, nullable
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Kind

#: The entry is created within its operator; the two clocks are read a little apart.
_CLOCK_SLACK_NS = 20_000
#: What an entry must hold to name a call's group; dumps of older versions lack some.
_ENTRY = ("time_created_ns", "collective_seq_id", "process_group")


def groups(trace: RankTrace) -> RankTrace:
    """Fill group, ranks and sequence of gloo calls, and turn peers into global ranks."""
    trace = _from_groups(trace)
    events = trace.events
    runs = events["kind"].eq(Kind.COMMUNICATION).to_numpy() & events["device"].isna().to_numpy()
    if not runs.any():
        return trace
    return _peers(_from_flight_recorder(trace, runs), runs)


def _from_groups(trace: RankTrace) -> RankTrace:
    """Complete ranks, size and description of named groups from the trace's own list of process groups."""
    known, events = trace.meta.groups, trace.events
    named = events["group"].notna().to_numpy()
    if not known or not named.any():
        return trace
    name = events["group"].to_numpy(object)
    ranks = events["group_ranks"].to_numpy(object, copy=True)
    size, desc = events["group_size"].copy(), events["group_desc"].to_numpy(object, copy=True)
    for group, facts in known.items():
        mine = named & (name == group)
        cut = mine & pd.isna(ranks)
        ranks[cut] = ",".join(map(str, sorted(facts["ranks"])))
        size[mine & size.isna().to_numpy()] = len(facts["ranks"])
        desc[mine & pd.isna(desc)] = facts["desc"]
    return trace.with_events(group_ranks=pd.Categorical(ranks), group_size=size, group_desc=pd.Categorical(desc))


def _from_flight_recorder(trace: RankTrace, runs: Mask) -> RankTrace:
    events = trace.events
    told = [e for e in trace.meta.flight_recorder if all(e.get(key) is not None for key in _ENTRY)]
    entries = [e for e in told if not e.get("is_p2p") and str(e.get("profiling_name", "")).startswith("gloo:")]
    collective = runs & events["launch"].notna().to_numpy() & ~events["collective"].isin(list(P2P)).to_numpy()
    rows = np.flatnonzero(collective)
    if not len(rows):
        return trace
    if not entries:
        return trace.with_finding(
            "no_flight_recorder",
            "warning",
            "gloo collectives have no group and no sequence number here: set TORCH_FR_BUFFER_SIZE and keep flight_recorder.json beside the trace",
        )
    created = np.array([int(e["time_created_ns"]) for e in entries], np.int64)
    order = np.argsort(created, kind="stable")
    launch = integers(events["launch"])[rows]
    start, end = events["ts"].to_numpy()[launch], (events["ts"] + events["dur"]).to_numpy()[launch]
    at = np.searchsorted(created[order], start - _CLOCK_SLACK_NS)
    found = (at < len(order)) & (created[order][np.minimum(at, len(order) - 1)] <= end + _CLOCK_SLACK_NS)
    rows, at = rows[found], at[found]
    columns = {c: events[c].to_numpy(object, copy=True) for c in ("group", "group_desc", "group_ranks", "group_size", "seq")}
    groups_of = _pg_ranks(trace.meta.groups)
    for row, entry in zip(rows, (entries[order[i]] for i in at), strict=True):
        name, desc = [*entry["process_group"], None, None][:2]
        ranks = groups_of.get(str(name))
        columns["group"][row], columns["group_desc"][row], columns["seq"][row] = str(name), desc, int(entry["collective_seq_id"])
        columns["group_ranks"][row] = ",".join(map(str, ranks)) if ranks else None
        columns["group_size"][row] = len(ranks) if ranks else None
    missing = int((~found).sum())
    if missing:
        says = f"{missing} gloo collectives have no Flight Recorder entry: enlarge TORCH_FR_BUFFER_SIZE"
        trace = trace.with_finding("flight_recorder_short", "warning", says, count=missing)
    return trace.with_events(
        **{c: pd.Categorical(columns[c]) for c in ("group", "group_desc", "group_ranks")},
        **{c: pd.array(columns[c], "Int64") for c in ("group_size", "seq")},
    )


def _pg_ranks(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(facts["ranks"])) for name, facts in groups.items() if facts["ranks"]}


def _peers(trace: RankTrace, runs: Mask) -> RankTrace:
    """Peers of gloo sends and receives as global ranks, by the pipeline (else only) group of this rank."""
    events = trace.events
    p2p = runs & events["collective"].isin(list(P2P)).to_numpy() & events["peer"].notna().to_numpy()
    if not p2p.any():
        return trace
    ranks = _p2p_group(trace)
    peer = integers(events["peer"])
    known = p2p & (peer < len(ranks))
    table = np.array([*ranks, -1], np.int64)
    out = np.where(known, table[np.minimum(np.maximum(peer, 0), len(ranks))], np.where(p2p, -1, peer))
    label = ",".join(map(str, ranks)) if ranks else None
    return trace.with_events(
        peer=nullable(out),
        group_ranks=pd.Categorical(choose(known, label, events["group_ranks"].to_numpy(object))),
    )


def _p2p_group(trace: RankTrace) -> tuple[int, ...]:
    """Ranks of the group that sends and receives run in; empty where it cannot be told."""
    rank, mesh = trace.meta.rank, trace.meta.run.get("mesh")
    if rank is not None and isinstance(mesh, Mapping) and mesh:
        axes = [str(a) for a in mesh]
        sizes = [int(mesh[a]) for a in axes]
        axis = next((a for a in ("pp", "cp") if int(mesh.get(a, 1)) > 1), None)
        if axis is not None and rank < int(np.prod(sizes)):
            grid = np.arange(int(np.prod(sizes))).reshape(sizes)
            here = list(np.unravel_index(rank, sizes))
            index = tuple(slice(None) if a == axis else int(h) for a, h in zip(axes, here, strict=True))
            return tuple(int(r) for r in grid[index])
    whole = [tuple(g["ranks"]) for g in trace.meta.groups.values()]
    return whole[0] if len(set(whole)) == 1 else ()
