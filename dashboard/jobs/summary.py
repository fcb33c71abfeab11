"""What does the list of runs show of an analysis? The few numbers and the sentence that tell one run from another."""

from __future__ import annotations

from dashboard.store.rows import Summary
from dashboard.tables import said
from tracekit.analysed import Analysed
from tracekit.analysis import plain
from tracekit.report.headline import headline
from tracekit.wording import clean

_LONGEST_HEADLINE = 600


def summary_of(analysis: Analysed) -> Summary:
    """The row of the list; null is unknown."""
    run, health = analysis.run(), analysis.health()
    times, memory, pipeline = (analysis.result(name).summary for name in ("step_time", "memory", "pipeline"))
    peak = memory.get("allocated_peak_bytes")
    sentence, _ = headline({"health": health, "run": run, "metrics": {m.name: said(m.name, analysis.result(m.name)) for m in analysis.metrics}})
    return Summary(
        ranks=len(run["ranks"]),
        steps=len(run["steps"]),
        step_ns=plain(times.get("median_ns")),
        peak_bytes=None if peak is None else int(peak),
        bubble_ratio=plain(pipeline.get("bubble_ratio")),
        verdict=str(health["verdict"]),
        headline=clean(sentence, _LONGEST_HEADLINE),
    )
