"""What do NCCL's own records say? Calls and communicators that logs, dumps and NCCL's profilers state, joined over the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit import theory
from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.vocabulary import P2P, Collective

#: Sources that hold every call of a rank, in order, from its first on: the n-th send there meets the n-th receive.
_WHOLE = ("nccl_log", "nccl_profiler")
#: Kinds of which a rank has one part of the whole.
_SHARED = [Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER]
_GROUP = ["source", "group", "group_desc", "group_ranks", "group_size"]


def compute(job: Job) -> Result:
    """Collectives by the ranks that state them, sends with receives, sums by kind and group, communicators and their members."""
    records, held = job.table("records"), job.table("communicators")
    if not len(records) and not len(held):
        return unavailable(
            "no records of NCCL's own: give logs of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING, its profiler's or Inspector's JSON lines, "
            "or Flight Recorder dumps"
        )
    held = _members_found(held)
    found = held.dropna(subset=["group", "group_ranks"]).drop_duplicates(["source", "group"]).set_index(["source", "group"])["group_ranks"]
    calls = _with_rates(_with_members(records, found))
    p2p = calls["kind"].isin(list(P2P))
    counted = calls.assign(sent=p2p & calls["source"].eq("nccl_log")).groupby(["source", "key"], dropna=False)["sent"]
    calls = calls.assign(mixed=counted.transform("any"))
    instances = _instances(calls[~p2p])
    pairs = _pairs(calls[p2p & calls["source"].isin(_WHOLE)])
    groups = _groups(held, calls)
    tables = {
        "instances": instances,
        "p2p": pairs,
        "by_kind": _by_kind(calls),
        "groups": groups,
        "communicators": held[["rank", *_GROUP, "group_rank", "handle", "device"]].assign(group_ranks=_lists(held["group_ranks"])),
    }
    return Result(summary=_summary(calls, instances, pairs, groups), tables=tables, notes=_notes(calls, instances))


def _members_found(held: pd.DataFrame) -> pd.DataFrame:
    """Communicators whose members are spread over several files, all of them seen: their ranks."""
    members = held.dropna(subset=["group", "group_rank", "group_size"]).drop_duplicates(["source", "group", "group_rank", "rank"])
    whole = {}
    for key, of in members.groupby(["source", "group"]):
        size = set(of["group_size"])
        if len(size) == 1 and sorted(of["group_rank"]) == list(range(size.pop())) and of["rank"].is_unique:
            whole[key] = ",".join(str(r) for r in sorted(of["rank"]))
    named = [whole.get((s, g)) for s, g in zip(held["source"], held["group"], strict=True)]
    return held.assign(group_ranks=held["group_ranks"].where(held["group_ranks"].notna(), pd.Series(named, index=held.index, dtype=object)))


def _with_members(records: pd.DataFrame, found: pd.Series[Any]) -> pd.DataFrame:
    """The records with the members of their groups, where the communicators tell them, and what is joined over ranks by (``key``)."""
    known = dict(found.items())
    told = pd.Series([known.get((s, g)) for s, g in zip(records["source"], records["group"], strict=True)], index=records.index, dtype=object)
    ranks = records["group_ranks"].where(records["group_ranks"].notna(), told)
    return records.assign(group_ranks=ranks, key=ranks.where(ranks.notna(), records["group"]))


def _with_rates(calls: pd.DataFrame) -> pd.DataFrame:
    """Bus bandwidth by nccl-tests' formula from each record's size and duration, beside the one it states; what one rank has of the whole."""
    shape = pd.DataFrame({"kind": calls["kind"].astype(object), "n": calls["group_size"].astype("Int64")})
    distinct = shape.dropna().drop_duplicates()
    forms = distinct.assign(factor=pd.array([theory.busbw_factor(k, int(n)) for k, n in distinct.itertuples(index=False)], "Float64"))
    factor = shape.merge(forms, on=["kind", "n"], how="left").set_index(calls.index)["factor"]
    duration = calls["duration_ns"].astype("Float64").mask(calls["duration_ns"].eq(0).fillna(True))
    busbw = calls["nbytes"].astype("Float64") / duration * factor
    stated = calls["busbw_gbps"].astype("Float64")
    difference = (busbw / stated.mask(stated.eq(0).fillna(False)) - 1).abs()
    shared = calls["kind"].isin(_SHARED) & calls["group_size"].gt(0).fillna(False)
    of_one = calls["nbytes"].astype("Int64").where(~shared, calls["nbytes"] // calls["group_size"].mask(~shared))
    return calls.assign(computed_gbps=busbw, difference_ratio=difference, rank_bytes=of_one)


def _instances(calls: pd.DataFrame) -> pd.DataFrame:
    """One row per collective, joined over ranks by (group, sequence number, kind).

    NCCL counts opCount up once per launch: calls of one group of calls share it, so equal ones are told apart by their
    order; and sends and receives count it up on their ranks only, so where a communicator carried any, order stands for it.
    """
    columns = [*_GROUP, "kind", "name", "seq", "nbytes", "rank_bytes", "dtype", "algorithm", "protocol", "seen_by", "ranks_seen", "matched_by"]
    columns += ["duration_min_ns", "duration_max_ns", "busbw_stated_max_gbps", "busbw_computed_max_gbps"]
    if not len(calls):
        return pd.DataFrame({c: pd.Series(dtype="object") for c in columns})
    own = ["capture", "source", "rank", "key"]
    number = calls["seq"].where(~calls["mixed"], calls.groupby(own, dropna=False).cumcount())
    alone = calls["key"].isna() | number.isna()
    nth = calls.assign(number=number).groupby([*own, "kind", "number"], dropna=False).cumcount()
    lone = pd.Series(np.where(alone, np.arange(len(calls)), -1), index=calls.index)
    by = calls.assign(number=number, nth=nth, lone=lone).groupby(["capture", "source", "key", "kind", "number", "nth", "lone"], sort=False, dropna=False)
    out = by[["group", "group_desc", "group_ranks", "group_size", "name"]].first()
    for name in ("seq", "nbytes", "rank_bytes", "dtype", "algorithm", "protocol"):
        out[name] = by[name].first().where(by[name].nunique().le(1))
    out["seen_by"], out["ranks_seen"] = _ranks(by), by["rank"].nunique()
    out["matched_by"] = np.where(by["mixed"].any(), "order", "seq")
    out["duration_min_ns"], out["duration_max_ns"] = by["duration_ns"].min(), by["duration_ns"].max()
    out["busbw_stated_max_gbps"], out["busbw_computed_max_gbps"] = by["busbw_gbps"].max(), by["computed_gbps"].max()
    out = out.reset_index()
    return out.assign(group_ranks=_lists(out["group_ranks"]), matched_by=out["matched_by"].where(out["lone"].lt(0), None))[columns]


def _pairs(calls: pd.DataFrame) -> pd.DataFrame:
    """The n-th send of a rank to another with the n-th receive there; a side that no record states is null."""
    columns = ["source", "group", "src", "dst", "order", "sent_bytes", "received_bytes", "seen_by"]
    one_way = calls[calls["kind"].isin([Collective.SEND, Collective.RECV]) & calls["peer"].notna()]
    if not len(one_way):
        return pd.DataFrame({c: pd.Series(dtype="object") for c in columns})
    sends = one_way["kind"].eq(Collective.SEND)
    order = one_way.groupby(["capture", "source", "rank", "key", "kind", "peer"], dropna=False).cumcount()
    src, dst = one_way["rank"].where(sends, one_way["peer"]).astype("int64"), one_way["peer"].where(sends, one_way["rank"]).astype("int64")
    part = one_way.assign(src=src, dst=dst, order=order, sent=one_way["nbytes"].where(sends), received=one_way["nbytes"].where(~sends))
    by = part.groupby(["capture", "source", "key", "src", "dst", "order"], sort=False, dropna=False)
    out = by.agg(group=("group", "first"), sent_bytes=("sent", "first"), received_bytes=("received", "first")).reset_index()
    out["seen_by"] = _ranks(by)
    return out[columns]


def _by_kind(calls: pd.DataFrame) -> pd.DataFrame:
    """Sums over the records of one source, group and kind; a sum with an unknown part is null."""
    columns = [*_GROUP, "kind", "records", "ranks", "nbytes", "algorithm", "protocol", "duration_ns", "busbw_stated_mean_gbps"]
    columns += ["busbw_computed_mean_gbps", "busbw_difference_max_ratio"]
    if not len(calls):
        return pd.DataFrame({c: pd.Series(dtype="object") for c in columns})
    by = calls.groupby(["source", "key", "kind"], sort=True, dropna=False)
    out = by[["group", "group_desc", "group_ranks"]].first()
    out["group_size"] = by["group_size"].first().where(by["group_size"].nunique().le(1))
    out["records"] = by.size()
    out["ranks"] = _ranks(by)
    for name in ("nbytes", "duration_ns"):
        out[name] = by[name].sum().mask(by[name].count() < out["records"])
    for name in ("algorithm", "protocol"):
        out[name] = by[name].agg(_names)
    out["busbw_stated_mean_gbps"], out["busbw_computed_mean_gbps"] = by["busbw_gbps"].mean(), by["computed_gbps"].mean()
    out["busbw_difference_max_ratio"] = by["difference_ratio"].max()
    out = out.reset_index()
    return out.assign(group_ranks=_lists(out["group_ranks"]))[columns]


def _groups(held: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Each communicator: its ranks, and those of them that have records here."""
    both = [t[["rank", *_GROUP]] for t in (held, calls) if len(t)]
    rows = []
    for (source, group), of in pd.concat(both).groupby(["source", "group"], sort=True):
        ranks = _first(of["group_ranks"])
        here = sorted({int(r) for r in of["rank"]})
        members = None if ranks is None else [int(r) for r in ranks.split(",")]
        rows.append(
            {
                "source": source,
                "group": group,
                "group_desc": _first(of["group_desc"]),
                "group_size": _first(of["group_size"]),
                "group_ranks": members,
                "ranks_here": here,
                "ranks_not_here": None if members is None else sorted(set(members) - set(here)),
            }
        )
    columns = ["source", "group", "group_desc", "group_size", "group_ranks", "ranks_here", "ranks_not_here"]
    return pd.DataFrame(rows, columns=columns).astype({"group_size": "Int64"})


