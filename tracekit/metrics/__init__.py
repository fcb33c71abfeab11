"""Job -> Result: which questions does tracekit answer?"""

from __future__ import annotations

from tracekit.metrics import (
    bandwidth,
    breakdown,
    budget,
    clock,
    collectives,
    flight_recorder,
    links,
    memory,
    operators,
    pipeline,
    recompute,
    records,
    step_time,
    straggler,
    utilization,
)
from tracekit.metrics.base import Metric, Result, unavailable

#: In the order in which a report shows them.
METRICS: tuple[Metric, ...] = tuple(
    m.METRIC
    for m in (
        *(budget, utilization, step_time, breakdown, collectives, pipeline, memory, recompute, straggler),
        *(clock, flight_recorder, links, operators, records, bandwidth),
    )
)

__all__ = ["METRICS", "Metric", "Result", "unavailable"]
