"""How far is each rank's clock from the reference rank's, and how well is that known?

The ranks of an all-reduce, all-gather, reduce-scatter, all-to-all or barrier wait for each other, so the call ends on all of them at
once: its ends are one moment read off several clocks (``job.clock_fit``). Only calls that were matched without clocks count,
by sequence number or by order within their group; what was matched by common ends would prove itself. A send and its receive on
GPUs end together too, unless the bytes were buffered; where they go both ways between two ranks, the lag that buffering leaves
shows, and only ends without one count. Where nothing better links two ranks, causality does: a receive cannot end before its send
began, which bounds the difference from both sides.
Ranks that nothing links are a component of their own: no time of theirs can be compared with the others'.

Every rank's clock is set against that of the lowest rank of its component. On one host there is one clock: processes on CPUs share
it, GPUs differ by the microseconds of their timers; offsets below ``SAME_HOST_NS`` are taken as 0 there, and everywhere below
what the ends spread by. One capture at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.findings import finding
from tracekit.group_ranks import compact
from tracekit.job.clock_fit import FEW, Ints, fit
from tracekit.trace import RankFacts
from tracekit.vocabulary import Collective, Severity
from tracekit.wording import duration

#: Kinds in which every rank waits for every other, so that the ends must agree.
SYMMETRIC = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.BARRIER)
#: Fewer than ``FEW`` common ends move no clock by less: ends may differ by chance.
FEW_ENDS_NS = 100_000
#: On one host a GPU's timer is set by the host's clock, to some microseconds.
SAME_HOST_NS = 20_000
#: An offset beyond this is worth a warning: waits that do not take it into account are wrong.
WARN_NS = 100_000

CLOCKS = {
    "capture": "int64",
    "rank": "int64",
    "clock": "int64",
    "reference_rank": "int64",
    "origin_ns": "int64",
    "offset_ns": "int64",
    "drift_ppm": "Float64",
    "residual_ns": "Int64",
    "moments": "int64",
    "source": "object",
}
_MOMENTS = ["group", "instance", "clock", "at_ns"]


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks.

    Attributes:
        table: one row per capture and rank, columns ``CLOCKS``: clock (the lowest rank that reads the very same clock),
            reference_rank (the lowest rank that its clock is linked with),
            offset_ns (its clock minus the reference rank's, at origin_ns on the latter; 0 where it cannot be told from 0), drift_ppm
            (how much faster it runs; 0 likewise, null where the recording cannot tell), residual_ns (robust standard deviation of
            its ends after correction; null where a single moment links it), moments (how many common moments it read), source (what
            linked it: reference, collectives, sends, bounds, ends (calls matched by their common ends: it agrees), host, or none).
        findings: rows of ``schema.FINDINGS`` as dicts.
    """

    table: pd.DataFrame
    findings: tuple[Mapping[str, Any], ...] = ()


def align(ranks: Mapping[tuple[int, int], RankFacts], instances: pd.DataFrame, by_rank: pd.DataFrame, p2p: pd.DataFrame) -> Clocks:
    """Set every rank's clock against its reference rank's.

    Args:
        ranks: facts per (rank, capture), for their hosts and devices.
        instances: matched collectives on the clocks as recorded (``job.matching``).
        by_rank: their calls.
        p2p: sends with their receives (``job.p2p``).
    """
    parts = []
    for capture in sorted({capture for _, capture in ranks}):
        here = {rank: facts for (rank, number), facts in ranks.items() if number == capture}
        calls = instances[instances["capture"].eq(capture)] if len(instances) else instances
        sent = p2p[p2p["capture"].eq(capture)] if len(p2p) else p2p
        parts.append(_capture(here, calls, by_rank, sent).assign(capture=capture))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(CLOCKS))
    table = table[list(CLOCKS)].astype(CLOCKS)
    # a log or dump without slices has no times that would have to be compared
    hosts = {rank: f.meta.host for (rank, _), f in ranks.items() if f["extent"]["events"].gt(0).any() or len(f["calls"]) or len(f["p2p_calls"])}
    return Clocks(table, tuple(_findings(table, hosts)))


