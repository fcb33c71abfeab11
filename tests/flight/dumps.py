"""Flight Recorder dumps drawn from literal rows, as torch writes them."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit import analyze
from tracekit.analysis import Analysis
from tracekit.facts import boil_down
from tracekit.job.base import Job
from tracekit.job.flight import FORMAT, Flight, compare
from tracekit.readers import flight_recorder
from tracekit.reading import Reading
from tracekit.trace import RankTrace

WORLD = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def entry(seq: int, name: str = "nccl:all_reduce", *, size: Any = (1024,), out: Any = None, dtype: str = "Float", pg: str = "0", **more: Any) -> dict[str, Any]:
    """A call; its input and output have ``size`` unless ``out`` says otherwise."""
    p2p = "send" in name or "recv" in name
    return {
        "record_id": seq - 1,
        "pg_id": 0,
        "process_group": (pg, "default_pg" if pg == "0" else f"group_{pg}"),
        "collective_seq_id": 0 if p2p else seq,
        "p2p_seq_id": seq if p2p else 0,
        "op_id": seq,
        "profiling_name": name,
        "time_created_ns": 1_750_000_000_000_000_000 + 1000 * seq,
        "input_sizes": [list(size)],
        "input_dtypes": [dtype],
        "output_sizes": [list(size if out is None else out)],
        "output_dtypes": [dtype],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": p2p,
        **more,
    }


def status(enqueued: int, completed: int) -> dict[str, int]:
    """How far a group had come."""
    return {"last_enqueued_collective": enqueued, "last_started_collective": -1, "last_completed_collective": completed}


def dump(entries: list[dict[str, Any]], *, groups: dict[str, Any] | None = None, version: str = "2.10", **more: Any) -> dict[str, Any]:
    """A whole dump."""
    return {"version": version, "pg_config": WORLD if groups is None else groups, "comm_lib_version": "2.27.3", "pg_status": {}, **more, "entries": entries}


def group(ranks: list[int], name: str, desc: str | None = None) -> dict[str, Any]:
    """An entry of pg_config."""
    return {name: {"name": name, "desc": desc or f"group_{name}", "ranks": str(ranks)}}


def read(content: Any, *, as_json: bool = False, **caps: Any) -> RankTrace:
    """A dump as the reader gives it."""
    data = json.dumps(content).encode() if as_json else pickle.dumps(content, 2)
    assert flight_recorder.sniff(data[:65536])
    return flight_recorder.read(data, Path("dump"), Reading(**caps))[0]


def compared(*dumps: dict[str, Any] | None) -> Flight | None:
    """One dump per rank laid side by side, without the rest of an analysis."""
    facts = {}
    for rank, content in enumerate(dumps):
        if content is not None:
            trace = read(content)
            facts[rank, 0] = boil_down(replace(trace, meta=replace(trace.meta, rank=rank, formats=(FORMAT,))))
    job = Job(facts)
    return compare(facts, job.table("records"), job.table("group_status"), len(dumps))


def analysed(folder: Path, *dumps: dict[str, Any] | None) -> Analysis:
    """The analysis of one dump per rank; None: the rank has none."""
    for rank, content in enumerate(dumps):
        if content is not None:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, 2))
    return analyze(folder, workers=1)
