"""Pipelines drawn as literal rows: '0F0 2-5' is forward of stage 0, microbatch 0, at work from 2 to 5 ns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tracekit import schema
from tracekit.job.base import Job
from tracekit.job.p2p import P2P
from tracekit.trace import RankFacts, RankMeta

ACTION = re.compile(r"(\d+)([FBIW])(\d+) (\d+)-(\d+)")
#: '0>1 F0 4,3-6': rank 0 sends forward activations of microbatch 0 to rank 1: send starts at 4, receive at 3, both end at 6.
TRANSFER = re.compile(r"(\d+)>(\d+) (?:([FB])(\d+) )?(\d+),(\d+)-(\d+)")


def actions(lane: str, step: int = 4) -> pd.DataFrame:
    """The ``actions`` fact of one rank, all compute."""
    rows, reach = [], 0
    for stage, action, microbatch, start, end in ACTION.findall(lane):
        first, last = int(start), int(end)
        fresh = min(max(first, reach), last)
        reach = max(reach, last)
        row = {"step": step, "stage": int(stage), "action": action, "microbatch": int(microbatch), "start_ns": first, "end_ns": last}
        filled = {"compute_ns": last - first, "exposed_collective_ns": 0, "inner_gap_ns": 0, "source": "range", "explained_ratio": None}
        rows.append({**row, **filled, "fresh_start_ns": fresh, "fresh_compute_ns": last - fresh, "fresh_exposed_collective_ns": 0})
    return schema.conform(pd.DataFrame(rows), schema.ACTIONS)


def transfers(texts: Sequence[str], step: int = 4) -> pd.DataFrame:
    """Sends matched with their receives, as a job holds them."""
    rows: list[dict[str, Any]] = []
    for text in texts:
        found = TRANSFER.match(text)
        assert found, text
        src, dst, direction, microbatch, sent, received, end = found.groups()
        rows.append(
            {
                "capture": 0, "step": step, "src": int(src), "dst": int(dst), "axis": "pp",
                "direction": {"F": "forward", "B": "backward", None: None}[direction],
                "microbatch": None if microbatch is None else int(microbatch),
                "send_start_ns": int(sent), "recv_start_ns": int(received), "recv_end_ns": int(end),
            }
        )  # fmt: skip
    frame = pd.DataFrame(rows, columns=P2P).astype({c: "Int64" for c in P2P if c.endswith("_ns") or c in ("step", "microbatch", "send_stage", "recv_stage")})
    frame["order"] = frame.sort_values("recv_end_ns", kind="stable").groupby(["step", "src", "dst"]).cumcount()
    return frame


def job(lanes: Mapping[int, str], sent: Sequence[str] = (), group: str | None = None, gaps: Mapping[int, Sequence[tuple[int, int]]] | None = None) -> Job:
    """A job of one steady step from lanes and transfers; ``gaps``: collectives of no action per rank."""
    ranks = {}
    for rank, lane in lanes.items():
        table = actions(lane)
        last = int(table["end_ns"].max())
        window = {"start_ns": 0, "end_ns": last, "window_start_ns": 0, "window_end_ns": last, "window_source": "host", "complete": True, "warmup": False}
        other = pd.DataFrame([{"step": 4, "start_ns": a, "end_ns": b} for a, b in (gaps or {}).get(rank, ())], columns=["step", "start_ns", "end_ns"])
        tables = {
            "actions": table,
            "steps": schema.conform(pd.DataFrame([{"step": 4, **window}]), schema.STEPS),
            "gap_collectives": schema.conform(other, schema.GAP_COLLECTIVES),
        }
        ranks[rank, 0] = RankFacts(RankMeta(rank=rank), tables)
    return Job(ranks, axis_of={} if group is None else {group: "pp"}, p2p=transfers(sent))
