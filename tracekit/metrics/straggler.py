"""Which rank do the others wait for, and what makes it late?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import choose
from tracekit.job.base import Job
from tracekit.job.lateness import arrivals, late_ranks
from tracekit.metrics.base import Metric, Result, unavailable

#: A rank stands out by one of these: being last so often has less than this chance, over all ranks, if every rank were last as often; it
#: caused at least this much of the way from its share by chance to all of its groups' caused waiting; and its leads add up to at least this
#: share of the time that was looked at. The first needs a long recording, the second a large effect.
LEVELS = ((1e-4, 1 / 3, 0.005), (0.02, 3 / 4, 0.02))
#: Where uneven tokens cause at least this share of all waiting and so much of the time, the rank most often late by them is named, if that
#: is more often than so many times its share by chance.
TOKENS, TOKENS_MATERIAL, TOKENS_OFTEN = 0.5, 0.005, 1.25
_CAUSES = ("slow_compute", "late_launch", "token_imbalance", "waits_elsewhere", "unknown")


def compute(job: Job) -> Result:
    """Last arrivals, lateness and caused waits per rank; the rank that stands out, if one does, and its cause."""
    if not len(job.instances):
        return unavailable("no collective was recorded: there is nothing to be late for")
    came = arrivals(job)
    if not len(came):
        return unavailable(
            "no collective has all its ranks here and known waits: give the traces of all ranks of a group that does the same work (tp, dp, cp, ep)"
        )
    late = late_ranks(job, came)
    steady = late["step"].isin(job.steady_steps)
    if steady.any():
        late = late[steady]
        came = came[came["step"].isin(job.steady_steps)]
    ranks = _ranks(job, came, late)
    chosen, notes = _stands_out(came, late, ranks)
    summary = _summary(ranks, late, chosen)
    return Result(summary, {"ranks": ranks.drop(columns="probability"), "instances": late.reset_index(drop=True)}, notes=tuple(notes))


def _ranks(job: Job, came: pd.DataFrame, late: pd.DataFrame) -> pd.DataFrame:
    """One row per rank that came to any of these collectives."""
    by_rank = came.groupby("rank")
    last = late[late["last_rank"].notna()].astype({"last_rank": "int64"})
    by_last = last.groupby("last_rank")
    causes = last.groupby(["last_rank", "cause"])["caused_wait_ns"].sum().unstack(fill_value=0).reindex(columns=list(_CAUSES), fill_value=0)
    table = pd.DataFrame({"collectives": by_rank.size(), "lateness_mean_ns": by_rank["lateness_ns"].mean()})
    # what its groups lost in all, and how often it would be last if all were alike
    told = came.merge(last[["instance", "caused_wait_ns", "last_rank"]], on="instance")
    chance = (1 / told["ranks"]).groupby(told["rank"])
    table["told"] = told.groupby("rank").size().reindex(table.index, fill_value=0)
    table["last_arrivals"] = by_last.size().reindex(table.index, fill_value=0)
    for name, source in (("lateness_total_ns", "lead_ns"), ("caused_wait_ns", "caused_wait_ns")):
        table[name] = by_last[source].sum().reindex(table.index, fill_value=0).astype("int64")
    table["group_wait_ns"] = told.groupby("rank")["caused_wait_ns"].sum().reindex(table.index, fill_value=0).astype("int64")
    table["expected_last_arrivals"] = chance.sum().reindex(table.index, fill_value=0.0)
    table["expected_wait_ns"] = (told["caused_wait_ns"] / told["ranks"]).groupby(told["rank"]).sum().reindex(table.index, fill_value=0.0)
    for cause in _CAUSES:
        table[f"{cause}_ns"] = causes[cause].reindex(table.index, fill_value=0).astype("int64")
    amounts = table[[f"{cause}_ns" for cause in _CAUSES]].to_numpy(np.int64)
    main = choose(amounts.max(axis=1) > 0, np.array(_CAUSES, object)[amounts.argmax(axis=1)], None)
    table["cause"] = pd.Series(main, index=table.index, dtype=object)
    held = last[last["cause"].eq("waits_elsewhere") & last["waits_for"].notna()]
    most = held.groupby(["last_rank", "waits_for"])["caused_wait_ns"].sum().reset_index().sort_values("caused_wait_ns", kind="stable")
    table["waits_for"] = most.drop_duplicates("last_rank", keep="last").set_index("last_rank")["waits_for"].reindex(table.index).astype("Int64")
    held_up = table[table["cause"].eq("waits_elsewhere") & table["waits_for"].notna()]
    waits = dict(zip(held_up.index.tolist(), held_up["waits_for"].astype("int64").tolist(), strict=True))
    roots = {int(rank): _root(waits, int(rank)) for rank in table.index}
    table["root_rank"] = pd.array(list(roots.values()), "Int64")
    # what it caused itself, and what others that waited for it passed on
    held_by = last["waits_for"].where(last["cause"].eq("waits_elsewhere")).fillna(last["last_rank"]).astype("int64")
    own = last["cause"].ne("waits_elsewhere") | last["waits_for"].isna()
    passed = last.assign(root=held_by.where(own, held_by.map(lambda rank: roots.get(rank, rank))))
    table["root_caused_wait_ns"] = passed.groupby("root")["caused_wait_ns"].sum().reindex(table.index, fill_value=0).astype("int64")
    table["probability"] = [_chance(n, k, e) for n, k, e in table[["told", "last_arrivals", "expected_last_arrivals"]].itertuples(index=False)]
    return table.reset_index()


def _root(waits: dict[int, int], rank: int) -> int:
    """Where the chain of ranks that wait for another one ends; the rank itself where it runs in a circle."""
    seen, at = {rank}, rank
    while at in waits:
        at = waits[at]
        if at in seen:
            return rank
        seen.add(at)
    return at


def _chance(n: int, k: int, expected: float) -> float:
    """Chance to be last at least ``k`` of ``n`` times, were every rank as likely: the binomial tail, which bounds that of unequal chances.

    Hoeffding, "On the distribution of the number of successes in independent trials", 1956; it holds above the mean plus 1.
    """
    if n == 0 or k < expected + 1:
        return 1.0
    mean = expected / n
    term = math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(mean) + (n - k) * math.log1p(-mean)) if mean < 1 else 1.0
    total = term
    while k < n and term > 1e-6 * total:
        term *= (n - k) / (k + 1) * mean / (1 - mean)
        total, k = total + term, k + 1
    return min(total, 1.0)


def _stands_out(came: pd.DataFrame, late: pd.DataFrame, ranks: pd.DataFrame) -> tuple[tuple[int, str] | None, list[str]]:
    """The rank to blame and its cause, or None; and what else is to be said."""
    tokens = late[late["cause"].eq("token_imbalance")]
    total, span = int(late["caused_wait_ns"].sum()), int(_span(came))
    if total and tokens["caused_wait_ns"].sum() >= TOKENS * total and tokens["lead_ns"].sum() >= TOKENS_MATERIAL * span:
        counts = tokens.groupby("last_rank").agg(times=("lead_ns", "size"), wait=("caused_wait_ns", "sum")).sort_values(["times", "wait"])
        if counts["times"].iloc[-1] > TOKENS_OFTEN * len(tokens) / tokens["ranks"].median():
            return (int(counts.index[-1]), "token_imbalance"), []
    rest = ranks["group_wait_ns"] - ranks["expected_wait_ns"]
    far = (ranks["caused_wait_ns"] - ranks["expected_wait_ns"]) / rest.where(rest.gt(0))
    each = [ranks["probability"].mul(len(ranks)).lt(chance) & far.ge(share) & ranks["lateness_total_ns"].ge(part * span) for chance, share, part in LEVELS]
    found = ranks[each[0] | each[1]]
    if not len(found):
        return None, []
    root = int(found.groupby("root_rank")["caused_wait_ns"].sum().sort_values(kind="stable").index[-1])
    causes: dict[int, Any] = dict(zip(ranks["rank"], ranks["cause"], strict=True))
    if root in causes:
        return (root, causes[root] or "unknown"), []
    late_one = int(found.loc[found["root_rank"].eq(root)].sort_values("caused_wait_ns", kind="stable")["rank"].iloc[-1])
    return (late_one, "waits_elsewhere"), [f"Rank {late_one} is late because it waits for rank {root}, of which no such collective is here."]


def _span(came: pd.DataFrame) -> int:
    """Time from the first arrival to the last end, over all captures."""
    by_capture = came.groupby("capture")
    return int((by_capture["end_ns"].max() - by_capture["start_ns"].min()).sum())


def _summary(ranks: pd.DataFrame, late: pd.DataFrame, chosen: tuple[int, str] | None) -> dict[str, Any]:
    rank, cause = chosen or (None, None)
    found = ranks[ranks["rank"].eq(rank)] if rank is not None else ranks.iloc[:0]
    one: dict[Any, Any] = found.iloc[0].to_dict() if len(found) else {}
    return {
        "rank": rank,
        "cause": cause,
        **{name: int(one[name]) if one else None for name in ("lateness_total_ns", "caused_wait_ns", "root_caused_wait_ns", "last_arrivals")},
        "last_arrival_ratio": int(one["last_arrivals"]) / int(one["told"]) if one and one["told"] else None,
        "collectives": len(late),
        "undecided_collectives": int(late["last_rank"].isna().sum()),
        "caused_wait_total_ns": int(late["caused_wait_ns"].sum()),
        **{f"{name}_wait_ns": int(late.loc[late["cause"].eq(name), "caused_wait_ns"].sum()) for name in _CAUSES},
    }


METRIC = Metric(
    name="straggler",
    title="Stragglers",
    question="Which rank do the others wait for, and what makes it late?",
    definition=(
        "Over the collectives of ranks that do the same work (in a pipeline: tp, dp, cp, ep groups), all present, in steady steps. lateness = start - median "
        "start of the ranks; the last rank leads by its start minus the second last's, and caused_wait = lead x (ranks - 1), the waiting that would not have "
        "been had it come with the second; a lead below wait_resolution_ns has no last rank. Cause of a late arrival: what the rank had more of than the "
        "median of the others since their previous collective: compute (slow_compute), idle device (late_launch), time in other groups' calls (waits_elsewhere"
        ", followed over waits_for to the root_rank), or the most bytes of an uneven all-to-all by 1.2 (token_imbalance); a rank's cause is the one with the "
        "most caused wait. A rank stands out when being last so often has a chance below 1e-4 over all ranks (binomial, every rank equally likely), "
        "when it caused a third of the way from its share by chance to all of its groups' caused waiting, and when its leads add up to 0.5 % of the time; "
        "or, in a short recording, 2 %, three quarters and 2 %; then the root of its chain is named. "
        "Where uneven tokens cause half of the waiting, the rank most often late by them is named."
    ),
    compute=compute,
)
