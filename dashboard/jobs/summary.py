"""What does the list of runs show of an analysis? The few numbers and the sentence that tell one run from another."""

from __future__ import annotations

from typing import Any

from dashboard.store.rows import Summary
from tracekit.analysed import Analysed
from tracekit.analysis import plain, records
from tracekit.report.headline import headline
from tracekit.wording import clean

#: Large tables that no sentence is made of: a job of a thousand ranks has millions of rows in them.
_LEFT_OUT = frozenset(
    {
        ("collectives", "instances"),
        ("collectives", "by_rank"),
        ("collectives", "p2p"),
        ("memory", "curve"),
        ("memory", "owners"),
        ("pipeline", "actions"),
        ("pipeline", "ideal_actions"),
        ("straggler", "instances"),
    }
)
_LONGEST_HEADLINE = 600


def summary_of(analysis: Analysed) -> Summary:
    """The row of the list; null is unknown."""
    run, health = analysis.run(), analysis.health()
    times, memory, pipeline = (analysis.result(name).summary for name in ("step_time", "memory", "pipeline"))
    peak = memory.get("allocated_peak_bytes")
    sentence, _ = headline({"health": health, "run": run, "metrics": {m.name: _metric(analysis, m.name) for m in analysis.metrics}})
    return Summary(
        ranks=len(run["ranks"]),
        steps=len(run["steps"]),
        step_ns=plain(times.get("median_ns")),
        peak_bytes=None if peak is None else int(peak),
        bubble_ratio=plain(pipeline.get("bubble_ratio")),
        verdict=str(health["verdict"]),
        headline=clean(sentence, _LONGEST_HEADLINE),
    )


def _metric(analysis: Analysed, name: str) -> dict[str, Any]:
    result = analysis.result(name)
    tables = {t: records(frame) for t, frame in result.tables.items() if (name, t) not in _LEFT_OUT}
    return {"available": result.available, "reason": result.reason, "notes": list(result.notes), "summary": plain(dict(result.summary)), "tables": tables}
