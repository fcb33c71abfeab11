"""Which ranks are in a group when the trace does not list them? Read off who takes part, or inferred from common ends on one clock.

torch cuts lists of more than 30 ranks: a group as large as the job holds every rank, and a group as large as the number of ranks that
make calls under one cut list holds just those. Traces older than torch 2.2 carry no group metadata at all. A collective ends on all
its ranks at almost the same moment, so the streams of a group, one per rank, show the same calls in the same order with the same
ends. That is used, and marked, only where it is beyond doubt: several calls, all with ends within ``TOLERANCE_NS``, all overlapping in
time, one stream per rank. Where no two streams end together at all, their clocks may be apart: then many ends must keep one distance.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.group_ranks import canonical
from tracekit.vocabulary import P2P, Collective

#: Ends of one collective on its ranks differ by single microseconds; ends of unrelated ones by chance far more.
TOLERANCE_NS = 20_000
#: One common end may be chance.
MINIMUM_CALLS = 2
#: On clocks that are apart, so many ends must keep the same distance, within half the tolerance, but for a steady drift.
MINIMUM_APART, APART_NS = 8, TOLERANCE_NS // 2
#: Kinds that are certainly of a whole group.
_COLLECTIVE = frozenset(Collective) - P2P - {Collective.PEER_COPY}


def infer_groups(calls: pd.DataFrame, clock_of: Mapping[tuple[int, int], int] | None = None) -> pd.DataFrame:
    """The calls with ``group_ranks`` filled where ends show it, and a column ``inferred`` that says where.

    Args:
        clock_of: reference rank of each (capture, rank), once clocks are aligned. Ends on clocks that nothing links cannot be compared: where
            such streams are left over, those that end together may be a part of their group only.
        calls: collective calls of all ranks: capture, rank, device, stream, kind, group, group_ranks, group_cut, group_size, time_source,
            start_ns, end_ns.
    """
    todo = calls["group_ranks"].isna() & calls["group_cut"].isna() & calls["time_source"].eq("device") & calls["kind"].ne(Collective.PEER_COPY)
    group_ranks = calls["group_ranks"].astype(object).copy()
    inferred = pd.Series(False, index=calls.index)
    unknown = calls[todo].sort_values(["capture", "rank", "device", "stream", "start_ns"], kind="stable")
    for _, capture in unknown.groupby("capture", sort=False):
        streams = [s for _, s in capture.groupby(["rank", "device", "stream", "group", "group_size"], sort=False, dropna=False)]
        alike: dict[tuple[object, ...], list[pd.DataFrame]] = {}
        for stream in streams:
            alike.setdefault(tuple(stream[["kind", "group", "group_size"]].astype(str).itertuples(index=False, name=None)), []).append(stream)
        for kinds, members in alike.items():
            if len(members) < 2 or len(kinds) < MINIMUM_CALLS:
                continue
            size = members[0]["group_size"].iloc[0]
            clusters = _by_common_ends(members) or _by_common_distances(members)
            clocks = {clock_of.get((int(m["capture"].iloc[0]), int(m["rank"].iloc[0]))) for m in members} if clock_of else set()
            if len(clocks) > 1 and sum(map(len, clusters)) < len(members):
                continue
            for together in clusters:
                if pd.notna(size) and len(together) != size:
                    continue
                ranks = [int(members[i]["rank"].iloc[0]) for i in together]
                rows = np.concatenate([members[i].index.to_numpy() for i in together])
                group_ranks.loc[rows] = canonical(ranks)
                inferred.loc[rows] = True
    return calls.assign(group_ranks=group_ranks, inferred=inferred)


def complete_groups(calls: pd.DataFrame, world: int | None) -> pd.DataFrame:
    """The calls with ``group_ranks`` filled where the size of the group leaves no choice.

    Args:
        calls: as :func:`infer_groups` returns them.
        world: ranks of the job, or None.
    """
    ranks = calls["group_ranks"].astype(object).copy()
    if world:
        ranks = ranks.where(~(ranks.isna() & calls["group_size"].eq(world).fillna(False).astype(bool)), canonical(range(world)))
    cut = calls[ranks.isna() & calls["group_cut"].notna() & calls["group_size"].notna()]
    for (_, _, size), part in cut.groupby(["group", "group_cut", "group_size"], sort=False, dropna=False):
        here = sorted({int(r) for r in part["rank"]})
        if len(here) == size:
            ranks.loc[part.index] = canonical(here)
    # in a job of two, whoever communicates at all does so with the other
    both = ranks.isna() & calls["group_size"].isna() & calls["kind"].isin(list(_COLLECTIVE)) & (world == 2)
    return calls.assign(group_ranks=ranks.mask(both, "0,1"), inferred=calls["inferred"] | both)


def nameless(calls: pd.DataFrame) -> int:
    """How many executions of several ranks' collectives belong to a group that neither metadata nor their ends tell."""
    unknown = calls["group_ranks"].isna() & calls["group_cut"].isna() & calls["time_source"].eq("device") & calls["kind"].isin(list(_COLLECTIVE))
    return int(unknown.sum()) if calls["rank"].nunique() > 1 else 0


