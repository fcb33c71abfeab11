"""Job -> Result: which questions does tracekit answer?"""

from __future__ import annotations

import importlib
import importlib.util

from tracekit.metrics.base import Metric, Result, unavailable

#: In the order in which a report shows them.
METRIC_MODULES = ("budget", "step_time", "breakdown", "collectives", "pipeline", "memory", "recompute")

METRICS: tuple[Metric, ...] = tuple(importlib.import_module(f"tracekit.metrics.{name}").METRIC for name in METRIC_MODULES if importlib.util.find_spec(f"tracekit.metrics.{name}"))

__all__ = ["METRICS", "Metric", "Result", "unavailable"]
