"""What would another schedule, another split of the layers, or a job without its straggler take? From the times that a run measured.

The schedule that ran is simulated first with its own times (:mod:`tracekit.job.replay`). Where that misses the measured window by more than
5 %, nothing is said to be trusted. An alternative is simulated with the mean times of the stages, carried over to its own stages by depth:
a stage that is half of a measured one takes half its time, one that spans two takes both. Memory is what the rank held beside activations,
and its activations per microbatch in the number that the alternative holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis import Analysis, plain, records
from tracekit.errors import UsageError
from tracekit.job.pipelines import Pipeline, pipelines
from tracekit.job.replay import TRUSTED, Replay, replays
from tracekit.metrics.base import Result, unavailable
from tracekit.schedule import catalog
from tracekit.schedule.held import held_peaks, peak_bytes
from tracekit.schedule.orders import order, overlapped
from tracekit.schedule.recognise import UNKNOWN, recognise
from tracekit.schedule.simulate import Times, simulate

WHAT_IF_SCHEMA = "tracekit.what_if/1"
Floats = npt.NDArray[np.float64]
#: Schedules that are tried where none is asked for; DualPipe needs a second copy of the model.
_TRIED = tuple(name for name in catalog.SCHEDULES if name != "dualpipe")
_COLUMNS = ["label", "schedule", "virtual_stages", "microbatches", "balance", "without_straggler", "possible", "reason", "window_ns", "step_ns"]
_COLUMNS += ["step_per_microbatch_ns", "time_change_ratio", "bubble_ratio", "in_flight_peak", "memory_peak_bytes", "fits", "as_it_ran"]


@dataclass(frozen=True)
class Alternative:
    """Something to try.

    Attributes:
        schedule: a key of ``schedule.catalog.SCHEDULES``; None: the one that ran.
        microbatches: microbatches per step; None: as many as ran.
        virtual: stages per rank; None: as many as ran where the schedule can, else the fewest that it can.
        balance: ``measured`` (the stages' own times) or ``even`` (all stages take their mean).
        without_straggler: with the times that the straggler's stages take on the ranks of the other pipelines.
    """

    schedule: str | None = None
    microbatches: int | None = None
    virtual: int | None = None
    balance: str = "measured"
    without_straggler: bool = False


@dataclass(frozen=True)
class _Measured:
    """What the run measured, means over its steady pipelines and steps.

    Attributes:
        schedule, ranks, virtual, microbatches: what ran.
        split: it ran I and W apart.
        depth: per stage in order of depth, F, I and W in ns.
        healthy: the same, with the straggler's stages as the other pipelines run them; None where nothing tells.
        handover, overhead: ns (``job.replay``).
        rest_ns: of the step, outside the window.
        window_ns, error_ratio: as measured, and how far the simulation of what ran is off.
        beside_bytes, stage_bytes: per rank what is no activation; per stage the activations of a microbatch; None where unknown.
    """

    schedule: str
    ranks: int
    virtual: int
    microbatches: int
    split: bool
    depth: Floats
    healthy: Floats | None
    handover: int
    overhead: int
    rest_ns: float | None
    window_ns: float
    error_ratio: float
    beside_bytes: tuple[int, ...] | None
    stage_bytes: Floats | None


def what_if(
    analysis: Analysis, alternatives: Sequence[Alternative] | None = None, memory_limit_bytes: int | None = None, multiples: Sequence[int] = (1,)
) -> Result:
    """Step time, bubble and memory of alternatives to the pipeline that a run recorded.

    Args:
        analysis: of a run with a pipeline whose ranks are all here.
        alternatives: what to try; None tries every schedule with the run's microbatches, an even split, and no straggler.
        memory_limit_bytes: memory of a device; alternatives that need more come last.
        multiples: where ``alternatives`` is None, every schedule is tried with so many times the run's microbatches.

    Returns:
        A result with table ``alternatives`` (the best first: those that fit, by step time per microbatch) and the summary of the run:
        ``trusted``, ``simulation_error_ratio`` and what ran. Unavailable where there is no whole pipeline.
    """
    result = analysis.result("pipeline")
    if not result.available:
        return unavailable(str(result.reason))
    measured = _measure(analysis)
    if measured is None:
        return unavailable("no pipeline is here with all its ranks, on clocks that agree and in whole steps: its own schedule cannot be simulated")
    asked = list(alternatives) if alternatives is not None else _default(measured, multiples)
    rows = [_tried(measured, Alternative(), memory_limit_bytes) | {"as_it_ran": True}]
    rows += [_tried(measured, one, memory_limit_bytes) | {"as_it_ran": False} for one in asked]
    own = rows[0].get("step_per_microbatch_ns")
    for row in rows:
        took = row.get("step_per_microbatch_ns")
        row["time_change_ratio"] = took / own - 1 if own and took else None
    table = pd.DataFrame(rows, columns=_COLUMNS).astype(
        dict.fromkeys(("virtual_stages", "microbatches", "window_ns", "step_ns", "in_flight_peak", "memory_peak_bytes"), "Int64")
    )
    table = _ranked(table)
    return Result(_summary(measured, table, memory_limit_bytes), {"alternatives": table}, notes=tuple(_notes(measured, table, analysis)))


def narrowed(result: Result, microbatches: int | None = None, memory_limit_bytes: int | None = None) -> Result:
    """A what-if that is available, of one number of microbatches, against another memory limit: what was simulated stays as it was.

    Args:
        result: of :func:`what_if`.
        microbatches: alternatives with another number are left out, what ran is not; None: as many as ran.
        memory_limit_bytes: memory of a device; None: none.
    """
    table = result.tables["alternatives"]
    wanted = int(result.summary["microbatches"]) if microbatches is None else microbatches
    table = table[table["as_it_ran"].astype(bool) | table["microbatches"].eq(wanted)]
    peaks = table["memory_peak_bytes"]
    fits = [None if memory_limit_bytes is None or pd.isna(n) else bool(n <= memory_limit_bytes) for n in peaks]
    table = _ranked(table.assign(fits=pd.Series(fits, index=table.index, dtype=object)))
    return Result({**result.summary, "memory_limit_bytes": memory_limit_bytes, **_best(table)}, {"alternatives": table}, notes=result.notes)


def _ranked(table: pd.DataFrame) -> pd.DataFrame:
    """The best first: those that fit, by step time per microbatch; last what cannot be."""
    late = table["fits"].map({True: 0, None: 0, False: 1}).fillna(0) + (~table["possible"].astype(bool)) * 2
    by = ["_late", "step_per_microbatch_ns"]
    return table.assign(_late=late).sort_values(by, kind="stable", na_position="last", ignore_index=True).drop(columns="_late")


def _best(table: pd.DataFrame) -> dict[str, Any]:
    """What the summary says of the best alternative that fits."""
    possible = table[table["possible"].astype(bool) & table["fits"].ne(False)]
    best = possible.iloc[0] if len(possible) else None
    return {
        "best": None if best is None else str(best["label"]),
        "best_time_change_ratio": None if best is None else float(best["time_change_ratio"]),
    }


def _measure(analysis: Analysis) -> _Measured | None:
    """Means over the steady pipelines and steps of the schedule that ran most."""
    job = analysis.job
    every = [(p, r) for p, r in zip(pipelines(job), replays(job), strict=True) if p.complete and p.causal]
    steady = [(p, r) for p, r in every if p.step in job.steady_steps] or every
    played = [(p, r) for p, r in steady if r is not None]
    if not played:
        return None
    first, one = played[0]
    alike = [(p, r) for p, r in played if r.placement == one.placement and r.orders == one.orders]
    known = recognise({rank: list(lane) for rank, lane in enumerate(one.orders)}, len(one.orders))
    if known.name == UNKNOWN or known.virtual is None or known.microbatches is None:
        return None
    depth = np.mean([_depth(r) for _, r in alike], axis=0)
    window = float(np.mean([r.window_ns for _, r in alike]))
    beside, stages = _memory(analysis, first, one)
    return _Measured(
        schedule=known.name,
        ranks=len(one.orders),
        virtual=known.virtual,
        microbatches=known.microbatches,
        split=any(a.action == "I" for lane in one.orders for a in lane),
        depth=depth,
        healthy=_healthy(analysis, alike),
        handover=round(float(np.median([ns for _, r in alike for ns in r.handover.values()] or [0]))),
        overhead=round(float(np.median([r.overhead for _, r in alike]))),
        rest_ns=_rest(analysis, [p for p, _ in alike], window),
        window_ns=window,
        error_ratio=float(max((r.error_ratio for _, r in alike), key=abs)),
        beside_bytes=beside,
        stage_bytes=stages,
    )


def _depth(one: Replay) -> Floats:
    """F, I and W of each stage in ns, the mean over its microbatches; a whole backward is divided in halves."""
    spans: dict[tuple[int, str], list[int]] = {}
    for a, ns in one.times.items():
        spans.setdefault((a.stage, a.action), []).append(ns)
    mean = {key: sum(ns) / len(ns) for key, ns in spans.items()}
    return np.array([_divided(*(mean.get((stage, kind)) for kind in "FBIW")) for stage in sorted({stage for stage, _ in mean})], np.float64)


def _divided(f: float | None, b: float | None, i: float | None, w: float | None) -> tuple[float, float, float]:
    """F, I and W of a stage that runs these; NaN where they do not tell."""
    # a first stage's W is its whole backward
    whole, weight = (w, None) if b is None and i is None else (b, w)
    half = math.nan if whole is None else whole / 2
    return math.nan if f is None else f, half if i is None else i, half if weight is None else weight


def _healthy(analysis: Analysis, alike: Sequence[tuple[Pipeline, Replay]]) -> Floats | None:
    """Stage times with those of the straggler's pipeline left out; None where no rank stands out by its compute, or no other pipeline is here."""
    summary = analysis.result("straggler").summary
    rank = summary.get("rank")
    if rank is None or summary.get("cause") != "slow_compute":
        return None
    others = [_depth(r) for p, r in alike if rank not in p.ranks]
    return np.mean(others, axis=0) if others and len(others) < len(alike) else None


def _rest(analysis: Analysis, found: Sequence[Pipeline], window: float) -> float | None:
    """What of a step lies outside the window; None where there are no step marks."""
    steps = analysis.job.table("steps")
    mine = steps[steps["step"].isin([p.step for p in found])]
    lengths = (mine["window_end_ns"] - mine["window_start_ns"]).groupby(mine["step"]).max()
    return max(0.0, float(lengths.mean()) - window) if len(lengths) else None


def _memory(analysis: Analysis, pipeline: Pipeline, one: Replay) -> tuple[tuple[int, ...] | None, Floats | None]:
    """Per place what its rank held beside activations at the peak; per stage what one microbatch keeps. None where it is not known for all."""
    peaks = analysis.job.table("memory_peaks")
    mine = peaks[peaks["step"].eq(-1 if pipeline.step is None else pipeline.step) & peaks["activation_bytes"].notna()] if len(peaks) else peaks
    by_rank = mine.sort_values("allocated_peak_bytes").drop_duplicates("rank", keep="last").set_index("rank") if len(mine) else mine
    if not len(mine) or not set(one.ranks) <= set(by_rank.index):
        return None, None
    activation = by_rank.loc[list(one.ranks), "activation_bytes"].to_numpy(np.float64)
    beside = by_rank.loc[list(one.ranks), "allocated_peak_bytes"].to_numpy(np.int64) - activation.astype(np.int64)
    _, held = held_peaks(one.orders)
    each = activation / held.sort_values("rank")["in_flight"].to_numpy()
    return tuple(beside.tolist()), each[list(one.placement.rank_of)]


def _default(measured: _Measured, multiples: Sequence[int]) -> list[Alternative]:
    tried = [(name, n) for n in multiples for name in _TRIED if (name, n) != (measured.schedule, 1)]
    out = [Alternative(schedule=name, microbatches=None if n == 1 else n * measured.microbatches) for name, n in tried]
    out.append(Alternative(balance="even"))
    return out + ([Alternative(without_straggler=True)] if measured.healthy is not None else [])


def _tried(measured: _Measured, one: Alternative, limit: int | None) -> dict[str, Any]:
    """One row of the table."""
    name = one.schedule or measured.schedule
    m = one.microbatches or measured.microbatches
    balance = one.balance
    row: dict[str, Any] = {"schedule": name, "microbatches": m, "balance": balance, "without_straggler": one.without_straggler, "possible": False}
    row |= {"label": _label(measured, one, name, m), "virtual_stages": None, "fits": None}
    try:
        v = _virtual(measured, one, name)
        row["virtual_stages"] = v
        lanes, where = order(name, measured.ranks, m, v), catalog.placement(name, measured.ranks, v)
    except UsageError as error:
        return row | {"reason": str(error)}
    if where.pipelines > 1:
        return row | {"reason": "two copies of the model: what the second one takes was not measured"}
    if one.without_straggler and measured.healthy is None:
        return row | {"reason": "no rank stands out by slow compute, or no other pipeline runs the same stages: the times without it are not known"}
    depth = measured.healthy if one.without_straggler and measured.healthy is not None else measured.depth
    stages = _carried(depth, len(where.rank_of), balance)
    whole = np.rint(stages).astype(np.int64)
    times = Times(*(tuple(whole[:, k].tolist()) for k in range(3)))
    found = simulate(lanes, where, times, measured.handover, measured.overhead, overlapped(name, measured.ranks, m))
    step = None if measured.rest_ns is None else found.window_ns + measured.rest_ns
    took = (found.window_ns if step is None else step) / m
    row |= {"possible": True, "reason": None, "window_ns": found.window_ns, "step_ns": None if step is None else round(step), "step_per_microbatch_ns": took}
    row |= {"bubble_ratio": found.bubble_ratio, "in_flight_peak": found.in_flight_peak}
    if measured.beside_bytes is not None and measured.stage_bytes is not None:
        per_stage = np.ceil(_carried(measured.stage_bytes[:, None], len(where.rank_of), "measured")[:, 0]).astype(np.int64)
        held = peak_bytes(lanes, per_stage.tolist())
        row["memory_peak_bytes"] = max(a + b for a, b in zip(held, measured.beside_bytes, strict=True))
        row["fits"] = None if limit is None else bool(row["memory_peak_bytes"] <= limit)
    return row


def _virtual(measured: _Measured, one: Alternative, name: str) -> int:
    """Stages per rank: what is asked for, else what ran where the schedule can, else its fewest."""
    if one.virtual is not None:
        return catalog.stages_per_rank(name, one.virtual)
    try:
        return catalog.stages_per_rank(name, measured.virtual)
    except UsageError:
        return catalog.stages_per_rank(name)


def _carried(depth: Floats, stages: int, balance: str) -> Floats:
    """Amounts per stage carried over to another number of stages by depth; the sums stay.

    >>> _carried(np.array([[2.0], [4.0]]), 4, "measured")[:, 0].tolist(), _carried(np.array([[2.0], [4.0]]), 1, "measured")[:, 0].tolist()
    ([1.0, 1.0, 2.0, 2.0], [6.0])
    >>> _carried(np.array([[2.0], [4.0]]), 2, "even")[:, 0].tolist()
    [3.0, 3.0]
    """
    total = np.vstack([np.zeros(depth.shape[1]), depth.cumsum(axis=0)])
    edges = np.linspace(0, len(depth), stages + 1)
    if balance == "even":
        return np.tile(total[-1] / stages, (stages, 1))
    whole = np.column_stack([np.interp(edges, np.arange(len(total)), column) for column in total.T])
    return np.diff(whole, axis=0)


def _label(measured: _Measured, one: Alternative, name: str, m: int) -> str:
    parts = [name]
    if one.virtual is not None:
        parts.append(f"v={one.virtual}")
    if m != measured.microbatches:
        parts.append(f"m={m}")
    if one.balance == "even":
        parts.append("even stages")
    if one.without_straggler:
        parts.append("without the straggler")
    return ", ".join(parts)


def _summary(measured: _Measured, table: pd.DataFrame, limit: int | None) -> dict[str, Any]:
    return {
        "trusted": abs(measured.error_ratio) <= TRUSTED,
        "simulation_error_ratio": measured.error_ratio,
        "schedule": measured.schedule,
        "pipeline_ranks": measured.ranks,
        "virtual_stages": measured.virtual,
        "microbatches": measured.microbatches,
        "window_ns": round(measured.window_ns),
        "handover_ns": measured.handover,
        "overhead_ns": measured.overhead,
        "memory_limit_bytes": limit,
        **_best(table),
    }


def _notes(measured: _Measured, table: pd.DataFrame, analysis: Analysis) -> list[str]:
    out = []
    if abs(measured.error_ratio) > TRUSTED:
        out.append(
            f"These numbers cannot be trusted: the simulation of the schedule that ran is {abs(measured.error_ratio):.1%} "
            f"{'longer' if measured.error_ratio > 0 else 'shorter'} than what was measured."
        )
    if not measured.split and any(catalog.SCHEDULES[str(s)].split for s in table["schedule"]):
        out.append("Backwards ran whole: for schedules that split them, input and weight gradients are assumed to take half each.")
    out.append("Times of other stages are carried over by depth: embedding and head are spread over the measured stage that holds them.")
    if measured.stage_bytes is None:
        out.append("Memory is unknown: the traces hold no memory events for every rank (profile_memory=True).")
    else:
        out.append("Memory of split backwards is an upper bound: all of a microbatch's activations are kept until its weight gradient.")
    if analysis.job.emulated:
        out.append("Compute was emulated: the ranks slept; these times are of the emulation.")
    return out


def to_dict(result: Result) -> Mapping[str, Any]:
    """The document (schema ``tracekit.what_if/1``): only str, int, float, bool, None, lists and dicts."""
    return what_if_document(result, "pipeline")


def what_if_document(result: Result, kind: str) -> Mapping[str, Any]:
    """The document of a what-if of some kind: its table ``alternatives``, its summary, and what it rests on."""
    return {
        "schema": WHAT_IF_SCHEMA,
        "kind": kind,
        "available": result.available,
        "reason": result.reason,
        "notes": list(result.notes),
        "summary": plain(dict(result.summary)),
        "alternatives": records(result.tables["alternatives"]) if result.available else [],
    }
