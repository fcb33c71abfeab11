"""Reports small enough to be read: two ranks, tensor parallel, steps of 100 ms, one all-reduce per layer and direction."""

from __future__ import annotations

import copy
from typing import Any

LAYERS = 4
STEPS = (3, 4, 5)
MS = 1_000_000


def report(
    *, step_ms: float = 100.0, layers: int = LAYERS, transfer_ms: dict[int, float] | None = None, count: dict[int, int] | None = None, **run: Any
) -> dict[str, Any]:
    """A report of a run whose layers move bytes for 2 ms each, unless ``transfer_ms`` says otherwise of one."""
    costs = {n: (transfer_ms or {}).get(n, 2.0) for n in range(layers)}
    counts = {n: (count or {}).get(n, 1) for n in range(layers)}
    exposed = sum(costs.values())
    by_layer, instances = [], []
    for step in STEPS:
        for n in range(layers):
            where = {"step": step, "layer": f"layers.{n}", "layer_last": None, "axis": "tp", "direction": "forward", "kind": "all_reduce"}
            by_layer.append({**where, "count": counts[n], "nbytes": 1024 * counts[n]})
            for call in range(counts[n]):
                sums = {"transfer_ns": costs[n] * MS, "duration_ns": 2 * costs[n] * MS, "exposed_ns": 2 * costs[n] * MS}
                instances.append({**where, "instance": f"{step}-{n}-{call}", "capture": 0, "nbytes": 1024, "matched_ranks": 2, **sums})
    devices, budget, steps = [], [], []
    for step in STEPS:
        for rank in (0, 1):
            key = {"rank": rank, "capture": 0, "device": 0, "step": step}
            parts = {"forward": 30.0, "backward": 60.0, "idle": step_ms - 90.0 - exposed}
            devices.append({**key, "span_ns": step_ms * MS, "compute_ns": 90 * MS, "exposed_comm_ns": exposed * MS, "kernels": 500 + sum(counts.values())})
            budget += [{**key, "part": part, "axis": None, "duration_ns": ms * MS} for part, ms in parts.items()]
            budget.append({**key, "part": "comm_transfer", "axis": "tp", "duration_ns": exposed * MS})
            steps.append({"rank": rank, "capture": 0, "step": step, "window_ns": step_ms * MS, "complete": True, "warmup": False})
    config = {"versions": {"torch": "2.13.0", "nccl": "2.28"}, "model": {"layers": layers}, "recompute": "none", "git_commit": None}
    metrics = {
        "step_time": metric({"steps": steps}),
        "breakdown": metric({"devices": devices}, {"exposed_comm_ratio": exposed / step_ms}),
        "budget": metric({"ranks": budget}),
        "collectives": metric({"by_layer": by_layer, "instances": instances, "p2p": []}),
        "pipeline": absent("the job has no pipeline: its mesh has no axis pp"),
        "memory": metric({"peaks": [{"rank": 0, "device_type": "gpu", "step": None, "allocated_peak_bytes": 1 << 30}]}, {"allocated_peak_bytes": 1 << 30}),
        "recompute": metric({"layers": []}, {"mode": "none"}),
        "operators": absent("no execution trace"),
    }
    about = {"ranks": [0, 1], "world_size": 2, "backend": "nccl", "device": "gpu", "device_names": ["H200"], "mesh": {"tp": 2}, "emulated": False}
    return {"schema": "tracekit.report/1", "tracekit": "0.1.0", "health": {"verdict": "ok"}, "run": {**about, "config": config, **run}, "metrics": metrics}


def metric(tables: dict[str, Any], summary: dict[str, Any] | None = None) -> dict[str, Any]:
    """A metric that is there."""
    return {"available": True, "reason": None, "summary": summary or {}, "tables": tables}


def absent(reason: str) -> dict[str, Any]:
    """A metric that is not."""
    return {"available": False, "reason": reason, "summary": {}, "tables": {}}


def piped(document: dict[str, Any], schedule: str = "1f1b") -> dict[str, Any]:
    """The same with a pipeline of four ranks and eight microbatches."""
    row = {"capture": 0, "complete": True, "schedule": schedule, "pipeline_ranks": 4, "stages": 4, "virtual_stages": 1, "microbatches": 8}
    rows = [{**row, "step": step, "bubble_ratio": 0.3, "window_ns": 90 * MS} for step in STEPS]
    return changed(document, pipeline=metric({"pipelines": rows}, {"bubble_ratio": 0.3}))


def recomputing(document: dict[str, Any]) -> dict[str, Any]:
    """The same with every layer computed again in backward."""
    rows = [{"step": s, "layer": f"layers.{n}", "recompute_runs": 1, "decidable": True, "capture": 0} for s in STEPS for n in range(LAYERS)]
    return changed(document, recompute=metric({"layers": rows}, {"mode": "full"}))


def changed(document: dict[str, Any], **metrics: Any) -> dict[str, Any]:
    """A copy with other metrics."""
    out = copy.deepcopy(document)
    out["metrics"].update(metrics)
    return out
