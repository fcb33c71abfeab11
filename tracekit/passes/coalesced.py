"""Which calls does a kernel carry out that was launched for several of them together?

Calls between the start and the end of a coalescing (``_coalescing_manager``, FSDP's and the optimizer's batches) are recorded one by
one and launched together at the end, outside every record: the kernel has no metadata. It belongs to the calls of its kind that its
thread has made before the launch and that launched nothing of their own; their group is its group, and their sizes add up. Batched
sends and receives are not put together so: each keeps its row (``facts.p2p_calls``).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Rows, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import P2P, Kind

_SHARED = ("group", "group_desc", "group_ranks", "group_cut", "group_size", "dtype")


def coalesced(trace: RankTrace) -> RankTrace:
    """Fill group, sequence, size and type of kernels without metadata from the calls that they were launched for."""
    events = trace.events
    launch = integers(events["launch"])
    bare = events["kind"].eq(Kind.COMMUNICATION) & events["device"].notna() & events["group"].isna() & events["nbytes"].isna()
    bare &= ~events["collective"].isin(list(P2P)) & events["collective"].notna()
    kernels = np.flatnonzero(bare.to_numpy() & (launch >= 0))
    calls = np.flatnonzero(_unlaunched(events, launch))
    if not len(kernels) or not len(calls):
        return trace
    kernel, call = _owners(events, kernels, calls, launch)
    if not len(kernel):
        return trace
    made = events.iloc[call].assign(kernel=kernel)
    one_group = made.groupby("kernel")["group"].nunique(dropna=False).eq(1)
    made = made[made["kernel"].map(one_group).to_numpy(bool)]
    grouped = made.groupby("kernel", sort=True)
    rows = grouped.size().index.to_numpy(np.int64)
    columns: dict[str, pd.Series] = {c: events[c].copy() for c in (*_SHARED, "seq", "nbytes")}
    for name in (*_SHARED, "seq"):
        columns[name].iloc[rows] = grouped[name].last().array
    columns["nbytes"].iloc[rows] = grouped["nbytes"].sum().mask(grouped["nbytes"].count() < grouped.size()).array
    return trace.with_events(**columns)


def _unlaunched(events: pd.DataFrame, launch: Rows) -> Mask:
    """The innermost calls of collectives from which nothing was launched."""
    parent = integers(events["parent"])
    calls = events["kind"].eq(Kind.OPERATOR).to_numpy() & events["collective"].notna().to_numpy() & ~events["collective"].isin(list(P2P)).to_numpy()
    outer = _ancestors(parent, parent[calls])
    launched = _ancestors(parent, launch[events["kind"].eq(Kind.COMMUNICATION).to_numpy()])
    mask: Mask = calls & ~outer & ~launched
    return mask


def _ancestors(parent: Rows, start: Rows) -> Mask:
    """The events at ``start`` and all that enclose them."""
    out = np.zeros(len(parent), bool)
    at = np.unique(start[start >= 0])
    while len(at):
        at = at[~out[at]]
        out[at] = True
        at = np.unique(parent[at])
        at = at[at >= 0]
    return out


def _owners(events: pd.DataFrame, kernels: Rows, calls: Rows, launch: Rows) -> tuple[Rows, Rows]:
    """Pairs (kernel, call): each call belongs to the next launch of a kernel of its kind on its thread."""
    ts = events["ts"].to_numpy()
    thread, kind = events["thread"].to_numpy(), events["collective"].astype(str).to_numpy()
    begun = launch[kernels]
    left = pd.DataFrame({"thread": thread[calls], "kind": kind[calls], "at": ts[calls], "call": calls}).sort_values("at", kind="stable")
    right = pd.DataFrame({"thread": thread[begun], "kind": kind[kernels], "at": ts[begun], "kernel": kernels}).sort_values("at", kind="stable")
    both = pd.merge_asof(left, right, on="at", by=["thread", "kind"], direction="forward").dropna()
    return both["kernel"].to_numpy(np.int64), both["call"].to_numpy(np.int64)
