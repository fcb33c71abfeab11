"""Which calls of different ranks are one collective, and who waited for whom?

Calls belong together by group and sequence number. Where the number is not the group's (some backends count every call of the process, or
count waits too), the calls that it joins do not overlap in time while those that their order joins do: then the order decides.

For a collective that holds the calls of all its ranks, with ``latest`` the last start among them,

    wait_r = latest - start_r,   transfer_r = end_r - latest,   so   end_r - start_r = wait_r + transfer_r   exactly.

Rooted or tiny collectives may end on a rank before the last one arrives: that rank's two parts are unknown, never
negative. With ranks missing the wait is a lower bound and the transfer unknown, but no longer than what the ranks that are here show
(``transfer_upper_bound_ns``); a lone rank of a group knows neither part.
Definition after Holistic Trace Analysis and NVIDIA's NCCL Inspector, made exact. No Python loop runs over collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import integers
from tracekit.findings import finding
from tracekit.group_ranks import compact, ranks_in
from tracekit.job.topology import axis_column
from tracekit.vocabulary import Collective, Severity

#: Ends of one NCCL collective on its ranks differ by microseconds; a median beyond this means that clocks differ.
CLOCK_TOLERANCE_NS = 100_000

#: Share of a group's calls that must overlap in time for a way of matching them to be believed against another.
_MOST = 0.5

#: Kinds in which every rank waits for every other, so that the ends must agree.
_SYMMETRIC = [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.BARRIER]

_ATTRIBUTES = ["step", "time_source", "kind", "group", "group_desc", "group_ranks", "group_size", "seq", "dtype"]
_ATTRIBUTES += ["layer", "layer_last", "layer_source", "direction", "microbatch", "stage", "in_action"]

INSTANCES = ["instance", "capture", *_ATTRIBUTES, "axis", "nbytes", "transfer_ns", "transfer_upper_bound_ns", "wait_max_ns", "exposed_max_ns"]
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
    key, matched_by, unmatched, renumbered = _keys(calls)
    order = np.lexsort((calls["rank"].to_numpy(), key))
    rows = calls.iloc[order].reset_index(drop=True)
    key, how = key[order], matched_by[order]
    rows, skewed = _split(rows, key, missing)
    findings = _findings(unmatched, skewed, renumbered)
    firsts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.empty(0, np.int64)
    instances = _instances(rows, key, how[firsts])
    instances = instances.assign(axis=axis_column(instances, axis_of, described))[INSTANCES]
    rows["instance"] = instances["instance"].to_numpy(object)[key] if len(key) else pd.Series(dtype=object)
    start = rows["start_ns"].to_numpy()[firsts]
    at = np.lexsort((start, instances["capture"].to_numpy()))
    return Matched(instances.iloc[at].reset_index(drop=True), rows[BY_RANK], skewed, findings)


def _keys(calls: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, int, list[str]]:
    """Number of each call's collective (dense from 0), how it was found, how many calls could not be matched, and groups whose numbers are not theirs."""
    # a list of ranks that the trace cuts is the same on every rank of the group: it tells groups apart, if not who is in them
    group = pd.factorize(calls["group_ranks"].where(calls["group_ranks"].notna(), calls["group_cut"]))[0]
    seq, step = integers(calls["seq"]), integers(calls["step"])
    lone = (group < 0) | calls["kind"].eq(Collective.PEER_COPY).to_numpy()
    how = np.where(lone, "none", np.where(calls["inferred"].to_numpy(bool), "ends", np.where(seq >= 0, "sequence", "order"))).astype(object)
    frame = pd.DataFrame({"capture": calls["capture"].to_numpy(), "group": group, "name": pd.factorize(calls["group"])[0], "rank": calls["rank"].to_numpy()})
    # names keep groups of the same ranks apart; where each rank knows one group of these ranks, it is the same one whatever it is called there
    names = frame.groupby(["capture", "group", "rank"])["name"].transform("nunique").groupby([frame["capture"], frame["group"]]).transform("max")
    frame["name"] = frame["name"].where(names > 1, -1)
    key = _grouped(frame, how, seq, step)
    foreign = _not_by_sequence(calls, frame, how, key, _grouped(frame, np.where(how == "sequence", "order", how), seq, step))
    if foreign.any():
        how[foreign] = "order"
        key = _grouped(frame, how, seq, step)
    torn = _torn(frame, key, pd.factorize(calls["kind"])[0], np.isin(how, ["order", "ends"]))
    how[torn] = "none"
    alone = np.where(torn, key.max(initial=0) + 1 + np.arange(len(key)), key)
    return pd.factorize(alone)[0], how, int(torn.sum()), sorted(set(calls["group"].astype(str)[foreign]))


