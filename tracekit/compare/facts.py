"""Which facts of a run does the program decide, whatever the machine's mood? Counts, bytes, schedule, peak memory.

Kernels are counted by what they do, never by name: NCCL and cuBLAS rename theirs from release to release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tracekit.compare.document import Document, Row, number, of_steps, reason, rows, steady_steps, summary
from tracekit.compare.keys import Key, key
from tracekit.schedule.closed import window_bubble_ratio

#: What a fact can be; a list where it differs from step to step.
Value = int | float | str | list[Any]

#: Ranks up to which a fact of single ranks is kept for each; beyond, its extremes are.
MOST_RANKS = 64

#: What an operator's name holds beside what it does: its overload, and the numbers of ranges.
_OVERLOAD = re.compile(r"\.(?:default|out|Tensor|Scalar|self|dim|int)\b|#\d+|\b\d+\b")


def facts(document: Document) -> tuple[dict[Key, Value], dict[str, str]]:
    """The facts of a report, and why metrics that have none have none.

    Args:
        document: a report (``tracekit.report/1``).

    Returns:
        Values by key; reasons by metric. Facts that differ between steady steps are lists of the different values.
    """
    steps = steady_steps(document)
    found: dict[Key, Value] = {}
    missing: dict[str, str] = {}
    for read in (_collectives, _sends, _kernels, _operators, _pipeline, _memory, _recompute):
        more, why = read(document, steps)
        found |= more
        missing |= why
    return found, missing


_Found = tuple[dict[Key, Value], dict[str, str]]


def _collectives(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "collectives")
    if why is not None:
        return {}, {} if _alone(document) else dict.fromkeys(("collective_count", "collective_bytes"), why)
    picked = of_steps(rows(document, "collectives", "by_layer"), steps)
    found: dict[Key, Value] = {}
    for metric, column in (("collective_count", "count"), ("collective_bytes", "nbytes")):
        found |= _constant(metric, picked, column, steps, ("axis", "kind", "direction", "layer"))
    return found, {}


def _alone(document: Document) -> bool:
    """Whether the job is one rank: then it has no communication, known to be none."""
    run = document.get("run")
    return isinstance(run, Mapping) and run.get("world_size") == 1


def _sends(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "collectives")
    if why is not None:
        return {}, {} if _alone(document) else dict.fromkeys(("p2p_count", "p2p_bytes"), why)
    picked = of_steps(rows(document, "collectives", "p2p"), steps)
    counted = [{**r, "count": 1} for r in picked]
    found: dict[Key, Value] = {}
    for metric, column in (("p2p_count", "count"), ("p2p_bytes", "nbytes")):
        found |= _constant(metric, counted, column, steps, ("direction",))
    return found, {}


def _kernels(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "breakdown")
    if why is not None:
        return {}, {"kernel_count": why}
    picked = of_steps(rows(document, "breakdown", "devices"), steps)
    return _by_rank(_constant("kernel_count", picked, "kernels", steps, ("rank",))), {}


def _operators(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "operators")
    if why is not None:
        return {}, {"operator_count": why}
    counts: dict[str, float] = {}
    for row in rows(document, "operators", "operators"):
        count = number(row.get("count"))
        if count is not None:
            name = _OVERLOAD.sub("", str(row.get("name"))).strip()
            counts[name] = counts.get(name, 0) + count
    return {key("operator_count", operator=name): _whole(count) for name, count in counts.items()}, {}


def _pipeline(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "pipeline")
    if why is not None:
        return {}, dict.fromkeys(("schedule", "pipeline_ranks", "stages", "microbatches", "closed_form_bubble_ratio"), why)
    picked = of_steps((r for r in rows(document, "pipeline", "pipelines") if r.get("complete") is not False), steps)
    found: dict[Key, Value] = {}
    for name in ("schedule", "pipeline_ranks", "stages", "microbatches"):
        values = {r.get(name) for r in picked if isinstance(r.get(name), (str, int))}
        if values:
            found[key(name)] = _one(values)
    one = {name: found.get(key(name)) for name in ("schedule", "pipeline_ranks", "microbatches")}
    virtual = {number(r.get("virtual_stages")) for r in picked}
    v = next(iter(virtual)) if len(virtual) == 1 else None
    if isinstance(one["schedule"], str) and isinstance(one["pipeline_ranks"], int) and isinstance(one["microbatches"], int) and v:
        # with equal times of all actions: the form then follows from the schedule alone
        ratio = window_bubble_ratio(one["schedule"], p=one["pipeline_ranks"], m=one["microbatches"], v=int(v))
        if ratio is not None:
            found[key("closed_form_bubble_ratio")] = float(f"{ratio:.9g}")
    return found, {}


def _memory(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "memory")
    if why is not None:
        return {}, {"peak_allocated_bytes": why}
    # the allocator of a CPU frees when its threads get to it: its peak differs from run to run and is measured instead
    whole = [r for r in rows(document, "memory", "peaks") if r.get("step") is None and r.get("device_type") == "gpu"]
    peaks: dict[Key, Value] = {}
    for row in whole:
        bytes_ = number(row.get("allocated_peak_bytes"))
        if bytes_ is not None:
            name = key("peak_allocated_bytes", rank=row.get("rank"))
            before = peaks.get(name)
            peaks[name] = max(_whole(bytes_), before) if isinstance(before, (int, float)) else _whole(bytes_)
    return _by_rank(peaks), {}


def _recompute(document: Document, steps: frozenset[int]) -> _Found:
    why = reason(document, "recompute")
    mode = summary(document, "recompute").get("mode")
    if why is not None or not isinstance(mode, str) or mode == "unknown":
        return {}, {"recompute_mode": why or "whether anything was computed again cannot be told"}
    picked = [r for r in of_steps(rows(document, "recompute", "layers"), steps) if r.get("decidable") is not False]
    runs = _constant("recompute_runs", picked, "recompute_runs", steps, ("layer",))
    return {key("recompute_mode"): mode} | {k: v for k, v in runs.items() if v != 0}, {}


def _constant(metric: str, found: Iterable[Row], column: str, steps: frozenset[int], places: tuple[str, ...]) -> dict[Key, Value]:
    """A column's sum by places and step: the one value of every step, or the list of the different ones; nothing where a part is unknown."""
    sums: dict[Key, dict[Any, float | None]] = {}
    seen = set()
    for row in found:
        step = (row.get("capture", 0), row.get("step"))
        seen.add(step)
        value = number(row.get(column))
        by_step = sums.setdefault(key(metric, **{p: row.get(p) for p in places}), {})
        before = by_step.get(step, 0)
        by_step[step] = None if value is None or before is None else before + value
    out: dict[Key, Value] = {}
    for name, by_step in sums.items():
        values = {None if by_step.get(s, 0) is None else _whole(by_step.get(s, 0) or 0) for s in seen}
        if None not in values:
            out[name] = _one(values)
    return out


def _by_rank(found: Mapping[Key, Value]) -> dict[Key, Value]:
    """Facts of single ranks; of more than ``MOST_RANKS``, the least and the greatest."""
    numbers = {k: v for k, v in found.items() if isinstance(v, (int, float))}
    if len(found) <= MOST_RANKS or len(numbers) < len(found):
        return dict(found)
    metric = next(iter(found)).metric
    return {key(metric, rank="least"): min(numbers.values()), key(metric, rank="greatest"): max(numbers.values())}


def _one(values: set[Any]) -> Value:
    if len(values) == 1:
        only: Value = next(iter(values))
        return only
    return sorted(values, key=lambda v: (isinstance(v, str), v))


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
