"""Job -> Result: which questions does tracekit answer?"""

from __future__ import annotations

from tracekit.metrics import breakdown, budget, collectives, memory, pipeline, recompute, step_time
from tracekit.metrics.base import Metric, Result, unavailable

#: In the order in which a report shows them.
METRICS: tuple[Metric, ...] = tuple(m.METRIC for m in (budget, step_time, breakdown, collectives, pipeline, memory, recompute))

__all__ = ["METRICS", "Metric", "Result", "unavailable"]
