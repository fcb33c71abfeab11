"""Which rank is missing from which collective? The Flight Recorder dumps of all ranks, laid side by side.

A collective is the same on every rank when group (name and ranks: several groups may share a name) and sequence number are.
A rank without an entry need not have missed it: dumps of a hang leave completed calls out, and a full ring drops the oldest.
So each absence gets its reason: ``completed``, ``not_enqueued``, ``dropped`` (enqueued, but no longer in the ring),
``no_dump`` (the rank's dump is not here) or ``unknown``. Suspects are the ranks that did not enqueue what others of the group
did, and those that are behind: they still hold what others completed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import choose
from tracekit.group_ranks import canonical
from tracekit.job.flight_findings import findings_of
from tracekit.job.flight_p2p import pair_dumps
from tracekit.trace import RankFacts
from tracekit.vocabulary import Collective

#: Name of the format, as in ``readers.READERS``, and of the source, as in ``schema.RECORDS``.
FORMAT, SOURCE = "Flight Recorder dump", "flight_recorder"
#: Kinds of which ranks may lawfully have different sizes.
_UNEVEN = [str(Collective.ALL_TO_ALL)]
_STATES = ("scheduled", "started", "completed")

COLLECTIVES = ["group", "group_desc", "group_ranks", "seq", "kind", "name", "nbytes", "dtype", "shape", "created_ns", "state"]
COLLECTIVES += ["present", "missing", "not_enqueued", "behind", "completed_elsewhere", "mismatch", "matched"]
MISSING = ["group", "group_ranks", "seq", "rank", "why"]
MISMATCHES = ["group", "group_ranks", "seq", "what", "rank", "kind", "name", "nbytes", "dtype", "shape"]
FAULTS = ["group", "group_desc", "group_ranks", "fault", "seq", "kind", "name", "ranks", "others", "collectives", "created_ns"]
GROUPS = ["group", "group_desc", "group_ranks", "group_size", "ranks_with_entries", "collectives", "matched", "mismatches", "suspects"]
RANKS = ["rank", "dump", "entries", "first_record", "last_record", "pending", "groups_not_enqueued", "groups_behind"]


@dataclass(frozen=True)
class Flight:
    """The dumps of all ranks side by side; lists of ranks are tuples.

    Attributes:
        ranks: one row per rank that a dump or a group names: whether its dump is here, its entries, and where it is a suspect.
        faults: one row per group and way in which its ranks part (``mismatch``, ``not_enqueued``, ``behind``): the first such collective, the
            ranks it concerns, the others that hold or completed it, and in how many collectives of the group it is so; in order of time.
        groups: one row per process group of any entry.
        collectives: one row per group and sequence number; ``mismatch`` is operation, size, dtype or none, and null, as ``matched`` is, where the
            group's ranks are unknown.
        missing: one row per collective and member without an entry, with the reason.
        mismatches: one row per rank of each collective whose ranks disagree on operation, size or element type.
        p2p: one row per group and direction: sends, receives, and how many of them pair (``job.flight_p2p``).
        findings: rows of ``schema.FINDINGS`` as dicts.
    """

    ranks: pd.DataFrame = field(default_factory=pd.DataFrame)
    faults: pd.DataFrame = field(default_factory=pd.DataFrame)
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)
    collectives: pd.DataFrame = field(default_factory=pd.DataFrame)
    missing: pd.DataFrame = field(default_factory=pd.DataFrame)
    mismatches: pd.DataFrame = field(default_factory=pd.DataFrame)
    p2p: pd.DataFrame = field(default_factory=pd.DataFrame)
    findings: tuple[Mapping[str, Any], ...] = ()


def compare(ranks: Mapping[tuple[int, int], RankFacts], records: pd.DataFrame, status: pd.DataFrame, world: int | None = None) -> Flight | None:
    """Lay the dumps side by side.

    Args:
        ranks: facts by (rank, capture).
        records: ``records`` of all ranks with ``rank`` and ``capture``; only those of the Flight Recorder count.
        status: ``group_status`` of all ranks, likewise.
        world: ranks of the whole job, where known.

    Returns:
        None where there is no dump.
    """
    dumped = sorted({rank for (rank, _), facts in ranks.items() if FORMAT in facts.meta.formats})
    if not dumped:
        return None
    members = _known_members(ranks, world)
    entries = _entries(records, members)
    groups = _groups(entries)
    entries = entries.assign(gid=entries.groupby(["group", "group_ranks"], sort=False).ngroup())
    calls = entries[~entries["p2p"] & entries["seq"].notna()].drop_duplicates(["gid", "seq", "rank"])
    progress, whole = _progress(status, members, groups), _whole(entries)
    calls = _with_progress(calls, progress)
    absent = _absent(calls, groups, progress, dumped, whole)
    calls = _behind(calls, absent)
    collectives, mismatches = _collectives(calls, absent, groups)
    p2p = pair_dumps(entries, dumped, whole)
    faults = _faults(collectives)
    table = _ranks(entries, calls, absent, groups, dumped)
    timed = {rank for (rank, _), facts in ranks.items() if int(facts["extent"]["events"].iloc[0]) > 0}
    return Flight(
        ranks=table,
        faults=faults[FAULTS].reset_index(drop=True),
        groups=_told(groups, collectives, entries)[GROUPS],
        collectives=collectives[COLLECTIVES],
        missing=absent[MISSING].reset_index(drop=True),
        mismatches=mismatches[MISMATCHES],
        p2p=p2p,
        findings=findings_of(table, faults, mismatches, p2p, timed),
    )


def _known_members(ranks: Mapping[tuple[int, int], RankFacts], world: int | None) -> dict[tuple[int, str], str]:
    """Ranks of each group by (rank, group name), as the rank's files list them; torch's default group is the whole job."""
    out = {}
    for (rank, _), facts in ranks.items():
        for name, group in facts.meta.groups.items():
            listed = tuple(group["ranks"]) or (range(world) if world and group["desc"] == "default_pg" else ())
            if listed:
                out[rank, name] = canonical(listed)
    return out


def _completed_ranks(frame: pd.DataFrame, members: Mapping[tuple[int, str], str]) -> pd.Series:
    """``group_ranks``, from elsewhere where the entry does not list them; '' where nothing does."""
    known = frame["group_ranks"].astype(object)
    elsewhere = pd.Series([members.get(key, "") for key in zip(frame["rank"], frame["group"], strict=True)], index=frame.index, dtype=object)
    return known.where(known.notna(), elsewhere)


def _entries(records: pd.DataFrame, members: Mapping[tuple[int, str], str]) -> pd.DataFrame:
    """Entries that name a group, in the order in which each rank made them; an entry that two dumps of a rank hold counts once, as the later has it."""
    own = records[records["source"].eq(SOURCE) & records["group"].notna()]
    own = own.assign(group_ranks=_completed_ranks(own, members), p2p=own["p2p"].fillna(False).astype(bool))
    own = own.sort_values(["rank", "capture", "record"], kind="stable").drop_duplicates(
        ["rank", "record", "group", "p2p", "seq", "name", "created_ns"], keep="last"
    )
    return own.sort_values(["rank", "record"], kind="stable").reset_index(drop=True)


def _groups(entries: pd.DataFrame) -> pd.DataFrame:
    """One row per group, numbered like ``gid``."""
    out = entries.drop_duplicates(["group", "group_ranks"])[["group", "group_desc", "group_ranks"]].reset_index(drop=True)
    listed = [tuple(map(int, text.split(","))) if text else () for text in out["group_ranks"]]
    mixed = set(entries.loc[entries["p2p"], ["group", "group_ranks"]].itertuples(index=False, name=None))
    pairs = zip(out["group"], out["group_ranks"], strict=True)
    return out.assign(
        members=pd.Series(listed, out.index, dtype=object),
        group_size=pd.array([len(m) or None for m in listed], "Int64"),
        mixed=[pair in mixed for pair in pairs],
    )


def _progress(status: pd.DataFrame, members: Mapping[tuple[int, str], str], groups: pd.DataFrame) -> pd.DataFrame:
    """How far each rank had come in each group. Where a group also sends and receives, torch's numbers may be theirs: left out."""
    usable = groups.loc[~groups["mixed"], ["group", "group_ranks"]].assign(gid=groups.index[~groups["mixed"]])
    status = status.assign(group_ranks=_completed_ranks(status, members)).sort_values("capture", kind="stable")
    status = status.drop_duplicates(["rank", "group", "group_ranks"], keep="last")
    return status.merge(usable, on=["group", "group_ranks"])[["gid", "rank", "last_enqueued", "last_completed"]]