def _summary(calls: pd.DataFrame, instances: pd.DataFrame, pairs: pd.DataFrame, groups: pd.DataFrame) -> dict[str, Any]:
    whole = instances["ranks_seen"].eq(instances["group_size"]).fillna(False) if len(instances) else pd.Series(dtype=bool)
    difference = calls["difference_ratio"].max() if len(calls) else None
    return {
        "sources": sorted({*calls["source"].dropna(), *groups["source"]}),
        "ranks": sorted({int(r) for r in calls["rank"]} | {r for here in groups["ranks_here"] for r in here}),
        "records": len(calls),
        "communicators": len(groups),
        "collectives": len(instances),
        "collectives_seen_by_all": int(whole.sum()),
        "p2p": len(pairs),
        "p2p_seen_by_both": int(pairs["seen_by"].map(len).eq(2).sum()),
        "busbw_difference_max_ratio": None if difference is None or pd.isna(difference) else float(difference),
    }


def _notes(calls: pd.DataFrame, instances: pd.DataFrame) -> tuple[str, ...]:
    notes = ["A call is listed under the ranks whose records hold it (seen_by). Of a rank without records, or with cut ones, nothing is said."]
    if len(instances) and instances["matched_by"].eq("order").any():
        notes.append(
            "Communicators that also carried sends and receives: their collectives were matched by order, for those count opCount on their ranks alone."
        )
    if len(instances) and instances["matched_by"].isna().any():
        notes.append("Records without a group or a number stand alone: they could not be matched over ranks.")
    if len(calls) and calls["computed_gbps"].notna().any():
        notes.append("A rank's duration includes its waiting for the others: the rank that came last, the shortest duration, says most of what the links gave.")
    return tuple(notes)


