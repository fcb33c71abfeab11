"""Which rank do the others wait for? The ranks side by side, then the collectives that cost most waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import metric, table
from tracekit.report.sections.common import section

_RANKS = ["rank", "collectives", "last_arrivals", "expected_last_arrivals", "lateness_mean_ns", "caused_wait_ns", "expected_wait_ns", "cause"]
_CALLS = ["step", "kind", "group_ranks", "last_rank", "lead_ns", "caused_wait_ns", "cause"]
_MOST = 10


def straggler(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``straggler``."""
    summary = metric(document, "straggler").get("summary") or {}
    rank = summary.get("rank")
    stands_out = ("rank that stands out", "none" if rank is None else f"{rank}: {fmt.clean(summary.get('cause') or fmt.UNKNOWN)}")
    calls = sorted(table(document, "straggler", "instances"), key=lambda r: -(r.get("caused_wait_ns") or 0))
    waits = [*_CALLS, *(["waits_for"] if any(r.get("waits_for") is not None for r in calls) else [])]
    shown = (stands_out, *facts({k: v for k, v in summary.items() if k not in ("rank", "cause")}))
    grids = (
        grid("Ranks", table(document, "straggler", "ranks"), _RANKS),
        grid("Collectives that the last rank held up longest", calls, waits, limit=_MOST, left_out=", the longest waits first"),
    )
    return section(document, "straggler", "measured", ("measured",), shown, grids)