def _grouped(frame: pd.DataFrame, how: np.ndarray, seq: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Number of each call's collective when calls are matched as ``how`` says; fills ``by``, ``at`` and ``nth`` of the frame."""
    frame["by"] = np.select([how == "sequence", (how == "order") | (how == "ends")], [0, 1], 2)
    # an inferred group has its own exact order; steps cut differently on two ranks would only tear it
    frame["at"] = np.select([how == "sequence", how == "order"], [seq, step], -1)
    # the n-th call of one rank under the same key: the order itself, or a sequence number that began again
    frame["nth"] = frame.groupby(["capture", "group", "name", "by", "at", "rank"], sort=False).cumcount()
    frame.loc[frame["by"] == 2, "nth"] = np.arange(int((frame["by"] == 2).sum()))
    return np.asarray(frame.groupby(["capture", "group", "name", "by", "at", "nth"], sort=False).ngroup())


def _not_by_sequence(calls: pd.DataFrame, frame: pd.DataFrame, how: np.ndarray, by_sequence: np.ndarray, by_order: np.ndarray) -> np.ndarray:
    """Calls of groups whose sequence numbers join calls of different times, while their order joins calls of one time."""
    numbered = how == "sequence"
    share = [_overlapping(calls, frame, key, numbered) for key in (by_sequence, by_order)]
    out: np.ndarray = numbered & (share[0] < _MOST) & (share[1] >= _MOST)
    return out


def _overlapping(calls: pd.DataFrame, frame: pd.DataFrame, key: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Share of a group's calls that a key joins with all others of the collective at one time; of groups with one rank here, 1."""
    grouped = calls.groupby(key, sort=False)
    several = grouped["rank"].transform("size").gt(1)
    together = grouped["start_ns"].transform("max") < grouped["end_ns"].transform("min")
    groups = [frame["capture"], frame["group"], frame["name"]]
    ranks = frame["rank"].where(which).groupby(groups).transform("nunique").to_numpy()
    share = (several & together & which).groupby(groups).transform("sum").to_numpy() / np.maximum(
        pd.Series(which).groupby(groups).transform("sum").to_numpy(), 1
    )
    return np.where(ranks > 1, share, 1.0)


def _torn(frame: pd.DataFrame, key: np.ndarray, kind: np.ndarray, by_order: np.ndarray) -> np.ndarray:
    """Calls whose match is certainly wrong: different kinds under one key, or ranks with different numbers of calls where order decides."""
    kinds = pd.Series(np.where(kind < 0, np.nan, kind)).groupby(key)
    mixed = (kinds.transform("min") < kinds.transform("max")).to_numpy()
    where = [frame[c] for c in ("capture", "group", "name", "by", "at")]
    per_rank = frame.groupby(["capture", "group", "name", "by", "at", "rank"], sort=False)["nth"].transform("size")
    counts = per_rank.groupby(where, sort=False)
    uneven = (counts.transform("min") != counts.transform("max")).to_numpy() & by_order
    return np.asarray(mixed | uneven)


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
    # a copy to another GPU begins when it moves bytes: it waits for nobody; what a host's call waited for is not seen
    copies = rows["kind"].eq(Collective.PEER_COPY).to_numpy()
    wait_known = copies | (~bad & ~early & ((members > 1) | (size == 1)) & rows["time_source"].ne("host").to_numpy())
    transfer_known = copies | (wait_known & whole)
    rows = rows.assign(
        wait_ns=pd.arrays.IntegerArray(latest - start, ~wait_known),
        transfer_ns=pd.arrays.IntegerArray(end - latest, ~transfer_known),
        bound_ns=pd.arrays.IntegerArray(end - latest, early | (~copies & (bad | rows["time_source"].eq("host").to_numpy()))),
        members=members,
        partial=~whole & ~copies,
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
    usable = usable & rows["kind"].isin(_SYMMETRIC).to_numpy() & rows["device_type"].eq("gpu").to_numpy() & rows["time_source"].ne("host").to_numpy()
    where = [rows["capture"], rows["group_ranks"]]
    median = pd.Series(np.where(usable, spread, np.nan)).groupby(where, sort=False, dropna=False).transform("median")
    return (median > CLOCK_TOLERANCE_NS).to_numpy() & rows["group_ranks"].notna().to_numpy()


def _instances(rows: pd.DataFrame, key: np.ndarray, how: np.ndarray) -> pd.DataFrame:
    grouped = rows.groupby(key, sort=False)
    out = grouped[["capture", *_ATTRIBUTES]].first()
    # of an even number the lower of the two in the middle: a time that was measured, and the mean would carry the noise of the clocks
    transfer, bound = (grouped[c].quantile(0.5, interpolation="lower") for c in ("transfer_ns", "bound_ns"))
    known = ~grouped["early"].any() & grouped["transfer_ns"].count().gt(0)
    nbytes_low, nbytes_high = grouped["nbytes"].min(), grouped["nbytes"].max()
    # an uneven all-to-all has no single size; for the other kinds a rank that passes an empty buffer must not count
    uneven = out["kind"].eq(Collective.ALL_TO_ALL) & nbytes_low.ne(nbytes_high).fillna(False)
    out = out.assign(
        nbytes=nbytes_high.astype("Int64").mask(uneven.astype(bool)),
        transfer_ns=transfer.round().astype("Int64").mask(~known),
        transfer_upper_bound_ns=bound.round().astype("Int64").mask(grouped["early"].any()),
        wait_max_ns=grouped["wait_ns"].max().astype("Int64"),
        exposed_max_ns=grouped["exposed_ns"].max().astype("Int64"),
        matched_ranks=grouped["rank"].size().astype("int64"),
        wait_is_lower_bound=grouped["partial"].any().astype(bool),
        matched_by=how,
    )
    out["group_size"] = pd.arrays.IntegerArray(sizes := _sizes(out), sizes < 0)
    for column in ("kind", "time_source", "group", "group_desc", "group_ranks", "dtype", "layer", "layer_last", "layer_source", "direction"):
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


def _findings(unmatched: int, skewed: frozenset[int], renumbered: list[str]) -> tuple[dict[str, Any], ...]:
    out = []
    if unmatched:
        text = f"{unmatched} collective calls could not be matched over ranks (their groups' ranks differ in number or kind of calls): their waits are unknown"
        out.append(("collectives_unmatched", text, unmatched))
    if renumbered:
        text = (
            f"sequence numbers of process groups {', '.join(renumbered[:5])} are not counted per group: they join calls of different times on different ranks. "
            "Their calls were matched by order within group and step"
        )
        out.append(("sequence_not_per_group", text, len(renumbered)))
    if skewed:
        text = f"collectives of ranks {compact(skewed)} do not end together: their clocks differ, so waits and transfers between them are unknown"
        out.append(("clocks_not_aligned", text, len(skewed)))
    return tuple(finding(code, Severity.WARNING, text, count=count) for code, text, count in out)
