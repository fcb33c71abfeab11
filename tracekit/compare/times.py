"""Which times changed? Tests over runs, in three families that share the false alarms which are allowed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tracekit import thresholds
from tracekit import wording as fmt
from tracekit.compare import statistics as st
from tracekit.compare.catalog import Entry, Sort
from tracekit.compare.keys import Key
from tracekit.compare.rows import Row
from tracekit.compare.rules import Rules
from tracekit.compare.siblings import relative
from tracekit.compare.snapshot import Snapshot
from tracekit.compare.timed import BUDGET
from tracekit.thresholds import Verdict

#: Share of the allowed false alarms that each family has.
SHARES = {Sort.STEP: thresholds.STEP_SHARE, Sort.PART: thresholds.PART_SHARE, Sort.DETAIL: thresholds.DETAIL_SHARE}
#: These come from elsewhere than the step's budget: where one is not named it is unknown, not zero.
_NOT_OF_THE_BUDGET = frozenset(
    {"step_time_ns", "compute_ns", "exposed_comm_ns", "bubble_ratio", "pipeline_window_ns", "measured_peak_bytes", "reserved_peak_bytes"}
)
#: Of a logarithm: no ratio as large can be written.
_BEYOND = 700.0


@dataclass(frozen=True)
class _Sides:
    """The numbers of one metric, and of its layers relative to their siblings where there are enough."""

    key: Key
    entry: Entry
    base: tuple[float, ...]
    head: tuple[float, ...]
    judged: tuple[tuple[float, ...], tuple[float, ...]]
    siblings: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def timed_rows(base: Sequence[Snapshot], head: Sequence[Snapshot], rules: Rules) -> list[Row]:
    """One row per timed metric of either side: judged within its family, or marked as not comparable."""
    keys = sorted({k for s in (*base, *head) for k in (*s.timed, *(u for u in s.unknown if rules.entry(u).sort != Sort.FACT))})
    rows: list[Row] = []
    families: dict[Sort, list[_Sides]] = {}
    for key in keys:
        entry = rules.entry(key)
        values = [[_value(s, key, entry) for s in side] for side in (base, head)]
        known = [tuple(v for v in side if v is not None) for side in values]
        if not any(known):
            continue
        if any(len(k) < len(v) for k, v in zip(known, values, strict=True)):
            rows += _unknown(key, entry, known, values, (base, head))
        elif entry.sort == Sort.SHOWN:
            rows.append(_medians(key, entry, *known))
        else:
            families.setdefault(entry.sort, []).append(_Sides(key, entry, known[0], known[1], (known[0], known[1])))
    step = _typical_step(base)
    for sort, members in families.items():
        if sort == Sort.DETAIL:
            members = _against_siblings(members)
        rows += _family(members, rules.false_alarm * SHARES[sort], step, rules)
    return _undivided(rows)


def _value(run: Snapshot, key: Key, entry: Entry) -> float | None:
    if key in run.timed:
        return run.timed[key]
    if key in run.unknown:
        return None
    of_budget = entry.sort == Sort.PART and key.metric not in _NOT_OF_THE_BUDGET
    return 0.0 if of_budget and BUDGET not in run.missing else None


def _unknown(
    key: Key, entry: Entry, known: Sequence[tuple[float, ...]], values: Sequence[Sequence[float | None]], sides: tuple[Sequence[Snapshot], Sequence[Snapshot]]
) -> list[Row]:
    """What one side does not know: never a gain. Layers that one side does not have are told by their counts."""
    if entry.sort in (Sort.DETAIL, Sort.SHOWN):
        return []
    lacking = [n for n in (0, 1) if len(known[n]) < len(values[n])]
    name = " and ".join(("base", "head")[n] for n in lacking)
    runs = sides[lacking[0]]
    family = key.metric if key.metric in _NOT_OF_THE_BUDGET else BUDGET
    reasons = (why for s in runs for why in (s.unknown.get(key), s.missing.get(key.metric), s.missing.get(family)) if why)
    why = next(reasons, "its report does not hold it")
    row = _medians(key, entry, *known)
    return [row.marked(Verdict.INCOMPARABLE, f"unknown in the {name}: {why}", decisive=True)]


def _medians(key: Key, entry: Entry, base: Sequence[float], head: Sequence[float]) -> Row:
    a, b = (float(median(v)) if v else None for v in (base, head))
    return Row(key, entry, Verdict.UNCHANGED, a, b, len(base), len(head), decisive=entry.decisive)


def _typical_step(base: Sequence[Snapshot]) -> float | None:
    steps = [v for s in base for k, v in s.timed.items() if k.metric == "step_time_ns"]
    return float(median(steps)) if steps else None


def _against_siblings(members: list[_Sides]) -> list[_Sides]:
    """Layers against the other layers of the same run, where there are enough of them: what a run shares then cancels."""
    numbers: tuple[Mapping[Key, tuple[float, ...]], ...] = ({m.key: m.base for m in members}, {m.key: m.head for m in members})
    sides = [relative(n) for n in numbers]
    return [
        replace(m, judged=(sides[0][m.key][0], sides[1][m.key][0]), siblings=(sides[0][m.key][1], sides[1][m.key][1]))
        if m.key in sides[0] and m.key in sides[1]
        else m
        for m in members
    ]


def _family(members: Sequence[_Sides], alpha: float, step: float | None, rules: Rules) -> list[Row]:
    p = [st.mann_whitney(*m.judged) for m in members]
    adjusted = st.benjamini_hochberg(p)
    return [_judged(m, a, b, alpha, len(members), step, rules) for m, a, b in zip(members, p, adjusted, strict=True)]


def _judged(m: _Sides, p: float, adjusted: float, alpha: float, tests: int, step: float | None, rules: Rules) -> Row:
    row = replace(_medians(m.key, m.entry, m.base, m.head), against=m.siblings and "siblings", p=p, p_adjusted=adjusted, alpha=alpha)
    base, head = m.judged
    runs = (len(base), len(head))
    if len({*m.base, *m.head}) == 1:
        # one run per side has no spread, so that nothing is known of what it could see
        end, seen = (0.0 if min(runs) > 1 else None), (0.0 if max(runs) > 1 else None)
        return replace(row, scale="ratio", shift=0.0, low=end, high=end, detectable=seen)
    of_ratio = m.key.metric.endswith("_ratio")
    relative_scale = not of_ratio and st.can_be_relative(base, head)
    if not relative_scale and not of_ratio:
        return _from_zero(row, m, alpha / tests, step)
    a, b = st.scaled(base, head, relative_scale)
    told = math.expm1 if relative_scale else float
    shift = told(st.hodges_lehmann(a, b))
    sd = st.noise(a, b)
    # of a single test of the family, as if it stood alone: what BH asks of the first
    single = alpha / tests
    seen = None if sd is None else st.detectable(sd, len(a), len(b), single)
    # with two or three runs it can be beyond any number
    detectable = None if seen is None or seen > _BEYOND else told(seen)
    effect = math.log1p(m.entry.min_effect) if relative_scale else m.entry.min_effect
    # a family whose members all shift together needs no more of each than alpha
    possible = st.smallest_p(len(a), len(b)) <= (alpha if adjusted <= alpha else single)
    verdict = thresholds.timed(
        m.entry.direction,
        shift=shift,
        p=adjusted,
        alpha=alpha,
        min_effect=m.entry.min_effect,
        material=_material(row, step),
        possible=possible,
        detectable=detectable,
        limit=m.entry.limit,
    )
    row = replace(row, verdict=verdict, scale="ratio" if relative_scale else "difference", shift=shift, detectable=detectable)
    if verdict != Verdict.INCONCLUSIVE:
        row = _moved_by_siblings(row, m)
    # hundreds of layers that did not change need no interval each
    if min(runs) > 1 and (m.entry.sort != Sort.DETAIL or row.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)):
        low, high = st.interval(a, b, resamples=rules.resamples, seed=zlib.crc32(m.key.id.encode()) ^ rules.seed)
        row = replace(row, low=told(low), high=told(high))
    if verdict != Verdict.INCONCLUSIVE:
        return row
    needed = st.runs_needed(single, sd, max(effect, math.log1p(m.entry.limit) if relative_scale else m.entry.limit) if possible else effect)
    return replace(row, runs_needed=needed, reason=_too_few(row, needed, possible))


def _material(row: Row, step: float | None) -> bool:
    """Whether a time changed by enough of the step; other metrics are material as such."""
    return thresholds.material(row.change, step if row.key.metric.endswith("_ns") else None, row.entry.min_share)


def _from_zero(row: Row, m: _Sides, single: float, step: float | None) -> Row:
    """A part that some runs do not have at all, so that there is no ratio: did it come, did it go, does it matter?"""
    row = replace(row, scale="difference", shift=row.change)
    verdict = thresholds.from_zero(
        m.entry.direction,
        row.change or 0.0,
        p=1.0 if row.p_adjusted is None else row.p_adjusted,
        alpha=row.alpha or 0.0,
        material=_material(row, step),
        possible=st.smallest_p(len(m.base), len(m.head)) <= single,
    )
    if verdict != Verdict.INCONCLUSIVE:
        return replace(row, verdict=verdict)
    needed = st.runs_needed(single, None, 0.0)
    return replace(row, verdict=verdict, runs_needed=needed, reason=_too_few(row, needed, False))


def _too_few(row: Row, needed: int | None, possible: bool) -> str:
    here = f"{row.base_runs} and {row.head_runs} runs"
    if needed is None:
        return f"{here}: too noisy for any number of runs up to {st.MOST_RUNS}"
    if not possible:
        return f"{here} are too few to tell anything; {needed} on each side would do"
    return (
        f"{here} can only see changes of {100 * (row.detectable or 0):.0f} % and more; {needed} on each side would do"
        if row.detectable
        else f"{here} are too few"
    )


def _undivided(rows: list[Row]) -> list[Row]:
    """Waiting and moving bytes cannot be compared where only one side could tell them apart."""
    split = {"comm_wait_ns", "comm_transfer_ns", "comm_unsplit_ns"}
    partial = {
        r.key.place("axis")
        for r in rows
        if r.key.metric == "comm_unsplit_ns" and isinstance(r.base, float) and isinstance(r.head, float) and (r.base == 0) != (r.head == 0)
    }
    return [
        r.marked(Verdict.INCOMPARABLE, "one side could not tell waiting from moving bytes; see exposed communication", decisive=False)
        if r.key.metric in split and r.key.place("axis") in partial
        else r
        for r in rows
    ]


def _moved_by_siblings(row: Row, m: _Sides) -> Row:
    """A layer that changed only against siblings which themselves changed did not change."""
    if m.siblings is None or row.verdict not in (Verdict.REGRESSED, Verdict.IMPROVED) or row.shift is None:
        return row
    common, own = (st.hodges_lehmann(*st.scaled(*side, st.can_be_relative(*side))) for side in (m.siblings, (m.base, m.head)))
    if not thresholds.moved_by_siblings(row.shift, common=common, own=own, p=st.mann_whitney(*m.siblings)):
        return row
    others, this = (fmt.signed_percent(math.expm1(v)) for v in (common, own))
    return row.marked(Verdict.UNCHANGED, f"the other layers changed by {others}, this one by {this}")
