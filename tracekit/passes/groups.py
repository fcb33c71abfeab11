"""Which ranks are in each call's process group, and who is at the other end? Completed from the file's own list of groups and the mesh.

torch writes at most 30 ranks of a group beside a call and cuts the rest; the file's list of process groups has them all.
The peer of a gloo send or receive is known as a rank within its group; the mesh of ``run.json`` makes it global.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tracekit.columns import Mask, choose, integers, named, nullable
from tracekit.executions import host_records
from tracekit.group_ranks import canonical
from tracekit.passes.link import metadata_source
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Collective, Kind

#: Calls whose tensors, as the profiler lists them, are one rank's part: lists of lists of tensors do not show (pytorch/pytorch c10d/Ops.cpp).
_PARTS = ("c10d::allgather_", "c10d::allgather_coalesced_", "c10d::reduce_scatter_", "c10d::gather_", "c10d::scatter_")


def groups(trace: RankTrace) -> RankTrace:
    """Fill ranks of groups, peers as global ranks, and the sizes that depend on the number of ranks."""
    trace = _from_groups(_only_group(trace))
    events = trace.events
    runs = events["kind"].eq(Kind.COMMUNICATION).to_numpy() & events["device"].isna().to_numpy()
    if runs.any():
        trace = _peers(trace, runs)
    return _whole_sizes(_two_ranks(trace))


def _only_group(trace: RankTrace) -> RankTrace:
    """Where the process knows a single group, every call is of that group."""
    events = trace.events
    if len(trace.meta.groups) != 1:
        return trace
    ((name, facts),) = trace.meta.groups.items()
    calls = events["kind"].eq(Kind.COMMUNICATION).to_numpy() & events["collective"].ne(Collective.PEER_COPY).to_numpy() | host_records(events)
    nameless = calls & events[["group", "group_ranks", "group_cut"]].isna().all(axis=1).to_numpy()
    if len(facts["ranks"]) < 2 or not nameless.any():
        return trace
    return trace.with_events(group=pd.Categorical(choose(nameless, name, events["group"].to_numpy(object))))


def _whole_sizes(trace: RankTrace) -> RankTrace:
    """nccl-tests' size is the total: where only one rank's part was seen, as often as there are ranks; unknown where their number is."""
    events = trace.events
    source = metadata_source(events)
    part = named(events, lambda n: n in _PARTS)[np.maximum(source, 0)] & (source >= 0) & events["kind"].eq(Kind.COMMUNICATION).to_numpy()
    return trace.with_events(nbytes=events["nbytes"].mask(part, events["nbytes"] * events["group_size"])) if part.any() else trace


def _from_groups(trace: RankTrace) -> RankTrace:
    """Complete ranks, size and description of named groups from the trace's own list of process groups; a group as large as the job is everyone.

    An entry that contradicts what stands beside the call (another size, other ranks) is another group of the same name.
    """
    events = trace.events
    known = {name: facts for name, facts in trace.meta.groups.items() if facts["ranks"]}
    world = trace.meta.world_size
    stated = events["group"].notna().to_numpy()
    if not (known or world) or not stated.any():
        return trace
    name = events["group"].to_numpy(object)
    ranks, cut = events["group_ranks"].to_numpy(object, copy=True), events["group_cut"].to_numpy(object)
    size, desc = events["group_size"].copy(), events["group_desc"].to_numpy(object, copy=True)
    for group, facts in known.items():
        members = set(facts["ranks"])
        label = canonical(members)
        mine = stated & (name == group) & (size.isna() | size.eq(len(members))).to_numpy(bool)
        mine &= pd.isna(ranks) | (ranks == label)
        mine &= ~np.isin(cut.astype(str), [text for text in events["group_cut"].cat.categories if not _written(text) <= members])
        ranks[mine & pd.isna(ranks)] = label
        size[mine & size.isna().to_numpy()] = len(members)
        desc[mine & pd.isna(desc)] = facts["desc"]
    if world:
        everyone = stated & pd.isna(ranks) & size.eq(world).fillna(False).to_numpy(bool)
        ranks[everyone] = canonical(range(world))
    return trace.with_events(group_ranks=pd.Categorical(ranks), group_size=size, group_desc=pd.Categorical(desc))


def _written(cut: str) -> set[int]:
    """Ranks that a cut list still shows."""
    return {int(part) for part in cut.split(",") if part.isdigit()}


def _two_ranks(trace: RankTrace) -> RankTrace:
    """The peer of a send or receive in a group, or a job, of two is the other one."""
    events, rank = trace.events, trace.meta.rank
    open_ends = events["peer"].isna() & events["collective"].isin([Collective.SEND, Collective.RECV])
    if rank is None or not open_ends.any():
        return trace
    pairs = {text: [int(r) for r in text.split(",")] for text in map(str, events["group_ranks"].cat.categories) if text.count(",") == 1}
    other = {text: sum(both) - rank for text, both in pairs.items() if rank in both}
    peer = events["group_ranks"].astype(object).map(other).astype("Int64")
    if trace.meta.world_size == 2:
        peer = peer.fillna(1 - rank)
    return trace.with_events(peer=events["peer"].where(~open_ends, peer))


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
    label = canonical(ranks) if ranks else None
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
