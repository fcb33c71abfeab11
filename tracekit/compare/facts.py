"""Which facts of a run does the program decide, whatever the machine's mood? Counts, bytes, schedule, peak memory.

Kernels are counted by what they do, never by name: NCCL and cuBLAS rename theirs from release to release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tracekit.compare.document import Document, Row, greatest, number, of_steps, reason, rows, steady_steps, summary
from tracekit.compare.found import Found, found
from tracekit.compare.keys import Key, key
from tracekit.schedule.closed import window_bubble_ratio

#: What a fact can be; a list where it differs from step to step.
Value = int | float | str | list[Any]

#: Ranks up to which a fact of single ranks is kept for each; beyond, its extremes are.
MOST_RANKS = 64

#: What an operator's name holds beside what it does: its overload, and the numbers of ranges.
_OVERLOAD = re.compile(r"\.(?:default|out|Tensor|Scalar|self|dim|int)\b|#\d+|\b\d+\b")


#: Facts by key; None is unknown.
_Facts = dict[Key, Value | None]


def facts(document: Document) -> Found:
    """The facts of a report, and why those that are not known are not.

    Args:
        document: a report (``tracekit.report/1``).

    Returns:
        Values, reasons of those that are unknown, and reasons by metric. Facts that differ between steady steps are lists of the different values.
    """
    steps = steady_steps(document)
    every = Found()
    for read in (_collectives, _sends, _kernels, _operators, _pipeline, _memory, _recompute):
        every |= read(document, steps)
    return every


def _collectives(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "collectives")
    if why is not None:
        return found({}, {} if _alone(document) else dict.fromkeys(("collective_count", "collective_bytes"), why))
    picked = of_steps(rows(document, "collectives", "by_layer"), steps)
    sums: _Facts = {}
    for metric, column in (("collective_count", "count"), ("collective_bytes", "nbytes")):
        sums |= _constant(metric, picked, column, ("axis", "kind", "direction", "layer"))
    return found(sums)


def _alone(document: Document) -> bool:
    """Whether the job is one rank: then it has no communication, known to be none."""
    run = document.get("run")
    return isinstance(run, Mapping) and run.get("world_size") == 1


def _sends(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "collectives")
    if why is not None:
        return found({}, {} if _alone(document) else dict.fromkeys(("p2p_count", "p2p_bytes"), why))
    picked = of_steps(rows(document, "collectives", "p2p"), steps)
    counted = [{**r, "count": 1} for r in picked]
    sums: _Facts = {}
    for metric, column in (("p2p_count", "count"), ("p2p_bytes", "nbytes")):
        sums |= _constant(metric, counted, column, ("direction",))
    return found(sums)


def _kernels(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "breakdown")
    if why is not None:
        return found({}, {"kernel_count": why})
    picked = of_steps(rows(document, "breakdown", "devices"), steps)
    return found(_by_rank(_constant("kernel_count", picked, "kernels", ("rank",))))


def _operators(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "operators")
    if why is not None:
        return found({}, {"operator_count": why})
    counts: dict[str, float | None] = {}
    for row in rows(document, "operators", "operators"):
        name = _OVERLOAD.sub("", str(row.get("name"))).strip()
        counts[name] = _sum(counts.get(name, 0), number(row.get("count")))
    return found({key("operator_count", operator=name): None if count is None else _whole(count) for name, count in counts.items()})


def _pipeline(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "pipeline")
    if why is not None:
        return found({}, dict.fromkeys(("schedule", "pipeline_ranks", "stages", "microbatches", "closed_form_bubble_ratio"), why))
    picked = of_steps((r for r in rows(document, "pipeline", "pipelines") if r.get("complete") is not False), steps)
    values: _Facts = {}
    for name in ("schedule", "pipeline_ranks", "stages", "microbatches"):
        told = {_said(r.get(name)) for r in picked}
        if told - {None}:
            values[key(name)] = None if None in told else _one(told)
    one = {name: values.get(key(name)) for name in ("schedule", "pipeline_ranks", "microbatches")}
    virtual = {number(r.get("virtual_stages")) for r in picked}
    v = next(iter(virtual)) if len(virtual) == 1 else None
    if isinstance(one["schedule"], str) and isinstance(one["pipeline_ranks"], int) and isinstance(one["microbatches"], int) and v:
        # with equal times of all actions: the form then follows from the schedule alone
        ratio = window_bubble_ratio(one["schedule"], p=one["pipeline_ranks"], m=one["microbatches"], v=int(v))
        if ratio is not None:
            values[key("closed_form_bubble_ratio")] = float(f"{ratio:.9g}")
    return found(values)


def _said(value: object) -> str | float | None:
    return value if isinstance(value, str) else number(value)


def _memory(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "memory")
    if why is not None:
        return found({}, {"peak_allocated_bytes": why})
    # the allocator of a CPU frees when its threads get to it: its peak differs from run to run and is measured instead
    whole = [r for r in rows(document, "memory", "peaks") if r.get("step") is None and r.get("device_type") == "gpu"]
    devices: dict[Key, list[float | None]] = {}
    for row in whole:
        devices.setdefault(key("peak_allocated_bytes", rank=row.get("rank")), []).append(number(row.get("allocated_peak_bytes")))
    return found(_by_rank({name: None if (most := greatest(peaks)) is None else _whole(most) for name, peaks in devices.items()}))


def _recompute(document: Document, steps: frozenset[int]) -> Found:
    why = reason(document, "recompute")
    mode = summary(document, "recompute").get("mode")
    untold = "whether anything was computed again cannot be told"
    if why is not None or not isinstance(mode, str) or mode == "unknown":
        return found({}, dict.fromkeys(("recompute_mode", "recompute_runs"), why or untold))
    picked = [r if r.get("decidable") is not False else {**r, "recompute_runs": None} for r in of_steps(rows(document, "recompute", "layers"), steps)]
    runs = _constant("recompute_runs", picked, "recompute_runs", ("layer",))
    return found({key("recompute_mode"): mode} | {k: v for k, v in runs.items() if v != 0}, why=untold)


def _constant(metric: str, picked: Iterable[Row], column: str, places: tuple[str, ...]) -> _Facts:
    """A column's sum by places and step: the one value of every step, or the list of the different ones; None where a part is unknown."""
    sums: dict[Key, dict[Any, float | None]] = {}
    seen = set()
    for row in picked:
        step = (row.get("capture", 0), row.get("step"))
        seen.add(step)
        by_step = sums.setdefault(key(metric, **{p: row.get(p) for p in places}), {})
        by_step[step] = _sum(by_step.get(step, 0), number(row.get(column)))
    out: _Facts = {}
    for name, by_step in sums.items():
        values = {None if (total := by_step.get(s, 0)) is None else _whole(total) for s in seen}
        out[name] = None if None in values else _one(values)
    return out


def _sum(before: float | None, value: float | None) -> float | None:
    return None if before is None or value is None else before + value


def _by_rank(of_ranks: Mapping[Key, Value | None]) -> _Facts:
    """Facts of single ranks; of more than ``MOST_RANKS``, the least and the greatest of any step, unknown where one rank's is."""
    if len(of_ranks) <= MOST_RANKS:
        return dict(of_ranks)
    metric = next(iter(of_ranks)).metric
    values: list[Any] = [one for v in of_ranks.values() for one in (v if isinstance(v, list) else [v])]
    least, most = (None, None) if None in values else (min(values), max(values))
    return {key(metric, rank="least"): least, key(metric, rank="greatest"): most}


def _one(values: set[Any]) -> Value:
    if len(values) == 1:
        only: Value = next(iter(values))
        return only
    return sorted(values, key=lambda v: (isinstance(v, str), v))


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
