"""Kineto traces drawn from literal rows, so that a test shows its input at a glance."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tracekit.passes import run_passes
from tracekit.readers import kineto
from tracekit.trace import RankTrace

MAIN, AUTOGRAD, GLOO = 100, 200, 300


def op(name: str, start: float, end: float, *, cat: str = "cpu_op", tid: int = MAIN, **args: Any) -> dict[str, Any]:
    """A slice on a CPU thread; times in µs."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": round(end - start, 3), "args": args}


def span(name: str, start: float, end: float, *, tid: int = MAIN) -> dict[str, Any]:
    """A record_function range."""
    return op(name, start, end, cat="user_annotation", tid=tid)


def forward(name: str, start: float, end: float, number: int, **more: Any) -> dict[str, Any]:
    """A forward operator with its Sequence number."""
    return op(name, start, end, **{"Sequence number": number, "Fwd thread id": 0}, **more)


def backward(name: str, start: float, end: float, number: int | None, *, tid: int = MAIN) -> dict[str, Any]:
    """A backward node with the Sequence number of its forward operator."""
    marks = {} if number is None else {"Sequence number": number, "Fwd thread id": 1}
    return op(f"autograd::engine::evaluate_function: {name}", start, end, tid=tid, **marks)


def launch(start: float, end: float, correlation: int, *, tid: int = MAIN) -> dict[str, Any]:
    """A kernel launch."""
    return op("cudaLaunchKernel", start, end, cat="cuda_runtime", tid=tid, correlation=correlation)


def kernel(
    name: str, start: float, end: float, correlation: int | None = None, *, stream: int = 7, device: int = 0, cat: str = "kernel", **args: Any
) -> dict[str, Any]:
    """Device work."""
    extra = {} if correlation is None else {"correlation": correlation}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": device,
        "tid": stream,
        "ts": start,
        "dur": round(end - start, 3),
        "args": {"device": device, "stream": stream, **extra, **args},
    }


def memory(at: float, nbytes: int, total: int, addr: int, *, device_type: int = 0) -> dict[str, Any]:
    """A [memory] instant."""
    args = {
        "Addr": addr,
        "Bytes": nbytes,
        "Total Allocated": total,
        "Total Reserved": 0,
        "Device Type": device_type,
        "Device Id": -1 if device_type == 0 else 0,
    }
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": MAIN, "ts": at, "args": args}


def document(events: list[dict[str, Any]], rank: int | None = 0, world: int = 1, base: int = 0, **top: Any) -> dict[str, Any]:
    """A whole trace file."""
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world, "backend": "nccl", "pg_config": []}}
    return {"schemaVersion": 1, "baseTimeNanoseconds": base, **info, **top, "traceEvents": events}


def read(events: list[dict[str, Any]], **top: Any) -> RankTrace:
    """The trace as the reader gives it."""
    return kineto.read(json.dumps(document(events, **top)).encode(), Path("rank0.json"))[0]


def passed(events: list[dict[str, Any]], **top: Any) -> RankTrace:
    """The trace after every pass."""
    return run_passes(read(events, **top))


def write(path: Path, events: list[dict[str, Any]], **top: Any) -> Path:
    """A trace file on disk, gzip when its name says so."""
    text = json.dumps(document(events, **top)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def column(trace: RankTrace, name: str) -> dict[str, Any]:
    """Name of each event -> its value in a column; null as None."""
    values = trace.events[name].astype(object).where(trace.events[name].notna(), None)
    return dict(zip(trace.events["name"].astype(str), values, strict=True))
