"""Which rank came last to each collective, by how much, and what had held it up?

Ranks of one group leave a collective together and meet again at the next one: in between each rank computed, stood idle, or was held in
other groups' calls. What the last rank had more of than the others (the median of theirs) is why it was late:

    slow_compute      it computed for longer, since the previous collective began
    late_launch       its device stood idle for longer: the host was late
    waits_elsewhere   it was held in other calls for longer; ``waits_for`` is the rank that it waited for longest in there
    token_imbalance   it had the most to send in an uneven all-to-all, so the most tokens to compute before (expert parallelism)

A rank that came late to the previous collective computes less under it than those that waited there, and has that much left to do: it is late
again for the same cause. The first collective of a group has nothing before it: unknown, as where the ranks' calls before it differ.
Only ranks that do the same work can be compared: in a pipeline that leaves out groups across stages. No Python loop runs over calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import Mask
from tracekit.job.base import Job
from tracekit.job.topology import DATA_AXES
from tracekit.vocabulary import Axis, Collective

#: Axes whose ranks do the same work, in a pipeline too.
_SIBLINGS = frozenset({Axis.TP, Axis.CP, Axis.EP, *DATA_AXES})
#: The last rank has so many times the bytes of the second: the tokens are uneven.
UNEVEN = 1.2

ARRIVALS = ["instance", "capture", "step", "group", "rank", "start_ns", "lateness_ns", "ranks"]
LATE = ["instance", "capture", "step", "kind", "group", "group_ranks", "ranks", "last_rank", "lead_ns", "caused_wait_ns", "cause", "waits_for"]
_CAUSES = ("slow_compute", "late_launch", "waits_elsewhere", "as_before")
_PARTS = ("compute", "idle", "held", "left_over")


def arrivals(job: Job) -> pd.DataFrame:
    """Every rank's arrival at every collective of ranks that do the same work and are all here.

    Returns:
        ``ARRIVALS``, sorted by instance: lateness_ns is the start minus the median start of the instance's ranks, ranks their number,
        group a number per capture and set of ranks.
    """
    known = _comparable(job)
    rows = job.by_rank.merge(known[["instance", "capture", "step", "group_ranks"]], on="instance")
    rows = rows.assign(group=rows.groupby(["capture", "group_ranks"], sort=False, dropna=False).ngroup())
    first = rows.groupby("instance", sort=False)["start_ns"].transform("min")
    late = (rows["start_ns"] - first).groupby(rows["instance"], sort=False)
    rows = rows.assign(lateness_ns=(rows["start_ns"] - first) - late.transform("median"), ranks=late.transform("size"))
    return rows[[*ARRIVALS, "end_ns", "exposed_ns", "nbytes"]].sort_values(["instance", "rank"], kind="stable", ignore_index=True)


def late_ranks(job: Job, came: pd.DataFrame) -> pd.DataFrame:
    """The last rank of every collective, and why.

    Args:
        job: the job.
        came: ``arrivals(job)``.

    Returns:
        ``LATE``, one row per instance: last_rank (null where two came last together, as far as the clocks can tell), lead_ns (how much
        later than the second last), caused_wait_ns (lead_ns times the number of the others: what they would not have waited
        had it come with the second last), cause and waits_for.
    """
    ordered = came.sort_values(["instance", "start_ns"], kind="stable", ignore_index=True)
    ends = ordered.groupby("instance", sort=False)
    last = ordered.loc[ends.tail(1).index].set_index("instance")
    second = ends["start_ns"].nth(-2).set_axis(last.index)
    about = job.instances.set_index("instance").reindex(last.index)
    lead = (last["start_ns"] - second).astype("int64")
    told = lead.gt(about["wait_resolution_ns"].fillna(0)).astype(bool) & lead.gt(0)
    cause, waits_for = _causes(job, came, last[told])
    table = about[["capture", "step", "kind", "group", "group_ranks"]].assign(
        ranks=last["ranks"],
        last_rank=last["rank"].astype("Int64").where(told),
        lead_ns=lead.where(told, 0),
        caused_wait_ns=(lead * (last["ranks"] - 1)).where(told, 0),
        cause=cause.reindex(last.index).where(told, None).astype(object),
        waits_for=waits_for.reindex(last.index).astype("Int64"),
    )
    return table.reset_index()[LATE]


def _comparable(job: Job) -> pd.DataFrame:
    """Instances whose ranks are all here, do the same work, and have known waits."""
    found = job.instances
    whole = found["matched_ranks"].gt(1) & ~found["wait_is_lower_bound"] & found["time_source"].ne("host") & found["kind"].ne(Collective.PEER_COPY)
    waits = job.by_rank["wait_ns"].isna().groupby(job.by_rank["instance"]).any()
    whole &= ~found["instance"].map(waits).fillna(True).astype(bool)
    if job.mesh.get(Axis.PP, 1) > 1 or (len(job.p2p) and job.p2p["axis"].eq(Axis.PP).any()):
        whole &= found["axis"].isin(list(_SIBLINGS))
    return found[whole]


def _causes(job: Job, came: pd.DataFrame, last: pd.DataFrame) -> tuple[pd.Series[Any], pd.Series[Any]]:
    """Cause and the rank waited for, by instance, of the last ranks."""
    spent = _since_the_last_meeting(job, came)
    mine = spent.set_index(["instance", "rank"]).reindex(pd.MultiIndex.from_arrays([last.index, last["rank"]]))
    others = spent[_not_last(spent, last)].groupby("instance")[list(_PARTS)].median()
    more = mine[list(_PARTS)].set_axis(last.index) - others.reindex(last.index)
    known = more.notna().all(axis=1) & more.max(axis=1).gt(0)
    which = more[known].to_numpy(np.float64).argmax(axis=1)
    cause = pd.Series("unknown", index=last.index, dtype=object)
    cause[known] = np.array(_CAUSES, object)[which]
    cause[_uneven(came, last)] = "token_imbalance"
    held = mine.assign(instance=last.index)[(cause == "waits_elsewhere").to_numpy()].reset_index(level="rank")
    return _as_before(last, cause, _waited_for(job, held).reindex(last.index))


def _as_before(last: pd.DataFrame, cause: pd.Series[Any], waits_for: pd.Series[Any]) -> tuple[pd.Series[Any], pd.Series[Any]]:
    """Where a rank is late because it was late before, the cause is that of the group's previous collective, if it was the last there too."""
    order = last.sort_values(["group", "start_ns"], kind="stable")
    again = order["rank"].eq(order["rank"].shift()) & order["group"].eq(order["group"].shift())
    run = (~again).cumsum()
    inherits = cause.reindex(order.index).eq("as_before")
    causes = cause.reindex(order.index).mask(inherits).groupby(run).ffill().fillna("unknown")
    # a rank waited for is inherited with the cause only, never past another cause
    carried = waits_for.reindex(order.index).astype("Int64").groupby([run, (~inherits).cumsum()]).transform("first")
    return causes.reindex(last.index), carried.where(causes.eq("waits_elsewhere")).reindex(last.index)


