"""Ranks drawn from literal rows, stored and opened as a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit import pyramid, schema
from tracekit.timeline.run import Run, open_run
from tracekit.trace import RankMeta, RankTrace

BASE = 1_700_000_000_000_000_000
#: (name, start, end, lane): lane is ``cpu`` or the number of a stream; communication is what begins with nccl.
Slice = tuple[str, int, int, str | int]


def rank(slices: Sequence[Slice], number: int = 0, base: int = BASE) -> RankTrace:
    """A rank of these slices; times in ns after the base."""
    rows: list[dict[str, Any]] = []
    for name, start, end, lane in slices:
        on_device = isinstance(lane, int)
        kind = "range" if name.startswith("ProfilerStep") else "operator" if not on_device else "communication" if name.startswith("nccl") else "compute"
        thread = lane if isinstance(lane, int) else 100
        place = {"device": 0, "stream": lane} if on_device else {"device": None, "stream": None}
        rows.append({"name": name, "ts": base + start, "dur": end - start, "kind": kind, "thread": thread, **place})
    frame = pd.DataFrame(rows, columns=["name", "ts", "dur", "kind", "thread", "device", "stream"])
    frame = frame.sort_values(["thread", "ts", "dur"], ascending=[True, True, False], ignore_index=True)
    frame = frame.assign(name=frame["name"].astype("category"), recompute=False)
    meta = RankMeta(rank=number, device_type="gpu", base_ns=0, threads={100: "main"}, files=(f"rank{number}.json",))
    return RankTrace(schema.conform(frame, schema.EVENTS), meta=meta)


def stored(folder: Path, *ranks: RankTrace, clocks: pd.DataFrame | None = None) -> Run:
    """The ranks as a run."""
    return open_run([pyramid.build(trace, folder / f"rank{i}") for i, trace in enumerate(ranks)], clocks)


def clock(offsets: dict[int, int], drift_ppm: float = 0.0) -> pd.DataFrame:
    """A table of clocks as the metric has it."""
    rows = [{"rank": r, "capture": 0, "origin_ns": BASE, "offset_ns": offset, "drift_ppm": drift_ppm if r else 0.0} for r, offset in offsets.items()]
    return pd.DataFrame(rows).astype({"offset_ns": "Int64"})
