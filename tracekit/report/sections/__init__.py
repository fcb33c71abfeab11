"""Which sections does a report have, and in which order are they read? From the step as a whole down to its causes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracekit.report.parts import Section
from tracekit.report.sections.breakdown import breakdown
from tracekit.report.sections.budget import budget
from tracekit.report.sections.collectives import collectives
from tracekit.report.sections.memory import memory
from tracekit.report.sections.other import other
from tracekit.report.sections.pipeline import pipeline
from tracekit.report.sections.recompute import recompute
from tracekit.report.sections.step_time import step_time
from tracekit.report.sections.straggler import straggler
from tracekit.report.sections.utilization import utilization

#: Metric -> the section that words it, in reading order; a metric that is not here gets the plain section of ``other``.
SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], Section]] = {
    "budget": budget,
    "utilization": utilization,
    "step_time": step_time,
    "breakdown": breakdown,
    "collectives": collectives,
    "straggler": straggler,
    "pipeline": pipeline,
    "memory": memory,
    "recompute": recompute,
}

__all__ = ["SECTIONS", "other"]
