"""Where does a rank stand in its pipeline, and which of its sends and receives run along it?"""

from __future__ import annotations

import numpy as np

from tracekit.columns import Rows, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Axis, Kind, group_axis

#: Where the peer of a send or receive stands: the next rank of the group, the one before, neither; or nobody knows (or both, of two ranks).
NEXT, PREVIOUS, ELSEWHERE, UNKNOWN = 1, -1, 2, 0


def exchanges(trace: RankTrace) -> Rows:
    """Rows that send or receive along the pipeline: the calls on the CPU where they are recorded, else the kernels.

    Those in groups of another axis are none; where some groups are described as the pipeline's, only theirs are.
    """
    events = trace.events
    p2p = events["collective"].isin(list(P2P)).to_numpy()
    axis = {str(c): group_axis(str(c)) for c in events["group_desc"].cat.categories}
    elsewhere = events["group_desc"].isin([desc for desc, name in axis.items() if name not in (None, Axis.PP)]).to_numpy()
    calls = p2p & ~elsewhere & events["kind"].eq(Kind.OPERATOR).to_numpy()
    parent = integers(events["parent"])
    calls &= ~np.where(parent >= 0, calls[parent], False)
    rows = np.flatnonzero(calls if calls.any() else p2p & ~elsewhere & events["kind"].eq(Kind.COMMUNICATION).to_numpy())
    along = events["group_desc"].iloc[rows].isin([desc for desc, name in axis.items() if name == Axis.PP]).to_numpy()
    return rows[along] if along.any() else rows


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


def neighbours(trace: RankTrace, calls: Rows) -> Rows:
    """Where the peer of each call stands in the group of that call, the first rank following the last; see the constants above."""
    rank, rows = trace.meta.rank, trace.events.iloc[calls]
    out = np.full(len(calls), UNKNOWN, np.int64)
    peer = integers(rows["peer"])
    for text in rows["group_ranks"].dropna().unique():
        ranks = sorted(int(r) for r in str(text).split(","))
        if rank not in ranks or len(ranks) < 2:
            continue
        here = rows["group_ranks"].eq(text).to_numpy(bool, na_value=False) & (peer >= 0)
        ahead, behind = ranks[(ranks.index(rank) + 1) % len(ranks)], ranks[ranks.index(rank) - 1]
        if ahead != behind:
            out[here] = np.select([peer[here] == ahead, peer[here] == behind], [NEXT, PREVIOUS], ELSEWHERE)
    return out
