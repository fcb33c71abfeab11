"""How long does a step take, on which rank, and which steps count?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Section, grid
from tracekit.report.rows import Row, group, mean, steady_steps, table
from tracekit.report.sections.common import section


def step_time(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``step_time``: one row per step."""
    rows = table(document, "step_time", "steps")
    out: list[Row] = []
    for (step,), of in group(rows, ["step"]).items():
        known = [r for r in of if r.get("duration_ns") is not None]
        slowest = max(known, key=lambda r: r["duration_ns"], default=None)
        out.append(
            {
                "step": step,
                "mean_ns": mean(r.get("duration_ns") for r in of),
                "shortest_ns": min((r["duration_ns"] for r in known), default=None),
                "longest_ns": None if slowest is None else slowest["duration_ns"],
                "slowest rank": None if slowest is None or len(of) < 2 else slowest.get("rank"),
                "counted": _why(of),
            }
        )
    columns = ["step", "mean_ns", "shortest_ns", "longest_ns", *(["slowest rank"] if len({r.get("rank") for r in rows}) > 1 else []), "counted"]
    steady = steady_steps(document)
    obtained = f"measured by the host's ProfilerStep ranges; means are over {fmt.plural(len(steady), 'step')}: {fmt.ranks(steady)}"
    return section(document, "step_time", obtained, ("measured",), grids=(grid("Steps, over all ranks", out, columns),))


def _why(rows: list[Row]) -> str:
    if any(r.get("complete") is False for r in rows):
        return "no: cut by the recording"
    return "no: warm-up" if any(r.get("warmup") for r in rows) else "yes"
