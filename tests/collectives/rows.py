"""Hand-written fact rows: only what a test is about is spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracekit import schema
from tracekit.trace import RankFacts, RankMeta

CALL = {
    "step": 1,
    "kind": "all_reduce",
    "exposed_ns": 0,
    "group": "tp",
    "group_ranks": "0,1",
    "nbytes": 1000,
    "in_action": False,
    "device": 0,
    "stream": 7,
    "time_source": "device",
}
P2P_CALL = {"step": 1, "time_source": "device", "exposed_ns": 0, "group": "pp", "group_ranks": "0,1", "nbytes": 1000}


def calls(*rows: Mapping[str, Any]) -> pd.DataFrame:
    """Calls of several ranks as ``match`` takes them; a row gives ``rank``, ``at`` (start, end) and what differs."""
    frame = _frame(schema.CALLS, CALL, rows)
    return frame.assign(
        rank=[r["rank"] for r in rows],
        capture=[r.get("capture", 0) for r in rows],
        inferred=[r.get("inferred", False) for r in rows],
        device_type=[r.get("device_type", "gpu") for r in rows],
    )


def p2p_calls(*rows: Mapping[str, Any]) -> pd.DataFrame:
    """Sends and receives of several ranks as ``pair`` takes them."""
    frame = _frame(schema.P2P_CALLS, P2P_CALL, rows)
    return frame.assign(rank=[r["rank"] for r in rows], capture=[r.get("capture", 0) for r in rows], device_type=[r.get("device_type", "gpu") for r in rows])


def facts(rank: int, *rows: Mapping[str, Any], capture: int = 0, p2p: tuple[Mapping[str, Any], ...] = (), **meta: Any) -> RankFacts:
    """What one rank is boiled down to."""
    tables = {"calls": _frame(schema.CALLS, CALL, rows), "p2p_calls": _frame(schema.P2P_CALLS, P2P_CALL, p2p)}
    return RankFacts(RankMeta(rank=rank, capture=capture, **{"device_type": "gpu", **meta}), tables)


def _frame(table: schema.Table, default: Mapping[str, Any], rows: tuple[Mapping[str, Any], ...]) -> pd.DataFrame:
    if not rows:
        return schema.empty(table)
    full = [{**default, **{k: v for k, v in r.items() if k in table}, "start_ns": r["at"][0], "end_ns": r["at"][1]} for r in rows]
    return schema.conform(pd.DataFrame({c: pd.Series([r.get(c) for r in full], dtype=table[c].dtype) for c in table}), table)
