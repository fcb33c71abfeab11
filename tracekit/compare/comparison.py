"""Did the head become slower or hungrier than the base? The comparison and its document ``tracekit.comparison/1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracekit import thresholds
from tracekit.compare import attribution
from tracekit.compare.budgets import held
from tracekit.compare.exact import exact_rows
from tracekit.compare.fingerprint import Difference, common, differences
from tracekit.compare.history import History, creeping, step_levels
from tracekit.compare.rows import Row
from tracekit.compare.rules import Rules
from tracekit.compare.snapshot import Snapshot
from tracekit.compare.times import timed_rows
from tracekit.errors import NoBaseline, UsageError
from tracekit.thresholds import Severity, Verdict

COMPARISON_SCHEMA = "tracekit.comparison/1"

#: The order in which rows are read: what is worse first.
_ORDER = (Verdict.REGRESSED, Verdict.INCOMPARABLE, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.UNCHANGED)


@dataclass(frozen=True)
class Comparison:
    """Two sides, compared.

    Attributes:
        verdict: of all.
        sentence: what changed and why, one line.
        rows: one per compared number, what is worse first.
        budgets: limits of the head, as the document holds them.
        drift: metrics that creep over the history, as the document holds them.
        differs: what differs between the fingerprints.
        unknown: what only one fingerprint knows.
        mixed: what differs among the runs of one side.
        base, head: the snapshots.
        rules: by which it was judged.
        notes: what else has to be said.
        scenario: what the runs are of, where they come from a baseline.
        history: the step time by commit, as the document holds it.
    """

    verdict: Verdict
    sentence: str
    rows: tuple[Row, ...]
    budgets: tuple[Mapping[str, Any], ...]
    drift: tuple[Mapping[str, Any], ...]
    differs: tuple[Difference, ...]
    unknown: tuple[Difference, ...]
    mixed: tuple[Difference, ...]
    base: tuple[Snapshot, ...]
    head: tuple[Snapshot, ...]
    rules: Rules
    notes: tuple[str, ...] = ()
    scenario: str | None = None
    history: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The document ``tracekit.comparison/1``: strict JSON, null is unknown."""
        from tracekit import __version__

        counts = {v.value: sum(1 for r in self.rows if r.verdict == v) for v in Verdict}
        return {
            "schema": COMPARISON_SCHEMA,
            "tracekit": __version__,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "exit_code": thresholds.exit_code(self.verdict),
            "scenario": self.scenario,
            "counts": counts,
            "base": [dict(s.about) for s in self.base],
            "head": [dict(s.about) for s in self.head],
            "fingerprint": {
                "base": dict(self.base[0].fingerprint) if self.base else {},
                "head": dict(self.head[0].fingerprint),
                "differs": [_difference(d) for d in self.differs],
                "unknown": [_difference(d) for d in self.unknown],
                "mixed": [_difference(d) for d in self.mixed],
                "ignored": list(self.rules.ignore),
                "forced": self.rules.allow_incomparable and bool(self.differs or self.mixed),
            },
            "rules": {
                "false_alarm": self.rules.false_alarm,
                "families": {"step": thresholds.STEP_SHARE, "part": thresholds.PART_SHARE, "detail": thresholds.DETAIL_SHARE},
                "resamples": self.rules.resamples,
                "seed": self.rules.seed,
                "overrides": len(self.rules.overrides),
            },
            "metrics": [r.to_dict() for r in self.rows],
            "budgets": [dict(b) for b in self.budgets],
            "drift": [dict(d) for d in self.drift],
            "history": [dict(h) for h in self.history],
            "attribution": {"parts": attribution.parts(self.rows), "layers": attribution.layers(self.rows)},
            "notes": list(self.notes),
        }


