"""How much of what its devices can do does the job get out of them, in words? MFU and HFU, and rank by rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import metric, table
from tracekit.report.sections.common import section

_ALWAYS = ("mfu_ratio", "hfu_ratio", "device_flops_per_s", "peak_flops_per_s")
_WORDS = {"mfu_ratio": "MFU", "hfu_ratio": "HFU", "device_flops_per_s": "model FLOP/s per device", "peak_flops_per_s": "peak of a device"}
_WORDS |= {"model_flops": "model FLOPs of a step", "hardware_flops": "hardware FLOPs of a step", "recompute_source": "who says what was recomputed"}


def utilization(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``utilization``."""
    summary = metric(document, "utilization").get("summary") or {}
    ranks = grid("Per rank", table(document, "utilization", "ranks"), ["rank", "step_ns", "model_flops", "device_flops_per_s", "mfu_ratio"], limit=16)
    obtained = "derived: a closed form over measured time"
    return section(document, "utilization", obtained, ("derived",), facts=facts(summary, _ALWAYS, _WORDS), grids=(ranks,))