def _since_the_last_meeting(job: Job, came: pd.DataFrame) -> pd.DataFrame:
    """What each rank did between its group's previous collective and this one, ns; null where unknown.

    compute (since that one began), idle and held (other calls, copies) since it ended, left_over: less computed under it than others did.
    """
    marks = job.table("progress").drop_duplicates(["rank", "capture", "start_ns", "end_ns"])
    rows = came.merge(marks, on=["rank", "capture", "start_ns", "end_ns"], how="left").sort_values(["group", "rank", "start_ns"], kind="stable")
    length = rows["end_ns"] - rows["start_ns"]
    computed, busy = (rows[c].astype("Float64") for c in ("computed_before_ns", "busy_before_ns"))
    under = (length - rows["exposed_ns"]).astype("Float64")
    # nullable: plain integers are shifted as floats, which hold no times since 1970 to the ns
    after = pd.DataFrame({"end": rows["end_ns"].astype("Int64"), "computed": computed, "under": under, "busy": busy + length, "meeting": rows["instance"]})
    before = after.groupby([rows["group"], rows["rank"]], sort=False).shift(1)
    gone = (rows["start_ns"] - before["end"]).astype("Float64")
    compute, work = computed - before["computed"], busy - before["busy"]
    out = rows[["instance", "rank", "capture", "group", "start_ns"]].assign(
        since_ns=before["end"],
        compute=compute,
        idle=gone - work,
        held=work - (compute - before["under"]),
        left_over=-before["under"],
        meeting=before["meeting"],
    )
    # all ranks must come from the same meeting, and none may have been in two at once
    same = out.groupby("instance")["meeting"].transform("nunique").eq(1) & out.groupby("instance")["meeting"].transform("count").eq(rows["ranks"])
    good = same & gone.ge(0).fillna(False).groupby(out["instance"]).transform("all")
    return out.assign(**{part: out[part].astype("Float64").where(good) for part in _PARTS}).drop(columns="meeting")


