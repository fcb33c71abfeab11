"""Which facts changed? Equal or not, one run per side is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tracekit import thresholds
from tracekit.compare.catalog import Sort
from tracekit.compare.keys import Key
from tracekit.compare.rows import Row
from tracekit.compare.rules import Rules
from tracekit.compare.snapshot import Snapshot
from tracekit.thresholds import Verdict

#: Facts that are counts: where nothing is said of one and nothing is missing, there was none.
COUNTS = frozenset({"collective_count", "collective_bytes", "p2p_count", "p2p_bytes", "operator_count", "recompute_runs"})


def exact_rows(base: Sequence[Snapshot], head: Sequence[Snapshot], rules: Rules) -> list[Row]:
    """One row per fact of either side, in the order of the keys."""
    keys = sorted({k for s in (*base, *head) for k in (*s.facts, *(u for u in s.unknown if rules.entry(u).sort == Sort.FACT))})
    rows = (_row(k, base, head, rules) for k in keys)
    return _vanished([r for r in rows if r.base_runs or r.head_runs])


def _row(key: Key, base: Sequence[Snapshot], head: Sequence[Snapshot], rules: Rules) -> Row:
    entry = rules.entry(key)
    sides = [[_value(s, key) for s in side] for side in (base, head)]
    known = [[v for v in side if v is not None] for side in sides]
    row = Row(key, entry, Verdict.UNCHANGED, _shown(known[0]), _shown(known[1]), len(known[0]), len(known[1]), decisive=entry.decisive)
    for (name, runs), values, found in zip((("base", base), ("head", head)), sides, known, strict=True):
        if len(found) < len(values):
            why = next((why for s in runs for why in (s.unknown.get(key), s.missing.get(key.metric)) if why), "its report does not hold it")
            return row.marked(Verdict.INCOMPARABLE, f"unknown in {'the' if not found else 'some runs of the'} {name}: {why}")
    before, after = (_options(side) for side in known)
    if before == after:
        return row
    if all(_number(v) for v in (*before, *after)):
        verdict = thresholds.scattered(before, after, among_runs=len({str(v) for v in sides[0]}) > 1)
        if verdict is not None:
            span = f"({min(before):g} to {max(before):g})"
            within = f"differs among runs and steps of the base {span}; the head is within"
            own = f"the base's own runs differ {span}: this is no fact here; fix seeds, or give it a tolerance"
            return row.marked(verdict, within if verdict == Verdict.UNCHANGED else own)
    return replace(row, verdict=thresholds.worst_fact(entry.direction, before[-1], after, entry.min_effect))


def _value(run: Snapshot, key: Key) -> Any:
    if key in run.facts:
        return run.facts[key]
    if key in run.unknown:
        return None
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
    kernels = [[_options([side]) for side in (r.base, r.head)] for r in rows if r.key.metric == "kernel_count"]
    known = [sides for sides in kernels if all(_number(v) for side in sides for v in side)]
    fewer = any(max(head) < max(base) for base, head in known)
    how = "no fewer kernels ran" if known and len(known) == len(kernels) else "how many kernels ran is unknown"
    # kinds of which any is left, in any step, or may be
    left = {(r.key.place("axis"), r.key.place("kind")) for r in rows if r.key.metric == "collective_count" and r.head != 0}
    out = []
    for r in rows:
        kind = (r.key.place("axis"), r.key.place("kind"))
        gone = r.key.metric in ("collective_count", "collective_bytes") and r.verdict == Verdict.IMPROVED and kind not in left
        if gone and not fewer:
            r = r.marked(Verdict.INCONCLUSIVE, f"no {kind[1]} is left, and {how}: it may only go by a name that is not known")
        out.append(r)
    return out