def with_resolution(instances: pd.DataFrame, by_rank: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Aligned instances with ``wait_resolution_ns``: a wait below it cannot be told from none.

    It is the robust standard deviation of the ends in the instance's own group, which should be one moment; for groups without
    symmetric collectives the largest residual of their ranks' clocks. 0 where all ranks read one clock, null where nothing tells.
    """
    if not len(instances):
        return instances.assign(wait_resolution_ns=pd.array([], "Int64"))
    number = pd.Series(np.arange(len(instances)), index=instances["instance"].to_numpy())
    at = number.loc[by_rank["instance"]].to_numpy()
    place = pd.MultiIndex.from_arrays([instances["capture"].to_numpy()[at], by_rank["rank"]])
    clock = table.set_index(["capture", "rank"])[["clock", "residual_ns"]].reindex(place)
    spread = _spread(instances, by_rank["end_ns"].to_numpy(np.int64), at)
    grouped = clock.reset_index(drop=True).groupby(at)
    residual = grouped["residual_ns"].max().astype("Float64").mask(grouped["residual_ns"].count() < grouped.size())
    resolution = pd.Series(spread).astype("Float64").fillna(residual.reset_index(drop=True)).mask(grouped["clock"].nunique().eq(1).to_numpy(), 0)
    return instances.assign(wait_resolution_ns=pd.array(np.ceil(resolution), "Int64"))


def _spread(instances: pd.DataFrame, end_ns: Ints, at: Ints) -> np.ndarray:
    """Spread of the ends of each instance's group, NaN where its symmetric collectives are fewer than two."""
    tells = (instances["kind"].isin(SYMMETRIC) & instances["matched_ranks"].gt(1) & instances["time_source"].ne("host")).to_numpy()
    group = instances.groupby(["capture", "group", "group_ranks"], sort=False, dropna=False).ngroup().to_numpy()
    first = pd.Series(end_ns).groupby(at).transform("min").to_numpy()
    late = pd.Series((end_ns - first).astype(np.float64)).groupby(at)
    size = late.transform("size").to_numpy()
    apart = (late.transform("median").to_numpy() - (end_ns - first)) * np.sqrt(size / np.maximum(size - 1, 1))
    chosen = pd.Series(np.abs(apart))[tells[at]].groupby(group[at][tells[at]])
    count = pd.Series(tells).groupby(group).sum()
    value = (1.4826 * chosen.median()).where(count.reindex(chosen.median().index) >= FEW, chosen.max())
    return np.asarray(value[count >= 2].reindex(group).to_numpy(np.float64))


def comparable(p2p: pd.DataFrame, table: pd.DataFrame, ranks: Mapping[tuple[int, int], RankFacts]) -> pd.DataFrame:
    """Sends and receives with ``wait_resolution_ns``, their waits and transfers null where nothing links the clocks of two hosts."""
    if not len(p2p):
        return p2p.assign(wait_resolution_ns=pd.array([], "Int64"))
    clock = table.set_index(["capture", "rank"])
    sides = [clock.reindex(pd.MultiIndex.from_frame(p2p[["capture", who]])) for who in ("src", "dst")]
    apart = (sides[0]["reference_rank"].to_numpy() != sides[1]["reference_rank"].to_numpy()) & p2p["matched_by"].ne("none").to_numpy()
    hosts = {key: facts.meta.host for key, facts in ranks.items()}
    first, second = ([hosts.get((r, c)) for r, c in zip(p2p[who], p2p["capture"], strict=True)] for who in ("src", "dst"))
    apart &= np.array([a is not None and b is not None and a != b for a, b in zip(first, second, strict=True)], bool)
    both = pd.concat([side["residual_ns"].reset_index(drop=True) for side in sides], axis=1).astype("Float64")
    worst = both.max(axis=1, skipna=False).astype("Int64").set_axis(p2p.index)
    unknown = {c: p2p[c].mask(apart) for c in ("transfer_ns", "transfer_upper_bound_ns", "send_wait_ns", "recv_wait_ns")}
    return p2p.assign(**unknown, wait_resolution_ns=worst.mask(apart))


def _capture(ranks: Mapping[int, RankFacts], instances: pd.DataFrame, by_rank: pd.DataFrame, p2p: pd.DataFrame) -> pd.DataFrame:
    """One row per rank of a capture."""
    numbers = sorted(ranks)
    hosts = [ranks[r].meta.host for r in numbers]
    shared = [ranks[r].meta.device_type == "cpu" for r in numbers]
    # processes on the CPUs of one host read one clock; where no host is named, they are taken to run on one
    names = [("host", h) if cpu else ("rank", r) for r, h, cpu in zip(numbers, hosts, shared, strict=True)]
    clock = pd.factorize(pd.Series(names, dtype=object))[0].astype(np.int64)
    of_rank = dict(zip(numbers, clock.tolist(), strict=True))
    evidence = [_ends(instances, by_rank, of_rank)]
    parts = _components(evidence, int(clock.max()) + 1)
    evidence += _messages(p2p, of_rank, parts, gpu=not any(shared))
    measured = _components(evidence, len(parts))
    # calls that were matched by their common ends show that clocks agree, and nothing finer
    evidence.append(_between(_ends(instances, by_rank, of_rank, by=("ends",)), measured))
    evidence.append(_host_links(hosts, clock, _components(evidence, len(parts)), evidence))
    rows = pd.concat(_numbered(evidence), ignore_index=True)
    home = dict(zip(reversed(clock.tolist()), reversed(hosts), strict=True))
    reference = _components([rows], len(parts))
    near = [home[c] is not None and home[c] == home[r] for c, r in enumerate(reference.tolist())]
    floor = np.where(np.array(near) | (measured != measured[reference]), SAME_HOST_NS, 0)
    group, instance, number, at = (rows[c].to_numpy(np.int64) for c in _MOMENTS)
    found = fit(group, instance, number, at, floor.astype(np.float64), FEW_ENDS_NS)
    first_rank = np.array(numbers, np.int64)[np.unique(clock, return_index=True)[1]]
    via = rows.drop_duplicates("group").set_index("group")["source"].to_dict() if len(rows) else {}
    alone = found.reference == np.arange(len(floor))
    several = np.bincount(clock, minlength=len(floor)) > 1
    linked = np.bincount(found.reference, minlength=len(floor)) > 1
    source = [via.get(int(g), "none") for g in found.via]
    source = ["reference" if lone and (linked[c] or several[c]) else text for c, (text, lone) in enumerate(zip(source, alone, strict=True))]
    residual = pd.arrays.IntegerArray(np.ceil(np.nan_to_num(found.residual_ns)).astype(np.int64), np.isnan(found.residual_ns))
    # one clock, read by all its ranks: nothing is uncertain
    residual[np.flatnonzero(several & alone & ~linked)] = 0
    table = pd.DataFrame(
        {
            "clock": first_rank,
            "reference_rank": first_rank[found.reference],
            "origin_ns": found.origin_ns,
            "offset_ns": found.offset_ns,
            "drift_ppm": pd.array(found.drift * 1e6, "Float64"),
            "residual_ns": residual,
            "moments": found.moments,
            "source": source,
        }
    )
    return table.iloc[clock].reset_index(drop=True).assign(rank=numbers)


def _ends(instances: pd.DataFrame, by_rank: pd.DataFrame, of_rank: Mapping[int, int], by: tuple[str, ...] = ("sequence", "order")) -> pd.DataFrame:
    """Ends of the symmetric collectives of several ranks that were matched by one of these means."""
    source = "ends" if by == ("ends",) else "collectives"
    if not len(instances):
        return _none(source)
    tells = instances["kind"].isin(SYMMETRIC) & instances["matched_by"].isin(by) & instances["matched_ranks"].gt(1)
    tells &= instances["time_source"].ne("host")
    kept = instances[tells]
    group = kept.groupby(["group", "group_ranks"], sort=False, dropna=False).ngroup().to_numpy()
    about = pd.DataFrame({"instance": kept["instance"], "group": group, "number": np.arange(len(kept))})
    rows = by_rank[["instance", "rank", "end_ns"]].merge(about, on="instance")
    rows = pd.DataFrame({"group": rows["group"], "instance": rows["number"], "clock": rows["rank"].map(of_rank), "at_ns": rows["end_ns"]})
    # ranks that share a clock are one reading: their median
    if rows.duplicated(["instance", "clock"]).any():
        base = rows.groupby("instance")["at_ns"].transform("min")
        again = rows.assign(at_ns=rows["at_ns"] - base, base=base).groupby(["group", "instance", "clock"], as_index=False)[["at_ns", "base"]].median()
        rows = again.assign(at_ns=again["at_ns"].astype("int64") + again["base"].astype("int64")).drop(columns="base")
    return rows.assign(source=source)


def _between(moments: pd.DataFrame, parts: Ints) -> pd.DataFrame:
    """The moments of groups whose clocks nothing else links with each other."""
    if not len(moments):
        return moments
    of = pd.Series(parts[moments["clock"].to_numpy(np.int64)], index=moments.index)
    return moments[of.groupby(moments["group"]).transform("nunique").gt(1)]


def _messages(p2p: pd.DataFrame, of_rank: Mapping[int, int], parts: Ints, gpu: bool) -> list[pd.DataFrame]:
    """Moments from sends and receives between two clocks that go both ways: common ends, or bounds where nothing else links the two."""
    if not len(p2p):
        return []
    times = ["send_start_ns", "send_end_ns", "recv_start_ns", "recv_end_ns"]
    rows = p2p[p2p[times].notna().all(axis=1) & p2p["time_source"].ne("host") & p2p["src"].isin(of_rank) & p2p["dst"].isin(of_rank)]
    rows = pd.DataFrame({"src": rows["src"].map(of_rank), "dst": rows["dst"].map(of_rank), **{c: rows[c].astype("int64") for c in times}})
    low, high = np.minimum(rows["src"], rows["dst"]), np.maximum(rows["src"], rows["dst"])
    rows = rows.assign(low=low, high=high, up=rows["src"] < rows["dst"])[low != high]
    rows = rows[rows.groupby(["low", "high"])["up"].transform("nunique").eq(2)].reset_index(drop=True)
    if not len(rows):
        return []
    pair = rows.groupby(["low", "high"], sort=False).ngroup().to_numpy(np.int64)
    together = _end_together(rows, pair) if gpu else np.zeros(len(rows), bool)
    apart = ~together & (parts[rows["low"].to_numpy(np.int64)] != parts[rows["high"].to_numpy(np.int64)])
    return [_as_moments(rows[together], pair[together], "send_end_ns", "recv_end_ns", "sends"), _bounds(rows[apart], pair[apart])]


def _end_together(rows: pd.DataFrame, pair: Ints) -> np.ndarray:
    """Rows of the pairs whose sends and receives end together: then what the clocks differ by cancels over the two directions.

    A send that is over before its receive leaves a lag in both, and lags do not cancel.
    """
    lag = pd.DataFrame({"pair": pair, "up": rows["up"], "lag": rows["recv_end_ns"] - rows["send_end_ns"]})
    medians = lag.groupby(["pair", "up"])["lag"].median().unstack()
    agree = medians.sum(axis=1).abs() <= SAME_HOST_NS
    return np.asarray(agree.reindex(pair).to_numpy(bool))


def _bounds(rows: pd.DataFrame, pair: Ints) -> pd.DataFrame:
    """The tightest message of each direction: the true difference of the clocks lies between the two they would show."""
    slack = (rows["recv_end_ns"] - rows["send_start_ns"]).groupby([pair, rows["up"].to_numpy()])
    tightest = slack.idxmin().to_numpy()
    place = pd.Series(pair, index=rows.index).loc[tightest].to_numpy()
    return _as_moments(rows.loc[tightest], place, "send_start_ns", "recv_end_ns", "bounds")


def _as_moments(rows: pd.DataFrame, pair: Ints, sent: str, received: str, source: str) -> pd.DataFrame:
    number = np.arange(len(rows))
    ends = [{"group": pair, "instance": number, "clock": rows[who].to_numpy(), "at_ns": rows[at].to_numpy()} for who, at in (("src", sent), ("dst", received))]
    return pd.concat([pd.DataFrame(end) for end in ends], ignore_index=True).assign(source=source)


def _host_links(hosts: list[str | None], clock: Ints, parts: Ints, evidence: list[pd.DataFrame]) -> pd.DataFrame:
    """Clocks of one host that nothing else links are taken as one."""
    at = next((int(e["at_ns"].iloc[0]) for e in evidence if len(e)), 0)
    rows = []
    for group, host in enumerate(sorted({h for h in hosts if h is not None})):
        here = [c for c, h in zip(clock.tolist(), hosts, strict=True) if h == host]
        lowest = {parts[c]: c for c in reversed(here)}
        rows += [(group, group, c, at) for c in sorted(lowest.values())] if len(lowest) > 1 else []
    return pd.DataFrame(rows, columns=_MOMENTS).astype("int64").assign(source="host")


def _components(evidence: list[pd.DataFrame], n: int) -> Ints:
    """Lowest clock that each clock is linked with."""
    parent = list(range(n))

    def root(c: int) -> int:
        while parent[c] != c:
            parent[c] = parent[parent[c]]
            c = parent[c]
        return c

    for moments in evidence:
        first = moments.groupby(["group", "instance"], sort=False)["clock"].transform("min")
        linked = np.unique(first.to_numpy(np.int64) * n + moments["clock"].to_numpy(np.int64))
        for a, b in zip((linked // n).tolist(), (linked % n).tolist(), strict=True):
            low, high = sorted((root(a), root(b)))
            parent[high] = low
    return np.array([root(c) for c in range(n)], np.int64)


def _numbered(evidence: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Groups and moments of all sources under numbers of their own."""
    out, groups, moments = [], 0, 0
    for one in evidence:
        out.append(one.assign(group=one["group"] + groups, instance=one["instance"] + moments))
        groups, moments = (int(out[-1][c].max()) + 1 if len(one) else n for c, n in (("group", groups), ("instance", moments)))
    return out


def _none(source: str) -> pd.DataFrame:
    return pd.DataFrame({c: pd.Series(dtype="int64") for c in _MOMENTS}).assign(source=source)


def _findings(table: pd.DataFrame, hosts: Mapping[int, str | None]) -> list[dict[str, Any]]:
    out = []
    moved = table[table["offset_ns"].ne(0) | table["drift_ppm"].fillna(0).ne(0)]
    if len(moved):
        ranks = sorted(set(moved["rank"]))
        most = int(moved["offset_ns"].abs().max())
        error = moved["residual_ns"].max()
        which, references = (compact(set(moved[c])) for c in ("rank", "reference_rank"))
        text = (
            f"clocks of {'rank' if len(ranks) == 1 else 'ranks'} {which} differ from rank {references}'s by up to {duration(most)}: all times are put on the "
            f"latter's clock, by the ends of matched calls"
        )
        text += f"; waits below {duration(int(error))} cannot be told from none" if pd.notna(error) and error else ""
        out.append(finding("clocks_aligned", Severity.WARNING if most > WARN_NS else Severity.INFO, text, count=len(ranks)))
    named = {rank: host for rank, host in hosts.items() if host is not None}
    loose = [int(r) for r, ref in zip(table["rank"], table["reference_rank"], strict=True) if r in named and named.get(int(ref)) is not None]
    first = min(hosts, default=0)
    apart = sorted({r for r in loose if named[r] != named.get(first)} & set(table.loc[table["reference_rank"].ne(first), "rank"])) if first in named else []
    if apart:
        text = f"nothing links the clocks of ranks {compact(apart)}, on other hosts, with rank {first}'s: times of the two cannot be compared"
        out.append(finding("clocks_not_aligned", Severity.WARNING, text, count=len(apart)))
    return out


__all__ = ["CLOCKS", "FEW", "Clocks", "align", "comparable", "with_resolution"]