def _not_last(rows: pd.DataFrame, last: pd.DataFrame) -> Mask:
    """Rows of instances that have a last rank, of other ranks than that one."""
    last_rank = last["rank"].reindex(rows["instance"]).to_numpy(np.float64)
    return np.asarray((rows["rank"].to_numpy() != last_rank) & ~np.isnan(last_rank), np.bool_)


def _uneven(came: pd.DataFrame, last: pd.DataFrame) -> pd.Series[bool]:
    """Whether the last rank had by far the most to send, as after experts with too many tokens."""
    others = came.loc[_not_last(came, last), ["instance", "nbytes"]].dropna()
    rest = others.groupby("instance")["nbytes"].max().reindex(last.index)
    own = last["nbytes"].astype("Float64")
    return (own > UNEVEN * rest.astype("Float64")).fillna(False).astype(bool)


def _waited_for(job: Job, held: pd.DataFrame) -> pd.Series[Any]:
    """For each window (rank, capture, since_ns … start_ns) the rank that its rank waited for longest in it, by instance."""
    waits = _waits(job)
    if not len(held) or not len(waits):
        return pd.Series(dtype="Int64")
    windows = held.assign(since_ns=held["since_ns"].astype("int64"), start_ns=held["start_ns"].astype("int64"), group=held["group"].astype("int64"))
    windows = windows[["instance", "rank", "capture", "group", "since_ns", "start_ns"]].astype({"rank": "int64", "capture": "int64", "since_ns": "Int64"})
    # a wait lies in one window of each of its rank's groups: the one that ends next
    tried = waits.merge(windows[["rank", "capture", "group"]].drop_duplicates(), on=["rank", "capture"])
    found = pd.merge_asof(
        tried.sort_values("end_ns"),
        windows.sort_values("start_ns"),
        left_on="end_ns",
        right_on="start_ns",
        by=["rank", "capture", "group"],
        direction="forward",
    )
    found = found[found["instance"].notna() & found["end_ns"].gt(found["since_ns"])]
    total = found.groupby(["instance", "partner"])["wait_ns"].sum().reset_index()
    return total.sort_values("wait_ns", kind="stable").drop_duplicates("instance", keep="last").set_index("instance")["partner"].astype("Int64")


def _waits(job: Job) -> pd.DataFrame:
    """Every wait: rank, capture, end_ns of the call, wait_ns, and the rank that was waited for (partner).

    Of a send or receive whose other end is not here, all of its time counts: the peer is known, and the moving of the bytes is the smaller part.
    """
    parts = []
    if len(job.by_rank):
        rows = job.by_rank.merge(job.instances[["instance", "capture"]], on="instance")
        final = rows.sort_values("start_ns", kind="stable").drop_duplicates("instance", keep="last").set_index("instance")["rank"]
        parts.append(rows.assign(partner=rows["instance"].map(final))[["rank", "capture", "end_ns", "wait_ns", "partner"]])
    if len(job.p2p):
        for who, other, side in (("src", "dst", "send"), ("dst", "src", "recv")):
            wait = job.p2p[f"{side}_wait_ns"].fillna((job.p2p[f"{side}_end_ns"] - job.p2p[f"{side}_start_ns"]).where(job.p2p["matched_by"].eq("none")))
            names = {who: "rank", other: "partner", f"{side}_end_ns": "end_ns"}
            parts.append(job.p2p.assign(wait_ns=wait).rename(columns=names)[["rank", "capture", "end_ns", "wait_ns", "partner"]])
    if not parts:
        return pd.DataFrame(columns=["rank", "capture", "end_ns", "wait_ns", "partner"])
    every = pd.concat([part.astype({"end_ns": "Int64", "wait_ns": "Int64"}) for part in parts], ignore_index=True)
    every = every[every["wait_ns"].gt(0).fillna(False) & every["end_ns"].notna() & every["rank"].ne(every["partner"])]
    return every.astype(dict.fromkeys(("rank", "capture", "end_ns", "wait_ns", "partner"), "int64"))