def compare(
    base: Sequence[Snapshot], head: Sequence[Snapshot], rules: Rules | None = None, *, history: History | None = None, scenario: str | None = None
) -> Comparison:
    """Compare the runs of two sides.

    Args:
        base: snapshots of what was.
        head: snapshots of what is.
        rules: by which to judge; the catalogue's own where None.
        history: the baseline's runs, oldest first, to see what creeps.
        scenario: what the runs are of, where they come from a baseline.

    Raises:
        UsageError: a side has no run.
    """
    rules = rules or Rules()
    if not base or not head:
        raise UsageError(f"the {'head' if base else 'base'} has no run: name at least one on each side")
    differs, unknown = differences(base[0].fingerprint, head[0].fingerprint, rules.ignore)
    mixed = [*common([s.fingerprint for s in base], rules.ignore), *common([s.fingerprint for s in head], rules.ignore)]
    rows = _ordered([*exact_rows(base, head, rules), *timed_rows(base, head, rules)])
    budgets = tuple(held(b, head) for b in rules.budgets)
    comparable = rules.allow_incomparable or not (differs or mixed)
    drift = tuple(creeping(history, head, rules)) if history is not None and comparable else ()
    if not comparable:
        rows = [r.marked(Verdict.INCOMPARABLE, None) for r in rows]
    judged = [(r.verdict, r.entry.severity, r.decisive) for r in rows]
    judged += [(Verdict(b["verdict"]), Severity.FAIL, True) for b in budgets] + [(Verdict(d["verdict"]), Severity(d["severity"]), False) for d in drift]
    verdict = thresholds.overall(judged)
    if not comparable and verdict != Verdict.REGRESSED:
        verdict = Verdict.INCOMPARABLE
    seen = tuple(step_levels(history, head)) if history is not None and comparable else ()
    made = Comparison(
        verdict, "", tuple(rows), budgets, drift, tuple(differs), tuple(unknown), tuple(mixed), tuple(base), tuple(head), rules, (), scenario, seen
    )
    return replace(made, sentence=_sentence(made), notes=tuple(_notes(made)))


def without_baseline(head: Sequence[Snapshot], rules: Rules, scenario: str | None = None) -> dict[str, Any]:
    """The document of runs that there is no baseline for: whether they keep their limits. Its verdict is None where none is broken."""
    budgets = tuple(held(b, head) for b in rules.budgets)
    broken = [b for b in budgets if b["verdict"] == Verdict.REGRESSED.value]
    nothing = f"no baseline yet{f' of scenario {scenario}' if scenario else ''}: nothing to compare with"
    sentence = "; ".join([*_limits(broken), nothing])
    made = Comparison(Verdict.REGRESSED, sentence, (), budgets, (), (), (), (), (), tuple(head), rules, (), scenario).to_dict()
    return made if broken else {**made, "verdict": None, "exit_code": NoBaseline.exit_code}


def _ordered(rows: Sequence[Row]) -> list[Row]:
    sorts = ("step", "fact", "part", "detail", "shown")
    return sorted(rows, key=lambda r: (_ORDER.index(r.verdict), sorts.index(r.entry.sort.value), r.key))


def _sentence(c: Comparison) -> str:
    said = _limits([b for b in c.budgets if b["verdict"] != Verdict.UNCHANGED.value])
    if c.differs and not c.rules.allow_incomparable:
        return "; ".join([*said, "not the same setup: " + ", ".join(d.text() for d in c.differs[:5]) + (", …" if len(c.differs) > 5 else "")])
    if c.mixed and not c.rules.allow_incomparable:
        return "; ".join([*said, "the runs of one side are not of the same setup: " + ", ".join(d.text() for d in c.mixed[:5])])
    said += [d["sentence"] for d in c.drift if d["verdict"] == Verdict.REGRESSED.value][:1]
    return "; ".join([*said, attribution.sentence(c.rows)])


def _limits(broken: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first limit that is broken or unknown, and how many more there are."""
    if not broken:
        return []
    b, more = broken[0], f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    return [f"limit {b['budget']} is broken{more}" if b["verdict"] == Verdict.REGRESSED.value else f"limit {b['budget']}: {b['reason']}{more}"]


def _notes(c: Comparison) -> list[str]:
    notes = []
    if c.differs and c.rules.allow_incomparable:
        notes.append("Compared although the setups differ: " + ", ".join(d.text() for d in c.differs) + ".")
    if c.unknown:
        notes.append("Known on one side only: " + ", ".join(d.text() for d in c.unknown) + ".")
    versions = sorted({str(s.about.get("tracekit")) for s in (*c.base, *c.head)})
    if len(versions) > 1:
        notes.append(f"The sides were measured by different versions of tracekit ({', '.join(versions)}): a definition may have changed between them.")
    if any(s.fingerprint.get("emulated") for s in (*c.base, *c.head)):
        notes.append("Compute was emulated: the ranks slept; times that follow from it are emulated too.")
    unwell = sorted({str(s.about.get("source")) for s in (*c.base, *c.head) if s.about.get("health") == "unusable"})
    if unwell:
        notes.append(f"Health is unusable: {', '.join(unwell[:5])}.")
    return notes


def _difference(d: Difference) -> dict[str, Any]:
    return {"name": d.name, "base": d.base, "head": d.head, "text": d.text()}
