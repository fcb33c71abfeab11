"""Which receive belongs to which send, and how long did the bytes take?

Sends and receives pair by their order between two ranks, source to destination. Their group's name is used where both
ends state it alike (two streams between the same pair may run in another order on each side); a group's sequence number
is not: it is rank-local. With ``last`` the later of the two starts,

    send_wait = last - send_start,   recv_wait = last - recv_start,   transfer = recv_end - last.

A kernel that does several operations at once (``batch_isend_irecv`` on NCCL) cannot be divided: null. On gloo an operation
is over when somebody waits for it, however long the bytes have been there: the transfer is unknown, and what the formula
gives stands as ``transfer_upper_bound_ns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.findings import finding
from tracekit.job.topology import axis_column
from tracekit.vocabulary import Collective, Severity

P2P = ["capture", "step", "src", "dst", "order", "nbytes", "dtype", "direction", "microbatch", "group", "group_ranks", "axis"]
P2P += ["send_start_ns", "send_end_ns", "recv_start_ns", "recv_end_ns", "transfer_ns", "transfer_upper_bound_ns"]
P2P += ["send_wait_ns", "recv_wait_ns"]
P2P += ["send_exposed_ns", "recv_exposed_ns", "send_stage", "recv_stage", "coalesced", "time_source", "matched_by"]

#: How to pair, strictest first; what one rule leaves over is tried with the next.
_RULES = (("group", ["capture", "src", "dst", "group", "step"]), ("pair", ["capture", "src", "dst", "step"]), ("order", ["capture", "src", "dst"]))


@dataclass(frozen=True)
class Paired:
    """Sends matched with receives, columns ``P2P``; one end is null where the other rank's trace does not show it."""

    p2p: pd.DataFrame
    findings: tuple[Mapping[str, Any], ...] = ()


def pair(calls: pd.DataFrame, axis_of: Mapping[str, str], described: frozenset[str] = frozenset(), skewed: frozenset[int] = frozenset()) -> Paired:
    """Pair the sends and receives of all ranks.

    Args:
        calls: the ``p2p_calls`` fact of all ranks with ``rank``, ``capture`` and ``device_type``.
        axis_of: rank list -> mesh axis.
        described: rank lists of groups whose own description names their axis.
        skewed: ranks whose clocks disagree with others': their waits and transfers are unknown.
    """
    known = calls["peer"].notna() & calls["kind"].isin([Collective.SEND, Collective.RECV])
    findings = _unknown_finding(int((~known).sum()))
    ends = _ends(calls[known])
    send, recv = ends[ends["is_send"]], ends[~ends["is_send"]]
    parts = []
    for name, keys in _RULES:
        send, recv, done = _pair_by(send, recv, keys)
        parts.append(done.assign(matched_by=name))
        if not len(send) or not len(recv):
            break
    loose = pd.concat([send.add_suffix("_s"), recv.add_suffix("_r")], ignore_index=True)
    parts.append(loose.assign(matched_by="none"))
    both = pd.concat([p for p in parts if len(p)] or parts[:1], ignore_index=True)
    both = both.reindex(columns=[*send.add_suffix("_s").columns, *recv.add_suffix("_r").columns, "matched_by"])
    table = _table(both, skewed)
    return Paired(table.assign(axis=axis_column(table, axis_of, described))[P2P], findings)


def _ends(calls: pd.DataFrame) -> pd.DataFrame:
    """One row per operation with its source and destination; ``several``: its kernel does others as well."""
    is_send = calls["kind"].eq(Collective.SEND).to_numpy()
    rank, peer = calls["rank"].to_numpy(np.int64), calls["peer"].to_numpy(np.int64)
    in_batch = calls.groupby(["capture", "rank", "batch"], dropna=False)["kind"].transform("size")
    several = calls["batch"].notna().to_numpy() & in_batch.gt(1).to_numpy()
    out = calls.assign(is_send=is_send, src=np.where(is_send, rank, peer), dst=np.where(is_send, peer, rank), several=several)
    # nullable: beside an end that is missing, plain integers would become floats, which hold no times since 1970 to the ns
    for column in ("step", "microbatch", "nbytes", "stage", "batch", "start_ns", "end_ns", "exposed_ns"):
        out[column] = out[column].astype("Int64")
    return out.sort_values(["capture", "rank", "start_ns"], kind="stable")