def cut_groups(calls: pd.DataFrame) -> list[str]:
    """Names of groups whose list of ranks is cut and stays unknown."""
    return sorted({str(name) for name in calls.loc[calls["group_ranks"].isna() & calls["group_cut"].notna(), "group"]})


def _by_common_ends(members: list[pd.DataFrame]) -> list[npt.NDArray[np.int64]]:
    """Sets of streams (positions in the list) that end each of their calls together."""
    ends = np.stack([m["end_ns"].to_numpy(np.int64) for m in members])
    starts = np.stack([m["start_ns"].to_numpy(np.int64) for m in members])
    ranks = np.array([m["rank"].iloc[0] for m in members])
    order = np.argsort(ends, axis=0, kind="stable")
    ordered = np.take_along_axis(ends, order, axis=0)
    step = np.concatenate([np.zeros((1, ends.shape[1]), bool), np.diff(ordered, axis=0) > TOLERANCE_NS]).cumsum(axis=0)
    labels = np.empty_like(step)
    np.put_along_axis(labels, order, step, axis=0)
    _, cluster = np.unique(labels, axis=0, return_inverse=True)
    found = []
    for c in range(int(cluster.max()) + 1):
        together = np.flatnonzero(cluster.ravel() == c)
        one_each = len(np.unique(ranks[together])) == len(together)
        overlap = bool((starts[together].max(axis=0) < ends[together].min(axis=0)).all())
        if len(together) > 1 and one_each and overlap:
            found.append(together)
    return found


def _by_common_distances(members: list[pd.DataFrame]) -> list[npt.NDArray[np.int64]]:
    """Sets of streams whose ends keep one distance, or one that drifts steadily, from the first of the set."""
    ends = np.stack([m["end_ns"].to_numpy(np.int64) for m in members])
    starts = np.stack([m["start_ns"].to_numpy(np.int64) for m in members])
    ranks = np.array([m["rank"].iloc[0] for m in members])
    if ends.shape[1] < MINIMUM_APART:
        return []
    left, found = list(range(len(members))), []
    while left:
        first = left[0]
        at = (ends[first] - ends[first][0]).astype(float)
        distance = (ends[left] - ends[first]).astype(float)
        slope, offset = np.polyfit(at, distance.T, 1)
        line = slope[:, None] * at + offset[:, None]
        close = np.abs(distance - line).max(axis=1) <= APART_NS
        together = np.array(left)[close]
        moved = line[close]
        overlap = bool(((starts[together] - moved).max(axis=0) < (ends[together] - moved).min(axis=0)).all())
        if len(together) > 1 and len(np.unique(ranks[together])) == len(together) and overlap:
            found.append(together)
        left = [i for i in left if i != first and i not in together]
    return found
