"""Which times of a run are compared? One number per run each: the median over its steady steps.

Steps of one run are no independent samples: the run's placement, its clocks and its neighbours are common to all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tracekit.compare.document import Document, Row, greatest, number, of_steps, per_step, reason, rows, steady_steps, summary, typical
from tracekit.compare.found import Found, found
from tracekit.compare.keys import Key, key, whole_layer

#: Under this name ``missing`` says that the step could not be divided; a part that is merely absent is zero.
BUDGET = "budget"
_PARTS_OF_BREAKDOWN = {"compute_ns": "compute_ns", "exposed_comm_ns": "exposed_comm_ns"}

#: Another job on the machine only ever makes a transfer longer, so the lowest decile of the calls is what the layer itself costs
#: (Chen and Revels, arXiv:1608.04295, on why low quantiles stand noise; the minimum itself is worse: it hangs on one call).
QUANTILE = 0.1


def timed(document: Document) -> Found:
    """The times and measured sizes of a report, and why those that are not known are not.

    Args:
        document: a report (``tracekit.report/1``).

    Returns:
        Numbers, in ns, bytes or as ratios, reasons of those that are unknown, and reasons by metric.
    """
    steps = steady_steps(document)
    every = Found()
    for read in (_step, _breakdown, _budget, _pipeline, _memory, _layers):
        every |= read(document, steps)
    return Found({k: float(v) for k, v in every.known.items()}, every.missing, every.unknown)


def _step(document: Document, steps: frozenset[int]) -> Found:
    """The step's window on the slowest rank; the whole recording where no step was marked."""
    why = reason(document, "step_time")
    marked = of_steps(rows(document, "step_time", "steps"), steps)
    longest = typical(per_step(marked, "window_ns", "max").values())
    if longest is None:
        return found({}, {"step_time_ns": why or "no step was marked (ProfilerStep): call the profiler's step() once a step"})
    return found({key("step_time_ns"): longest})


def _breakdown(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "breakdown")
    if why is not None:
        return found({}, dict.fromkeys(_PARTS_OF_BREAKDOWN, why))
    picked = of_steps(rows(document, "breakdown", "devices"), steps)
    return found({key(name): typical(per_step(picked, column, "mean").values()) for name, column in _PARTS_OF_BREAKDOWN.items()})


def _budget(document: Document, steps: frozenset[int]) -> Found:
    """Each part of the step, mean over the ranks' accounts; a part that an account does not name is zero there."""
    why = reason(document, "budget")
    if why is not None:
        return found({}, {BUDGET: why})
    picked = of_steps(rows(document, "budget", "ranks"), steps)
    accounts: dict[Any, set[Any]] = {}
    sums: dict[Key, dict[Any, float | None]] = {}
    for r in picked:
        step = (r.get("capture"), r.get("step"))
        accounts.setdefault(step, set()).add((r.get("rank"), r.get("device")))
        by_step = sums.setdefault(key(f"{r.get('part')}_ns", axis=r.get("axis")), {})
        value, before = number(r.get("duration_ns")), by_step.get(step, 0.0)
        by_step[step] = None if value is None or before is None else before + value
    out: dict[Key, float | None] = {}
    for name, by_step in sums.items():
        means = [None if (total := by_step.get(step, 0.0)) is None else total / len(of) for step, of in accounts.items()]
        out[name] = typical(means)
    return found(out)


def _pipeline(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "pipeline")
    if why is not None:
        return found({}, dict.fromkeys(("bubble_ratio", "pipeline_window_ns"), why))
    picked = of_steps((r for r in rows(document, "pipeline", "pipelines") if r.get("complete") is not False), steps)
    numbers = {
        key("bubble_ratio"): typical(per_step(picked, "bubble_ratio", "mean").values()),
        key("pipeline_window_ns"): typical(per_step(picked, "window_ns", "mean").values()),
    }
    return found(numbers, why="the pipeline's window is unknown")


