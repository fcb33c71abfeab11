"""Which calls of different ranks are one collective, and who waited for whom?

For a collective that holds the calls of all its ranks, with ``latest`` the last start among them,

    wait_r = latest - start_r,   transfer_r = end_r - latest,   so   end_r - start_r = wait_r + transfer_r   exactly.

Rooted or tiny collectives may end on a rank before the last one arrives: that rank's two parts are unknown, never
negative. With ranks missing the wait is a lower bound and the transfer unknown; a lone rank of a group knows neither.
Definition after Holistic Trace Analysis and NVIDIA's NCCL Inspector, made exact. No Python loop runs over collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import integers
from tracekit.job.topology import axis_column, compact, ranks_in
from tracekit.vocabulary import Collective, Severity

#: Ends of one NCCL collective on its ranks differ by microseconds; a median beyond this means that clocks differ.
CLOCK_TOLERANCE_NS = 100_000

#: Kinds in which every rank waits for every other, so that the ends must agree.
_SYMMETRIC = [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.BARRIER]

_ATTRIBUTES = ["step", "kind", "group", "group_desc", "group_ranks", "group_size", "seq", "dtype"]
_ATTRIBUTES += ["layer", "layer_last", "layer_source", "direction", "microbatch", "stage", "in_action"]

INSTANCES = ["instance", "capture", *_ATTRIBUTES, "axis", "nbytes", "transfer_ns", "wait_max_ns", "exposed_max_ns"]
INSTANCES += ["matched_ranks", "wait_is_lower_bound", "matched_by"]
BY_RANK = ["instance", "rank", "start_ns", "end_ns", "wait_ns", "transfer_ns", "exposed_ns", "nbytes"]


@dataclass(frozen=True)
class Matched:
    """Collectives matched over ranks.

    Attributes:
        instances: one row per collective, columns ``INSTANCES``. ``matched_by`` says how its calls were found to belong
            together: ``sequence`` (group and sequence number), ``order`` (group and order within the step), ``ends``
            (group inferred from common ends), or ``none`` (nothing links the call to another rank's).
        by_rank: its calls, columns ``BY_RANK``.
        skewed: ranks whose clocks cannot agree with those of their groups; their waits and transfers are unknown.
        findings: rows of ``schema.FINDINGS`` as dicts.
    """

    instances: pd.DataFrame
    by_rank: pd.DataFrame
    skewed: frozenset[int] = frozenset()
    findings: tuple[Mapping[str, Any], ...] = ()


def match(calls: pd.DataFrame, axis_of: Mapping[str, str], described: frozenset[str] = frozenset(), missing: int = 0) -> Matched:
    """Match the collective calls of all ranks.

    Args:
        calls: the ``calls`` fact of all ranks with ``rank``, ``capture``, ``inferred`` (its group was inferred) and
            ``device_type``.
        axis_of: rank list -> mesh axis.
        described: rank lists of groups whose own description names their axis.
        missing: number of ranks of the job that have no trace; a group that was inferred may then have lost some.
    """
    calls = calls.sort_values(["capture", "rank", "start_ns", "end_ns"], kind="stable").reset_index(drop=True)
    key, matched_by, unmatched = _keys(calls)
    order = np.lexsort((calls["rank"].to_numpy(), key))
    rows = calls.iloc[order].reset_index(drop=True)
    key, how = key[order], matched_by[order]
    rows, skewed = _split(rows, key, missing)
    findings = _findings(unmatched, skewed)
    firsts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.empty(0, np.int64)
    instances = _instances(rows, key, how[firsts])
    instances = instances.assign(axis=axis_column(instances, axis_of, described))[INSTANCES]
    rows["instance"] = instances["instance"].to_numpy(object)[key] if len(key) else pd.Series(dtype=object)
    start = rows["start_ns"].to_numpy()[firsts]
    at = np.lexsort((start, instances["capture"].to_numpy()))
    return Matched(instances.iloc[at].reset_index(drop=True), rows[BY_RANK], skewed, findings)


def _keys(calls: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, int]:
    """Number of each call's collective (dense from 0), how it was found, and how many calls could not be matched."""
    group = pd.factorize(calls["group_ranks"])[0]
    name = pd.factorize(calls["group"])[0]
    seq = integers(calls["seq"])
    step = integers(calls["step"])
    how = np.where(group < 0, "none", np.where(calls["inferred"].to_numpy(bool), "ends", np.where(seq >= 0, "sequence", "order"))).astype(object)
    by_seq, by_order = how == "sequence", (how == "order") | (how == "ends")
    frame = pd.DataFrame({"capture": calls["capture"].to_numpy(), "group": group, "name": name})
    frame["by"] = np.select([by_seq, by_order], [0, 1], 2)
    # an inferred group has its own exact order; steps cut differently on two ranks would only tear it
    frame["at"] = np.select([by_seq, how == "order"], [seq, step], -1)
    frame["rank"] = calls["rank"].to_numpy()
    # the n-th call of one rank under the same key: the order itself, or a sequence number that began again
    frame["nth"] = frame.groupby(["capture", "group", "name", "by", "at", "rank"], sort=False).cumcount()
    frame.loc[frame["by"] == 2, "nth"] = np.arange(int((frame["by"] == 2).sum()))
    key = frame.groupby(["capture", "group", "name", "by", "at", "nth"], sort=False).ngroup().to_numpy()
    torn = _torn(frame, key, pd.factorize(calls["kind"])[0])
    how[torn] = "none"
    alone = np.where(torn, key.max(initial=0) + 1 + np.arange(len(key)), key)
    return pd.factorize(alone)[0], how, int(torn.sum())


def _torn(frame: pd.DataFrame, key: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Calls whose match is certainly wrong: different kinds under one key, or ranks with different numbers of calls where order decides."""
    kinds = pd.Series(kind).groupby(key)
    mixed = (kinds.transform("min") != kinds.transform("max")).to_numpy()
    where = [frame[c] for c in ("capture", "group", "name", "by", "at")]
    per_rank = frame.groupby(["capture", "group", "name", "by", "at", "rank"], sort=False)["nth"].transform("size")
    counts = per_rank.groupby(where, sort=False)
    uneven = (counts.transform("min") != counts.transform("max")).to_numpy() & (frame["by"] == 1).to_numpy()
    return mixed | uneven


def _split(rows: pd.DataFrame, key: np.ndarray, missing: int) -> tuple[pd.DataFrame, frozenset[int]]:
    """Divide each call into wait and transfer; rows are sorted by collective and rank."""
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    grouped = rows.groupby(key, sort=False)
    latest = grouped["start_ns"].transform("max").to_numpy()
    members = grouped["rank"].transform("size").to_numpy()
    size = _sizes(rows)
    whole = (members == size) & ~(rows["inferred"].to_numpy(bool) & (missing > 0))
    spread = (grouped["end_ns"].transform("max") - grouped["end_ns"].transform("min")).to_numpy()
    bad = _skewed_groups(rows, spread, whole & (members > 1))
    skewed = frozenset(rows["rank"].to_numpy()[bad].tolist())
    early = end < latest
    wait_known = ~bad & ~early & ((members > 1) | (size == 1))
    transfer_known = wait_known & whole
    rows = rows.assign(
        wait_ns=pd.arrays.IntegerArray(latest - start, ~wait_known),
        transfer_ns=pd.arrays.IntegerArray(end - latest, ~transfer_known),
        members=members,
        partial=~whole,
        early=early,
    )
    return rows, skewed


def _sizes(rows: pd.DataFrame) -> np.ndarray:
    """Ranks in each call's group; -1 where unknown."""
    codes, lists = pd.factorize(rows["group_ranks"])
    listed = np.array([*(ranks_in(r) for r in lists), -1], np.int64)[codes]
    return np.where(listed > 0, listed, integers(rows["group_size"]))


def _skewed_groups(rows: pd.DataFrame, spread: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Calls of groups on GPUs whose symmetric collectives do not end together: their clocks differ."""
    usable = usable & rows["kind"].isin(_SYMMETRIC).to_numpy() & rows["device_type"].eq("gpu").to_numpy()
    where = [rows["capture"], rows["group_ranks"]]
    median = pd.Series(np.where(usable, spread, np.nan)).groupby(where, sort=False, dropna=False).transform("median")
    return (median > CLOCK_TOLERANCE_NS).to_numpy() & rows["group_ranks"].notna().to_numpy()


def _instances(rows: pd.DataFrame, key: np.ndarray, how: np.ndarray) -> pd.DataFrame:
    grouped = rows.groupby(key, sort=False)
    out = grouped[["capture", *_ATTRIBUTES]].first()
    transfer = grouped["transfer_ns"].median()
    known = ~grouped["early"].any() & grouped["transfer_ns"].count().gt(0)
    nbytes_low, nbytes_high = grouped["nbytes"].min(), grouped["nbytes"].max()
    # an uneven all-to-all has no single size; for the other kinds a rank that passes an empty buffer must not count
    uneven = out["kind"].eq(Collective.ALL_TO_ALL) & nbytes_low.ne(nbytes_high).fillna(False)
    out = out.assign(
        nbytes=nbytes_high.astype("Int64").mask(uneven.astype(bool)),
        transfer_ns=transfer.round().astype("Int64").mask(~known),
        wait_max_ns=grouped["wait_ns"].max().astype("Int64"),
        exposed_max_ns=grouped["exposed_ns"].max().astype("Int64"),
        matched_ranks=grouped["rank"].size().astype("int64"),
        wait_is_lower_bound=grouped["partial"].any().astype(bool),
        matched_by=how,
    )
    out["group_size"] = pd.arrays.IntegerArray(sizes := _sizes(out), sizes < 0)
    for column in ("group", "group_desc", "group_ranks", "dtype", "layer", "layer_last", "layer_source", "direction"):
        out[column] = out[column].astype(object).where(out[column].notna(), None)
    return out.assign(instance=_names(out, grouped["rank"].first()))


def _names(instances: pd.DataFrame, first_rank: pd.Series) -> np.ndarray:
    """A readable key per collective, unique within the job: group[ranks]#sequence, with the capture where there are several."""
    pairs = instances[["group", "group_ranks"]].drop_duplicates()
    label = {
        (name, ranks): f"{name if isinstance(name, str) else '?'}[{compact(map(int, ranks.split(','))) if isinstance(ranks, str) else '?'}]"
        for name, ranks in pairs.itertuples(index=False)
    }
    labels = pd.Series([label[p] for p in zip(instances["group"], instances["group_ranks"], strict=True)], dtype=object)
    capture = instances["capture"].reset_index(drop=True)
    several = capture.nunique() > 1
    lone = instances["matched_by"].eq("none").to_numpy()
    labels = labels.where(~lone, labels + "@" + first_rank.reset_index(drop=True).astype("int64").astype(str).astype(object))
    if several:
        labels = "c" + capture.astype(str).astype(object) + "/" + labels
    seq = instances["seq"].reset_index(drop=True)
    order = labels.groupby(labels.to_numpy()).cumcount()
    base = labels + "#" + seq.astype(object).where(seq.notna(), "o" + order.astype(str).astype(object)).astype(str).astype(object)
    again = base.groupby(base.to_numpy()).cumcount()
    return np.asarray(base.where(again == 0, base + "." + again.astype(str).astype(object)).to_numpy(object))


def _findings(unmatched: int, skewed: frozenset[int]) -> tuple[dict[str, Any], ...]:
    out = []
    if unmatched:
        text = f"{unmatched} collective calls could not be matched over ranks (their groups' ranks differ in number or kind of calls): their waits are unknown"
        out.append(("collectives_unmatched", text, unmatched))
    if skewed:
        text = f"collectives of ranks {compact(skewed)} do not end together: their clocks differ, so waits and transfers between them are unknown"
        out.append(("clocks_not_aligned", text, len(skewed)))
    where = {"file": None, "rank": None, "offset": None}
    return tuple({"code": code, "severity": str(Severity.WARNING), "message": text, "count": count, **where} for code, text, count in out)