def _with_progress(calls: pd.DataFrame, progress: pd.DataFrame) -> pd.DataFrame:
    """Calls with ``done`` and ``pending``; gloo leaves every entry ``scheduled``, so that there only the group's progress tells."""
    out = calls.merge(progress, on=["gid", "rank"], how="left")
    done = out["state"].eq("completed") | out["last_completed"].ge(out["seq"]).fillna(False)
    gloo = out["name"].astype("str").str.startswith("gloo:")
    pending = ~done & out["state"].isin(["scheduled", "started"]) & (~gloo | out["last_completed"].notna())
    return out.assign(done=done.astype(bool), pending=pending.astype(bool))


def _absent(calls: pd.DataFrame, groups: pd.DataFrame, progress: pd.DataFrame, dumped: list[int], whole: frozenset[int]) -> pd.DataFrame:
    """One row per collective and member without an entry, with ``why``."""
    held = calls.groupby(["gid", "seq"], sort=False).size().rename("held").reset_index()
    short = held[held["held"] < groups["group_size"].reindex(held["gid"]).fillna(0).to_numpy(np.int64)]
    everyone = groups[["members"]].rename_axis("gid").reset_index().explode("members").dropna().rename(columns={"members": "rank"}).astype({"rank": "int64"})
    out = short.merge(everyone, on="gid").merge(calls[["gid", "seq", "rank"]], on=["gid", "seq", "rank"], how="left", indicator=True)
    out = out[out["_merge"].eq("left_only")].drop(columns=["_merge", "held"])
    span = calls.groupby(["gid", "rank"])["seq"].agg(first="min", last="max").reset_index()
    out = out.merge(progress, on=["gid", "rank"], how="left").merge(span, on=["gid", "rank"], how="left")
    seq, here = out["seq"], out["rank"].isin(dumped)
    no_later = out["last_enqueued"].lt(seq).fillna(False) | (out["last_enqueued"].isna() & out["last"].lt(seq).fillna(False))
    nothing = out["last_enqueued"].isna() & out["last"].isna() & out["rank"].isin(whole)
    why = np.select(
        [
            ~here,
            out["last_completed"].ge(seq).fillna(False),
            no_later | nothing,
            out["last_enqueued"].ge(seq).fillna(False) | out["first"].gt(seq).fillna(False),
        ],
        ["no_dump", "completed", "not_enqueued", "dropped"],
        "unknown",
    )
    return out.assign(why=why.astype(object)).merge(groups[["group", "group_ranks"]], left_on="gid", right_index=True)