def _pair_by(send: pd.DataFrame, recv: pd.DataFrame, keys: list[str]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Pair the k-th send with the k-th receive of a key, where both have equally many; the rest comes back."""
    both = pd.concat([send, recv])
    at = both.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    at_send, at_recv = at[: len(send)], at[len(send) :]
    n = int(at.max(initial=-1)) + 1
    count_send, count_recv = np.bincount(at_send, minlength=n), np.bincount(at_recv, minlength=n)
    even = count_send == count_recv
    s = send[even[at_send]].assign(_key=at_send[even[at_send]])
    r = recv[even[at_recv]].assign(_key=at_recv[even[at_recv]])
    s = s.sort_values("_key", kind="stable").drop(columns="_key").add_suffix("_s").reset_index(drop=True)
    r = r.sort_values("_key", kind="stable").drop(columns="_key").add_suffix("_r").reset_index(drop=True)
    return send[~even[at_send]], recv[~even[at_recv]], pd.concat([s, r], axis=1)


def _table(both: pd.DataFrame, skewed: frozenset[int]) -> pd.DataFrame:
    def either(column: str) -> pd.Series:
        first, second = (both[f"{column}{end}"].astype(object) for end in ("_s", "_r"))
        picked = first.where(first.notna(), second)
        return picked.where(picked.notna(), None)

    out = pd.DataFrame({c: either(c).astype("int64") for c in ("capture", "src", "dst")})
    for column in ("step", "nbytes", "microbatch"):
        out[column] = either(column).astype("Int64")
    for column in ("dtype", "direction", "group", "group_desc", "group_ranks"):
        out[column] = either(column)
    for side, end in (("send", "_s"), ("recv", "_r")):
        for column in ("start_ns", "end_ns", "exposed_ns", "stage"):
            out[f"{side}_{column}"] = both[f"{column}{end}"].astype("Int64")
    batched, several = (both[[f"{c}_s", f"{c}_r"]] for c in ("batch", "several"))
    out["coalesced"] = batched.notna().any(axis=1)
    out["time_source"] = either("time_source")
    out["matched_by"] = both["matched_by"].astype(object)
    paired = out["matched_by"].ne("none")
    on_host = both["time_source_s"].eq("host") | both["time_source_r"].eq("host")
    divisible = paired & ~on_host & ~several.eq(True).any(axis=1) & ~out["src"].isin(skewed) & ~out["dst"].isin(skewed)
    starts = [out[c].to_numpy(np.int64, na_value=0) for c in ("send_start_ns", "recv_start_ns")]
    last = pd.Series(pd.arrays.IntegerArray(np.maximum(*starts), ~paired.to_numpy(bool)), index=out.index)
    # a small send may be over before its receive is posted, and a receive that ends before the send began has other clocks
    ordered = (out["send_end_ns"].ge(last) & out["recv_end_ns"].ge(last)).fillna(False).astype(bool)
    causal = out["recv_end_ns"].ge(out["send_start_ns"]).fillna(False).astype(bool)
    longest = (out["recv_end_ns"] - last).where(divisible & ordered)
    out["transfer_upper_bound_ns"] = longest
    out["transfer_ns"] = longest.mask(either("device_type").eq("cpu"))
    out["send_wait_ns"] = (last - out["send_start_ns"]).where(divisible & ordered)
    out["recv_wait_ns"] = (last - out["recv_start_ns"]).where(divisible & causal)
    finish = out["recv_end_ns"].fillna(out["send_end_ns"]).astype("int64")
    out = out.assign(_finish=finish).sort_values(["capture", "step", "src", "dst", "_finish"], kind="stable").reset_index(drop=True)
    out["order"] = out.groupby(["capture", "step", "src", "dst"], sort=False, dropna=False).cumcount()
    return out


def _unknown_finding(count: int) -> tuple[dict[str, Any], ...]:
    if not count:
        return ()
    text = f"{count} sends or receives name no peer and are left out of the pairing; NCCL metadata (torch 2.2 or later) or record_shapes=True tells it"
    return (finding("p2p_peer_unknown", Severity.WARNING, text, count=count),)
