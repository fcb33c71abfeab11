"""Which limits must a run keep? ``bubble_ratio <= 0.15``, ``peak_memory_bytes <= 70 GiB``; read, never evaluated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tracekit.compare.keys import Key
from tracekit.compare.snapshot import Snapshot
from tracekit.errors import UsageError
from tracekit.thresholds import Verdict, within

_BUDGET = re.compile(
    r"^\s*(?P<name>[A-Za-z][\w.]{0,120})(?:\[(?P<where>[^\]]{0,200})\])?\s*(?P<comparison><=|>=|<|>)\s*(?P<number>-?\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,3})?)"
    r"\s*(?P<unit>[A-Za-zµ%/]{0,5})\s*$",
)
_TIME = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SIZE = {"B": 1.0, **{f"{p}B": 1000.0**i for i, p in enumerate("kMGTP", 1)}, **{f"{p}iB": 1024.0**i for i, p in enumerate("KMGTP", 1)}, "KB": 1000.0}
#: Units by the end of a name; a number without unit is in the name's own.
_UNITS: dict[str, Mapping[str, float]] = {"_ns": _TIME, "_bytes": _SIZE, "nbytes": _SIZE, "_ratio": {"%": 0.01}, "_gbps": {"GB/s": 1.0, "MB/s": 1e-3}}


@dataclass(frozen=True)
class Budget:
    """One limit.

    Attributes:
        text: as it was written.
        name: the metric: a compared one, a summary's field (``pipeline.bubble_ratio``), or one of the usual short names.
        where: places it is about, as in ``comm_wait_ns[axis=tp]``.
        comparison: <=, <, >= or >.
        limit: in the name's own unit (ns, bytes, a ratio, GB/s).
    """

    text: str
    name: str
    where: tuple[tuple[str, str], ...]
    comparison: str
    limit: float


def budget(text: str) -> Budget:
    """A limit, read from its text.

    Raises:
        UsageError: it is none.

    >>> budget("peak_memory_bytes <= 70 GiB").limit, budget("bubble_ratio <= 15 %").limit
    (75161927680.0, 0.15)
    """
    found = _BUDGET.match(text)
    if found is None:
        raise UsageError(f"{text[:100]!r} is no limit: write a name, <=, <, >= or >, and a number, such as 'bubble_ratio <= 0.15' or 'step_time_ns <= 250 ms'")
    name, unit = found["name"], found["unit"]
    units = next((u for end, u in _UNITS.items() if name.endswith(end)), {})
    if unit and unit not in units:
        known = f"one of {', '.join(units)}" if units else "no unit"
        raise UsageError(f"{text[:100]!r}: {name} takes {known}, not {unit}")
    where = []
    for pair in filter(None, re.split(r"[\s,]+", found["where"] or "")):
        place, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{text[:100]!r}: write places as [axis=tp layer=layers.3]")
        where.append((place, value))
    bound = float(found["number"]) * (units[unit] if unit else 1.0)
    if not math.isfinite(bound):
        raise UsageError(f"{text[:100]!r}: this number is too large to be a limit")
    return Budget(text.strip(), name, tuple(where), found["comparison"], bound)


def held(limit: Budget, head: Sequence[Snapshot]) -> dict[str, Any]:
    """A limit against the runs of the head: bytes by their greatest, everything else by its median over runs; unknown is inconclusive."""
    values = [value_of(limit, s) for s in head]
    known = [v for v in values if v is not None]
    row = {"budget": limit.text, "name": limit.name, "where": dict(limit.where), "comparison": limit.comparison, "limit": limit.limit}
    if not known or len(known) < len(values):
        reasons = (why for s in head for why in (s.missing.get(limit.name), *(w for k, w in s.unknown.items() if _about(limit, k))) if why)
        why = next(reasons, "no run of the head has this number")
        return row | {"value": None, "verdict": Verdict.INCONCLUSIVE.value, "reason": why if not known else "unknown in some runs of the head"}
    value = max(known) if limit.name.endswith("bytes") and limit.comparison in ("<=", "<") else float(median(known))
    kept = within(value, limit.comparison, limit.limit)
    return row | {"value": value, "verdict": (Verdict.UNCHANGED if kept else Verdict.REGRESSED).value, "reason": None}


def value_of(limit: Budget, run: Snapshot) -> float | None:
    """A run's number: of the compared metrics, the place and step that is nearest to the limit or past it; else of the summaries.

    None where it has none, or where that of one place is unknown: it might be the one that breaks the limit.
    """
    if any(_about(limit, k) for k in run.unknown):
        return None
    values = [v for numbers in (run.timed, run.facts) for k, v in numbers.items() if _about(limit, k)]
    found = [one for v in values for one in (v if isinstance(v, list) else [v]) if isinstance(one, (int, float))]
    if found:
        return max(found) if limit.comparison in ("<=", "<") else min(found)
    return run.levels.get(limit.name) if not limit.where else None


def _about(limit: Budget, key: Key) -> bool:
    return key.metric == limit.name and all(key.place(p) == value for p, value in limit.where)
