"""Did a change make training slower or hungrier? Runs against runs, with statistics that survive noise."""

from __future__ import annotations

from tracekit.compare.comparison import COMPARISON_SCHEMA, Comparison, compare, without_baseline
from tracekit.compare.rules import Override, Rules
from tracekit.compare.snapshot import SNAPSHOT_SCHEMA, Snapshot, snapshot

__all__ = ["COMPARISON_SCHEMA", "SNAPSHOT_SCHEMA", "Comparison", "Override", "Rules", "Snapshot", "compare", "snapshot", "without_baseline"]