def _whole(entries: pd.DataFrame) -> frozenset[int]:
    """Ranks whose dump holds every call since the first: nothing dropped from the ring, nothing left out."""
    span = entries.groupby("rank")["record"].agg(["min", "max", "nunique", "size"])
    whole = span["min"].eq(0) & (span["max"] + 1).eq(span["size"]) & span["size"].eq(span["nunique"])
    return frozenset(int(rank) for rank in span.index[whole.fillna(False).astype(bool)])


def _behind(calls: pd.DataFrame, absent: pd.DataFrame) -> pd.DataFrame:
    """Calls with ``behind``: still pending here, and completed by another rank of the group."""
    through = pd.concat([calls.loc[calls["done"], ["gid", "seq"]], absent.loc[absent["why"].eq("completed"), ["gid", "seq"]]]).drop_duplicates()
    found = calls[["gid", "seq"]].merge(through.assign(through=True), on=["gid", "seq"], how="left")["through"].notna().to_numpy()
    return calls.assign(behind=calls["pending"].to_numpy() & found)


def _collectives(calls: pd.DataFrame, absent: pd.DataFrame, groups: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row per group and sequence number; and of those whose ranks disagree, one row per rank."""
    keys = ["gid", "seq"]
    calls = calls.assign(
        op=calls["kind"].astype(object).where(calls["kind"].notna(), calls["name"]),
        size=calls["nbytes"].mask(calls["kind"].isin(_UNEVEN)),
        stage=calls["state"].map({state: i for i, state in enumerate(_STATES)}).astype("Int64").mask(calls["done"], len(_STATES) - 1),
    )
    by_key = calls.groupby(keys)
    out = by_key[["kind", "name", "nbytes", "dtype", "shape"]].first()
    out["nbytes"] = out["nbytes"].mask(by_key["nbytes"].nunique().gt(1)).astype("Int64")
    out["created_ns"], stage = by_key["created_ns"].min(), by_key["stage"].min()
    out["state"] = stage.map(dict(enumerate(_STATES))).astype(object)
    differs = {what: by_key[column].nunique().gt(1) for what, column in (("operation", "op"), ("size", "size"), ("dtype", "dtype"))}
    known = groups["group_size"].reindex(out.index.get_level_values("gid")).to_numpy(np.int64, na_value=0)
    what = np.select([differs["operation"], differs["size"], differs["dtype"]], list(differs), "none").astype(object)
    out["mismatch"] = choose(known == 0, None, what)
    for column, rows in {
        "present": calls,
        "missing": absent,
        "not_enqueued": absent[absent["why"].eq("not_enqueued")],
        "behind": calls[calls["behind"]],
        "completed_elsewhere": pd.concat([calls[calls["done"]], absent[absent["why"].eq("completed")]]),
    }.items():
        lists = rows.sort_values("rank").groupby(keys)["rank"].agg(tuple)
        out[column] = _tuples(lists.reindex(out.index))
    out["completed_elsewhere"] = [others if behind else () for others, behind in zip(out["completed_elsewhere"], out["behind"], strict=True)]
    full = pd.array((by_key.size().to_numpy() == known) & out["mismatch"].eq("none").to_numpy(), "boolean")
    out["matched"] = pd.Series(full, index=out.index).mask(known == 0)
    out = out.reset_index().merge(groups[["group", "group_desc", "group_ranks"]], left_on="gid", right_index=True)
    rows = calls.merge(out.loc[_wrong(out), [*keys, "mismatch"]].rename(columns={"mismatch": "what"}), on=keys)
    return out.sort_values(keys, ignore_index=True), rows.sort_values([*keys, "rank"], ignore_index=True)


def _wrong(collectives: pd.DataFrame) -> pd.Series:
    return collectives["mismatch"].notna() & collectives["mismatch"].ne("none")


def _faults(collectives: pd.DataFrame) -> pd.DataFrame:
    """The first collective of each group in which its ranks part, one row per way of parting."""
    parts = []
    for fault, ranks, others, hit in (
        ("mismatch", "present", None, _wrong(collectives)),
        ("not_enqueued", "not_enqueued", "present", collectives["not_enqueued"].astype(bool)),
        ("behind", "behind", "completed_elsewhere", collectives["behind"].astype(bool)),
    ):
        found = collectives[hit]
        first = found.drop_duplicates("gid")
        other = first[others] if others else _tuples(pd.Series(None, index=first.index, dtype=object))
        parts.append(first.assign(fault=fault, ranks=first[ranks], others=other, collectives=found.groupby("gid").size().reindex(first["gid"]).to_numpy()))
    return pd.concat(parts).sort_values("created_ns", kind="stable")


def _told(groups: pd.DataFrame, collectives: pd.DataFrame, entries: pd.DataFrame) -> pd.DataFrame:
    """Groups with how many of their collectives match, and whom their collectives make suspects."""
    by_group = collectives.groupby("gid")
    out = groups.assign(
        ranks_with_entries=entries.sort_values("rank").groupby("gid")["rank"].agg(lambda ranks: tuple(dict.fromkeys(ranks))),
        collectives=by_group.size(),
        matched=by_group["matched"].sum(),
        mismatches=_wrong(collectives).groupby(collectives["gid"]).sum(),
    )
    out = out.fillna({"collectives": 0, "matched": 0, "mismatches": 0}).astype({"collectives": "int64", "matched": "Int64", "mismatches": "Int64"})
    unknown = out["group_size"].isna()
    suspects: dict[int, set[int]] = {gid: set() for gid in out.index}
    for gid, late, behind in zip(collectives["gid"], collectives["not_enqueued"], collectives["behind"], strict=True):
        suspects[gid].update(late, behind)
    return out.assign(
        matched=out["matched"].mask(unknown),
        mismatches=out["mismatches"].mask(unknown),
        suspects=_tuples(pd.Series([tuple(sorted(s)) for s in suspects.values()], index=out.index, dtype=object)),
    )


def _tuples(lists: pd.Series) -> pd.Series:
    """Lists of ranks; () where there is none."""
    return pd.Series([ranks if isinstance(ranks, tuple) else () for ranks in lists], index=lists.index, dtype=object)


def _ranks(entries: pd.DataFrame, calls: pd.DataFrame, absent: pd.DataFrame, groups: pd.DataFrame, dumped: list[int]) -> pd.DataFrame:
    """One row per rank."""
    everyone = sorted({*dumped, *(r for members in groups["members"] for r in members)})
    held = entries.groupby("rank")
    late = absent[absent["why"].eq("not_enqueued")]
    columns = {
        "entries": held.size(),
        "first_record": held["record"].min(),
        "last_record": held["record"].max(),
        "pending": calls[calls["pending"]].groupby("rank").size(),
        "groups_not_enqueued": late.groupby("rank")["gid"].nunique(),
        "groups_behind": calls[calls["behind"]].groupby("rank")["gid"].nunique(),
    }
    out = pd.DataFrame({"rank": everyone, "dump": [rank in set(dumped) for rank in everyone]}, index=everyone)
    for name, values in columns.items():
        column = values.reindex(everyone).astype("Int64")
        out[name] = column if name.endswith("record") else column.fillna(0).mask(~out["dump"])
    return out[RANKS].reset_index(drop=True)