def _memory(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "memory")
    if why is not None:
        return found({}, dict.fromkeys(("measured_peak_bytes", "reserved_peak_bytes"), why))
    whole = [r for r in rows(document, "memory", "peaks") if r.get("step") is None]
    gpu = [r for r in whole if r.get("device_type") == "gpu"]
    numbers = {key("reserved_peak_bytes"): greatest(number(r.get("reserved_peak_bytes")) for r in gpu or whole)}
    if not gpu:
        numbers[key("measured_peak_bytes")] = greatest(number(r.get("allocated_peak_bytes")) for r in whole)
    return found(numbers, why="the peak of a rank is unknown")


def _layers(document: Document, steps: frozenset[int]) -> Found:
    """What each layer's collectives cost in a step: calls per step x the lowest decile of a call, by kind and axis."""
    picked = of_steps(rows(document, "collectives", "instances"), steps)
    count = len({(r.get("capture"), r.get("step")) for r in picked}) or 1
    by_key: dict[tuple[Any, ...], dict[Any, list[Row]]] = {}
    for r in picked:
        layer = r.get("layer")
        if isinstance(layer, str) and r.get("layer_last") is None:
            # calls of one direction and size are alike; their quantile means something
            alike = by_key.setdefault((whole_layer(layer), r.get("axis"), r.get("kind")), {})
            alike.setdefault((r.get("direction"), r.get("nbytes")), []).append(r)
    costs: dict[Key, float | None] = {}
    for (layer, axis, kind), calls in by_key.items():
        places = {"layer": layer, "axis": axis, "kind": kind}
        transfer = _cost(calls.values(), "transfer_ns", count)
        costs[key("layer_transfer_ns", **places)] = transfer
        if transfer is None:
            costs[key("layer_duration_ns", **places)] = _cost(calls.values(), "duration_ns", count)
        costs[key("layer_exposed_ns", **places)] = _exposed(calls.values())
    return found(costs)


def _cost(classes: Iterable[list[Row]], column: str, steps: int) -> float | None:
    total = 0.0
    for calls in classes:
        values = [number(r.get(column)) for r in calls]
        if None in values:
            return None
        ranks = 1 if column == "transfer_ns" else max(_ranks(calls[0]), 1)
        total += len(calls) / steps * float(np.quantile(np.asarray(values, float), QUANTILE)) / ranks
    return total


def _exposed(classes: Iterable[list[Row]]) -> float | None:
    """Exposed time of a step per rank of the group: what of the step the layer's collectives take."""
    by_step: dict[Any, float | None] = {}
    for calls in classes:
        for r in calls:
            step, value = (r.get("capture"), r.get("step")), number(r.get("exposed_ns"))
            before = by_step.get(step, 0.0)
            by_step[step] = None if value is None or before is None else before + value / max(_ranks(r), 1)
    return typical(by_step.values())


def _ranks(row: Row) -> int:
    size = number(row.get("matched_ranks")) or number(row.get("group_size"))
    return int(size) if size else 1


def levels(document: Document) -> dict[str, float]:
    """What a budget can be set for beside the compared metrics: every number of every summary, by ``metric.name``, and the usual ones by name."""
    numbers: dict[str, float] = {}
    metrics = document.get("metrics")
    for name in metrics if isinstance(metrics, dict) else ():
        for field, value in summary(document, name).items():
            if (v := number(value)) is not None:
                numbers[f"{name}.{field}"] = v
    short = {
        "exposed_comm_ratio": "breakdown.exposed_comm_ratio",
        "idle_ratio": "breakdown.idle_ratio",
        "overlap_of_comm_ratio": "breakdown.overlap_of_comm_ratio",
        "bubble_ratio": "pipeline.bubble_ratio",
        "recompute_overhead_ratio": "recompute.overhead_of_step_compute_ratio",
        "peak_memory_bytes": "memory.allocated_peak_bytes",
        "reserved_memory_bytes": "memory.reserved_peak_bytes",
        "mfu_ratio": "utilization.mfu_ratio",
    }
    return numbers | {name: numbers[of] for name, of in short.items() if of in numbers}
