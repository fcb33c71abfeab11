"""Where does a rank stand in its pipeline, and which of its sends and receives run along it?"""

from __future__ import annotations

import numpy as np

from tracekit.columns import Rows, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Axis, Kind, group_axis


def exchanges(trace: RankTrace) -> Rows:
    """Rows that send or receive along the pipeline: the calls on the CPU where they are recorded, else the kernels."""
    events = trace.events
    p2p = events["collective"].isin(list(P2P)).to_numpy()
    axis = {str(c): group_axis(str(c)) for c in events["group_desc"].cat.categories}
    elsewhere = events["group_desc"].isin([desc for desc, name in axis.items() if name not in (None, Axis.PP)]).to_numpy()
    calls = p2p & ~elsewhere & events["kind"].eq(Kind.OPERATOR).to_numpy()
    parent = integers(events["parent"])
    calls &= ~np.where(parent >= 0, calls[parent], False)
    if calls.any():
        return np.flatnonzero(calls)
    return np.flatnonzero(p2p & ~elsewhere & events["kind"].eq(Kind.COMMUNICATION).to_numpy())


def place_in_pipeline(trace: RankTrace, calls: Rows) -> tuple[int, int] | None:
    """(place of this rank in its pipeline, ranks of the pipeline): from the group it exchanges in, else from the mesh."""
    rank = trace.meta.rank
    if rank is None:
        return None
    inside = trace.events["group_ranks"].iloc[calls].dropna().astype(str)
    for text in inside.value_counts().index[:1]:
        ranks = sorted(int(r) for r in text.split(","))
        return (ranks.index(rank), len(ranks)) if rank in ranks and len(ranks) > 1 else None
    for group in trace.meta.groups.values():
        if group_axis(group.get("desc")) == Axis.PP and rank in group["ranks"]:
            return sorted(group["ranks"]).index(rank), len(group["ranks"])
    mesh = trace.meta.run.get("mesh") or {}
    size = int(mesh.get("pp") or 1)
    if size < 2:
        return None
    names = list(mesh)
    inner = int(np.prod([int(mesh[n] or 1) for n in names[names.index("pp") + 1 :]]))
    return rank // inner % size, size
