"""How large is the pipeline bubble, beside its closed form, and where does each stage lose its time?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import Row, group, mean_rows, metric, of_steps, steady_steps, table, total
from tracekit.report.sections.common import section

FIRST = [
    "schedule", "pipeline_ranks", "stages", "microbatches", "window_ns", "bubble_ratio", "closed_form_bubble_ratio", "simulated_bubble_ratio",
    "bubble_over_ideal", "longest_stage_bubble_ratio",
]  # fmt: skip
PARTS = [
    "work_ns", "bubble_ns", "fill_ns", "steady_wait_ns", "p2p_transfer_ns", "exposed_other_collective_ns", "launch_gap_ns", "drain_ns",
]  # fmt: skip


#: What a rank waits between its own actions, by what causes it.
WAITS = ("wait_from_schedule_ns", "wait_from_handover_ns", "wait_from_imbalance_ns", "wait_from_variation_ns")


def pipeline(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``pipeline``: the ratios side by side, then the bubble of each stage in parts."""
    summary = metric(document, "pipeline").get("summary") or {}
    once = {k: v for k, v in summary.items() if k not in PARTS and k not in ("emulated", "steps")}
    rows = per_rank(of_steps(table(document, "pipeline", "stages"), steady_steps(document)))
    title = "Per rank, mean step: bubble = fill + steady wait + p2p transfer + exposed other collective + launch gap + drain"
    stages = grid(title, rows, ["rank", "stages" if any("," in r["stages"] for r in rows) else "stage", *PARTS])
    obtained = "measured from the spans of the pipeline's actions, beside the closed form of the schedule (theory)"
    told = [r for r in rows if r.get(WAITS[0]) is not None]
    waits = grid("Per rank, mean step: what it waits between its own actions, by cause (simulated)", told, ["rank", *WAITS])
    return section(document, "pipeline", obtained, ("measured",), facts(once, FIRST), (stages, waits))


def per_rank(stages: list[Row]) -> list[dict[str, Any]]:
    """One row per rank: the work of its stages added, the parts of the window, which all of its stages share, once."""
    rows = mean_rows(stages, ["rank", "stage"], [*PARTS, *(c for c in WAITS if any(c in r for r in stages))])
    out = []
    for (rank,), of in group(rows, ["rank"]).items():
        numbers = sorted(r["stage"] for r in of)
        names = {"stage": numbers[0], "stages": ", ".join(map(str, numbers))}
        out.append({"rank": rank, **names, **{c: of[0][c] for c in (*PARTS, *WAITS) if c in of[0]}, "work_ns": total(r["work_ns"] for r in of)})
    return sorted(out, key=lambda r: (r["stage"], r["rank"]))
