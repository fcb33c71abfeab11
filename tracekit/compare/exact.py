"""Which facts changed? Equal or not, one run per side is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracekit import thresholds
from tracekit.compare.keys import Key
from tracekit.compare.rows import Row
from tracekit.compare.rules import Rules
from tracekit.compare.snapshot import Snapshot
from tracekit.thresholds import Verdict

#: Facts that are counts: where nothing is said of one and nothing is missing, there was none.
COUNTS = frozenset({"collective_count", "collective_bytes", "p2p_count", "p2p_bytes", "operator_count", "recompute_runs"})


def exact_rows(base: Sequence[Snapshot], head: Sequence[Snapshot], rules: Rules) -> list[Row]:
    """One row per fact of either side, in the order of the keys."""
    keys = sorted({k for s in (*base, *head) for k in s.facts})
    return _vanished([_row(k, base, head, rules) for k in keys])


def _row(key: Key, base: Sequence[Snapshot], head: Sequence[Snapshot], rules: Rules) -> Row:
    entry = rules.entry(key)
    sides = [[_value(s, key) for s in side] for side in (base, head)]
    known = [[v for v in side if v is not None] for side in sides]
    row = Row(key, entry, Verdict.UNCHANGED, _shown(known[0]), _shown(known[1]), len(known[0]), len(known[1]), decisive=entry.decisive)
    for (name, runs), values, found in zip((("base", base), ("head", head)), sides, known, strict=True):
        if len(found) < len(values):
            why = next((s.missing[key.metric] for s in runs if key.metric in s.missing), "its report does not hold it")
            return row.marked(Verdict.INCOMPARABLE, f"unknown in {'the' if not found else 'some runs of the'} {name}: {why}")
    before, after = (_options(side) for side in known)
    if before == after:
        return row
    if len(before) > 1 and all(_number(v) for v in (*before, *after)):
        low, high = min(before), max(before)
        if all(low <= v <= high for v in after):
            return row.marked(Verdict.UNCHANGED, f"differs among runs and steps of the base ({low:g} to {high:g}); the head is within")
        if len({str(_value(s, key)) for s in base}) > 1:
            return row.marked(
                Verdict.INCONCLUSIVE, f"the base's own runs differ ({low:g} to {high:g}): this is no fact here; fix seeds, or give it a tolerance"
            )
    # of several values, the worst decides
    verdicts = [thresholds.fact(entry.direction, b, a, entry.min_effect) for b in (before[-1],) for a in after]
    worst = next((v for v in (Verdict.REGRESSED, Verdict.IMPROVED) if v in verdicts), Verdict.UNCHANGED)
    return row if worst == Verdict.UNCHANGED else row.marked(worst)


def _value(run: Snapshot, key: Key) -> Any:
    if key in run.facts:
        return run.facts[key]
    return 0 if key.metric in COUNTS and key.metric not in run.missing else None


def _options(values: Iterable[Any]) -> list[Any]:
    """The different values of several runs and their steps, in order."""
    flat = {v for value in values for v in (value if isinstance(value, list) else [value])}
    return sorted(flat, key=lambda v: (isinstance(v, str), v))


def _shown(values: Sequence[Any]) -> Any:
    options = _options(values)
    return None if not options else options[0] if len(options) == 1 else options


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _vanished(rows: list[Row]) -> list[Row]:
    """Doubt a whole kind of collective that is gone: where no kernel went with it, the reading of its name failed and nothing was saved."""
    kernels = [r for r in rows if r.key.metric == "kernel_count"]
    fewer = bool(kernels) and any(r.change is not None and r.change < 0 for r in kernels)
    left: dict[Any, float] = {}
    for r in rows:
        if r.key.metric == "collective_count" and isinstance(r.head, (int, float)):
            kind = (r.key.place("axis"), r.key.place("kind"))
            left[kind] = left.get(kind, 0) + r.head
    out = []
    for r in rows:
        kind = (r.key.place("axis"), r.key.place("kind"))
        gone = r.key.metric in ("collective_count", "collective_bytes") and r.verdict == Verdict.IMPROVED and left.get(kind) == 0
        if gone and not fewer:
            r = r.marked(Verdict.INCONCLUSIVE, f"no {kind[1]} is left, and no fewer kernels ran: it may only go by a name that is not known")
        out.append(r)
    return out