def _ranks(by: Any) -> list[list[int]]:
    """The ranks of each group of records, in the order of the groups."""
    pairs = pd.DataFrame({"group": by.ngroup(), "rank": by.obj["rank"].astype("int64")}).drop_duplicates().sort_values(["group", "rank"])
    starts = np.flatnonzero(np.diff(pairs["group"].to_numpy())) + 1
    return [part.tolist() for part in np.split(pairs["rank"].to_numpy(), starts)]


def _names(column: pd.Series[Any]) -> Any:
    return ", ".join(sorted({str(name) for name in column.dropna()})) or None


def _first(column: pd.Series[Any]) -> Any:
    known = column.dropna()
    return known.iloc[0] if len(known) else None


def _lists(ranks: pd.Series[Any]) -> pd.Series[Any]:
    """'0,1' -> [0, 1]."""
    table = {text: [int(r) for r in text.split(",")] for text in ranks.dropna().unique()}
    return pd.Series([table.get(text) if isinstance(text, str) else None for text in ranks], index=ranks.index, dtype=object)


METRIC = Metric(
    name="records",
    title="NCCL's own records",
    question="What do NCCL's own records say?",
    definition=(
        "Calls and communicators as the debug log (NCCL_DEBUG=INFO, src/enqueue.cc and src/init.cc of NVIDIA/nccl), the profiler plugin, NCCL Inspector "
        "(plugins/profiler/inspector) or torch's Flight Recorder state them; the source is named in each row. Records of several ranks are one collective "
        "where group, sequence number (opCount, coll_sn) and kind are equal; seen_by names the ranks that state it. Sizes are nccl-tests' (the total over "
        "the ranks for all-gather and reduce-scatter), rank_bytes is what one rank's call names. busbw is shown as stated and as computed from the "
        "record's own size and duration by nccl-tests' doc/PERFORMANCE.md."
    ),
    compute=compute,
)
