"""Analyses made by hand: a tensor-parallel run of two ranks, and an emulated 1F1B pipeline of four."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tracekit.metrics.base import Result, unavailable

MS = 1_000_000
MIB = 2**20
TITLES = {
    "step_time": "Step time",
    "breakdown": "Time breakdown",
    "collectives": "Collectives",
    "straggler": "Stragglers",
    "pipeline": "Pipeline",
    "memory": "Memory",
    "recompute": "Recompute",
    "budget": "Step budget",
}


@dataclass(frozen=True)
class FakeAnalysis:
    """Quacks like an Analysis: ``result(name)`` and ``to_dict()``."""

    results: Mapping[str, Result]
    run: Mapping[str, Any]
    findings: tuple[Mapping[str, Any], ...] = ()
    verdict: str = "ok"
    names: Mapping[str, str] = field(default_factory=lambda: TITLES)

    def result(self, name: str) -> Result:
        return self.results[name]

    def to_dict(self) -> dict[str, Any]:
        metrics = {
            name: {
                "available": r.available,
                "reason": r.reason,
                "title": self.names.get(name, name),
                "definition": f"The definition of {name}, in one line.",
                "notes": list(r.notes),
                "summary": dict(r.summary),
                "tables": {t: f.astype(object).where(f.notna(), None).to_dict("records") for t, f in r.tables.items()},
            }
            for name, r in self.results.items()
        }
        return {
            "schema": "tracekit.report/1",
            "tracekit": "0.1.0",
            "health": {"verdict": self.verdict, "findings": [dict(f) for f in self.findings]},
            "run": dict(self.run),
            "metrics": metrics,
        }


def finding(code: str, severity: str, message: str, **where: Any) -> dict[str, Any]:
    return {"code": code, "severity": severity, "message": message, "file": None, "rank": None, "offset": None, "count": None, **where}


def steps(ranks: int, durations: dict[int, int], warmup: int | None = None) -> Result:
    rows = [
        {"rank": r, "step": s, "duration_ns": d + r * MS, "window_ns": d + r * MS, "complete": True, "warmup": s == warmup}
        for r in range(ranks)
        for s, d in durations.items()
    ]
    return Result(summary={"steps": len(durations)}, tables={"steps": pd.DataFrame(rows)})


def breakdown(ranks: int, numbers: list[int], span: int, compute: int, comm: int, exposed: int) -> Result:
    rows = [
        {
            "rank": r, "device": 0, "step": s, "span_ns": span, "busy_ns": compute + exposed, "compute_ns": compute, "comm_ns": comm,
            "overlap_ns": comm - exposed, "exposed_comm_ns": exposed, "memcpy_ns": 0, "exposed_memcpy_ns": 0, "idle_ns": span - compute - exposed,
        }
        for r in range(ranks)
        for s in numbers
    ]  # fmt: skip
    return Result(tables={"devices": pd.DataFrame(rows)})


def budget(parts: dict[int, list[tuple[str, str | None, int]]], numbers: list[int]) -> Result:
    rows = [{"rank": r, "step": s, "part": part, "axis": axis, "duration_ns": ns} for r, of in parts.items() for s in numbers for part, axis, ns in of]
    return Result(tables={"ranks": pd.DataFrame(rows), "account": account(pd.DataFrame(rows))})


def account(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean account of a table of parts, its losses the largest first; half of what is moved could come back."""
    named = rows.assign(part=rows["part"].replace({"forward": "compute", "backward": "compute"}))
    count = len(rows[["rank", "step"]].drop_duplicates())
    means = (named.groupby(["part", "axis"], dropna=False)["duration_ns"].sum() / count).reset_index().sort_values("duration_ns", ascending=False)
    means = pd.concat([means[means["part"].eq("compute")], means[means["part"].ne("compute")]], ignore_index=True)
    half = (means["duration_ns"] / 2).where(means["part"].eq("comm_transfer")).astype("Float64")
    ratio = means["duration_ns"] / means["duration_ns"].sum()
    by = half.notna().map({True: "overlap", False: None})
    return means.assign(rank=pd.array([None] * len(means), "Int64"), of_step_ratio=ratio, source="measured", recoverable_ns=half, recoverable_by=by, what=None)


def by_layer(layers: int, parts: tuple[str, ...], kind: str) -> pd.DataFrame:
    rows = [
        {
            "step": None, "layer": f"layers.{n}.{part}", "layer_index": n, "direction": direction, "kind": kind, "count": 2, "nbytes": 2 * MIB,
            "transfer_ns": 4 * MS, "wait_ns": (3 + n) * MS, "duration_ns": (11 + n) * MS, "exposed_ns": (7 + n) * MS,
        }
        for n in range(layers)
        for part in parts
        for direction in ("forward", "backward")
    ]  # fmt: skip
    return pd.DataFrame(rows)


def arrivals(ranks: int, number: int = 4, late: int = 1) -> tuple[Result, dict[str, pd.DataFrame]]:
    """Collectives of one tp group to which one rank comes 2 ms after the others: the straggler's Result, and tables of the collectives'."""
    of = ",".join(map(str, range(ranks)))
    calls = [{"instance": f"tp#{i}", "capture": 0, "step": 1 + i % 2, "kind": "all_reduce"} for i in range(number)]
    measured = {"axis": "tp", "nbytes": MIB, "busbw_gbps": 0.5, "wait_resolution_ns": 1000, "layer_source": "range"}
    starts = [{"instance": f"tp#{i}", "rank": r, "start_ns": 10 * i * MS + (2 * MS if r == late else r % 7)} for i in range(number) for r in range(ranks)]
    told = pd.DataFrame([{**c, "group_ranks": of, "last_rank": late, "caused_wait_ns": 2 * MS * (ranks - 1)} for c in calls])
    tables = {"instances": pd.DataFrame([{**c, **measured} for c in calls]), "by_rank": pd.DataFrame(starts)}
    return Result(summary={"rank": late, "cause": "slow_compute"}, tables={"instances": told, "ranks": pd.DataFrame()}), tables


def curve(ranks: int, base: int, peak: int) -> pd.DataFrame:
    up, down = [base + (peak - base) * i // 10 for i in range(11)], [peak - (peak - base) * i // 10 for i in range(1, 11)]
    rows = [
        {"rank": r, "device": 0, "step": 1, "ts_ns": 1000 * MS + i * 10 * MS, "allocated_bytes": b, "reserved_bytes": None,
         "phase": "forward" if i <= 10 else "backward"}
        for r in range(ranks)
        for i, b in enumerate(up + down)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def memory(ranks: int) -> Result:
    parts = {"parameter_bytes": 12, "gradient_bytes": 10, "optimizer_state_bytes": 24, "activation_bytes": 40, "input_bytes": 1, "temporary_bytes": 6}
    unknown = 5
    peaks = [
        {"rank": r, "device": 0, "step": None, "allocated_peak_bytes": (sum(parts.values()) + unknown) * MIB, "allocated_peak_ts_ns": 1100 * MS,
         "reserved_peak_bytes": None, **{k: v * MIB for k, v in parts.items()}, "unknown_bytes": unknown * MIB}
        for r in range(ranks)
    ]  # fmt: skip
    layers = [{"rank": r, "step": None, "layer": f"layers.{n}", "layer_index": n, "activation_bytes": 10 * MIB} for r in range(ranks) for n in range(4)]
    return Result(
        summary={"allocated_peak_bytes": 98 * MIB, "activation_bytes": 40 * MIB, "activation_theory_bytes": 38 * MIB},
        tables={"peaks": pd.DataFrame(peaks), "by_layer": pd.DataFrame(layers), "curve": curve(ranks, 46 * MIB, 98 * MIB)},
    )


def recompute(ranks: int) -> Result:
    row = {"recompute_ns": 30 * MS, "forward_ns": 100 * MS, "backward_ns": 200 * MS, "overhead_of_step_compute_ratio": 0.1, "overhead_of_backward_ratio": 0.15}
    layers = [
        {"rank": 0, "step": 1, "layer": f"layers.{n}", "layer_index": n, "recompute_ns": 7 * MS, "forward_runs": 8, "recompute_runs": 8,
         "saved_bytes": 30 * MIB, "saved_source": "closed_form"}
        for n in range(4)
    ]  # fmt: skip
    return Result(
        summary={
            "mode": "full",
            "theory_overhead_of_step_compute_ratio": 1 / 3,
            "recompute_ns": 30 * MS,
            "overhead_of_step_compute_ratio": 0.1,
            "overhead_of_backward_ratio": 0.15,
            "reissued_collective_ns": 0,
        },
        tables={"ranks": pd.DataFrame([{"rank": r, "step": 1, **row} for r in range(ranks)]), "layers": pd.DataFrame(layers)},
    )


def tp(layer: str = "attention", ranks: int = 2) -> FakeAnalysis:
    """Two ranks of tensor parallelism; ``layer`` names the sublayer of each collective."""
    numbers = [0, 1, 2]
    of = by_layer(4, (layer, "mlp"), "all_reduce")
    cost = {"transfer_ns": 64 * MS, "wait_ns": 72 * MS, "exposed_ns": 90 * MS, "busbw_gbps": 0.52}
    kinds = pd.DataFrame([{"kind": "all_reduce", "axis": "tp", "count": 32, "nbytes": 32 * MIB, **cost}])
    stragglers, calls = arrivals(ranks)
    counts = {"instances": 32, "tp_all_reduce_forward_per_layer_microbatch": 2, "tp_all_reduce_backward_per_layer_microbatch": 2}
    parts = [("forward", None, 80 * MS), ("backward", None, 160 * MS), ("comm_wait", "tp", 60 * MS), ("comm_transfer", "tp", 80 * MS), ("idle", None, 20 * MS)]
    return FakeAnalysis(
        {
            "step_time": steps(ranks, {0: 900 * MS, 1: 400 * MS, 2: 400 * MS}, warmup=0),
            "budget": budget({r: [*parts[:-1], ("idle", None, 20 * MS + r * MS)] for r in range(ranks)}, numbers),
            "breakdown": breakdown(ranks, numbers, 400 * MS, 240 * MS, 150 * MS, 140 * MS),
            "collectives": Result(summary=counts, tables={"by_layer": of, "by_kind": kinds, **calls}, notes=("All ranks were matched.",)),
            "straggler": stragglers,
            "pipeline": unavailable("no pipeline: no action and no pp axis in these traces"),
            "memory": memory(ranks),
            "recompute": recompute(ranks),
        },
        {
            "ranks": list(range(ranks)), "world_size": ranks, "backend": "gloo", "device": "cpu", "mesh": {"tp": ranks}, "steps": numbers,
            "source": ["runs/tp"], "emulated": False, "config": {"recipe": "tp", "training": {"microbatches": 2, "microbatch_size": 4}},
        },
    )  # fmt: skip


def schedule_1f1b(p: int, m: int, unit: int) -> list[dict[str, Any]]:
    """Actions of 1F1B with F = unit and B = 2 units, simulated."""
    order = []
    for s in range(p):
        warm = min(p - s - 1, m)
        queue = [("F", i) for i in range(warm)]
        for i in range(m - warm):
            queue += [("F", warm + i), ("B", i)]
        order.append(queue + [("B", i) for i in range(m - warm, m)])
    done: dict[tuple[str, int, int], int] = {}
    clock, at, rows = [0] * p, [0] * p, []
    while any(at[s] < len(order[s]) for s in range(p)):
        for s in range(p):
            while at[s] < len(order[s]):
                action, i = order[s][at[s]]
                needs = None if (action == "F" and s == 0) or (action == "B" and s == p - 1) else (action, s - 1 if action == "F" else s + 1, i)
                if needs and needs not in done:
                    break
                start = max(clock[s], done.get(needs, 0) + 1 * MS if needs else 0)
                end = start + (unit if action == "F" else 2 * unit)
                done[action, s, i] = clock[s] = end
                rows.append({"step": 1, "stage": s, "rank": s, "action": action, "microbatch": i, "start_ns": start, "end_ns": end})
                at[s] += 1
    return rows


def pipeline(p: int = 4, m: int = 8, unit: int = 20 * MS) -> FakeAnalysis:
    """An emulated 1F1B pipeline: p ranks, m microbatches."""
    actions = pd.DataFrame(schedule_1f1b(p, m, unit))
    window = int(actions.end_ns.max() - actions.start_ns.min())
    work = m * 3 * unit
    stages = pd.DataFrame(
        [
            {
                "stage": s,
                "rank": s,
                "step": 1,
                "work_ns": work,
                "compute_ns": work,
                "exposed_collective_ns": 0,
                "inner_gap_ns": 0,
                "bubble_ns": window - work,
                "fill_ns": int(part.start_ns.min()),
                "steady_wait_ns": window - work - int(part.start_ns.min()) - (window - int(part.end_ns.max())),
                "p2p_transfer_ns": 0,
                "exposed_other_collective_ns": 0,
                "launch_gap_ns": 0,
                "drain_ns": window - int(part.end_ns.max()),
            }
            for s, part in actions.groupby("stage")
        ]
    )
    summary = {"pipeline_ranks": p, "stages": p, "microbatches": m, "schedule": "1f1b", "window_ns": window, "bubble_ratio": 1 - work / window,
               "bubble_over_ideal": window / work - 1, "longest_stage_bubble_ratio": 1 - work / window, "closed_form_bubble_ratio": (p - 1) / (m + p - 1),
               "simulated_bubble_ratio": None}  # fmt: skip
    base = tp(ranks=p)
    results = dict(base.results)
    held = [{"rank": r, "stage": r, "step": 1, "in_flight_microbatches": min(p - r, m), "in_flight_theory_microbatches": min(p - r, m),
             "in_flight_order_microbatches": min(p - r, m)} for r in range(p)]  # fmt: skip
    results["memory"] = replace(results["memory"], tables={**results["memory"].tables, "in_flight": pd.DataFrame(held)})
    results["step_time"] = steps(p, {1: window})
    shares = {"schedule": (p - 1) / (m + p - 1), "handover": 0.01, "imbalance": -0.002, "variation": 0.001}
    summary |= {"simulated_bubble_ratio": sum(shares.values()), **{f"bubble_from_{cause}_ratio": share for cause, share in shares.items()}}
    results["pipeline"] = Result(summary=summary, tables={"stages": stages, "actions": actions})
    results["budget"] = budget(
        {r: [("forward", None, work // 3), ("backward", None, work - work // 3), ("comm_wait", "pp", window - work)] for r in range(p)}, [1]
    )
    results["breakdown"] = breakdown(p, [1], window, work, 3 * MS, 2 * MS)
    results["recompute"] = unavailable("nothing was recomputed")
    run = {**base.run, "mesh": {"pp": p}, "steps": [1], "config": {"recipe": "pp", "pipeline": {"schedule": "1f1b"}}, "source": ["runs/pp"], "emulated": True}
    return FakeAnalysis(results, run, (finding("few_steps", "info", "one step was recorded"),))
