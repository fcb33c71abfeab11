"""How does one metric stand on both sides? One row per compared number, judged by ``tracekit.thresholds``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from tracekit.compare.catalog import Entry
from tracekit.compare.keys import Key
from tracekit.thresholds import Verdict


@dataclass(frozen=True)
class Row:
    """One metric of a comparison.

    Attributes:
        key: which number.
        entry: how it is judged.
        verdict: what is said of it.
        base: of a fact its value, of a timed metric the median over runs, in the unit of its name; None is unknown.
        head: the same of the other side.
        base_runs: how many runs of the base have it.
        head_runs: how many of the head.
        scale: ``ratio`` where shifts are shares of the base value, ``difference`` where they are in the metric's unit, None for facts.
        shift: Hodges-Lehmann shift of the head against the base, on that scale.
        low: lower end of its 95 % bootstrap interval.
        high: upper end.
        p: of the Mann-Whitney test.
        p_adjusted: after Benjamini-Hochberg over the family.
        alpha: level of the family.
        detectable: the shift that these runs find in 80 % of cases, on the same scale.
        runs_needed: runs per side that would do, where these are too few; None where they do, or where none would.
        against: ``siblings`` where a layer was compared relative to the other layers of the same run.
        decisive: whether not knowing this leaves the whole verdict open.
        reason: why it is inconclusive, incomparable or judged as it is, where that needs words.
    """

    key: Key
    entry: Entry
    verdict: Verdict
    base: Any = None
    head: Any = None
    base_runs: int = 0
    head_runs: int = 0
    scale: str | None = None
    shift: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    alpha: float | None = None
    detectable: float | None = None
    runs_needed: int | None = None
    against: str | None = None
    decisive: bool = False
    reason: str | None = None

    @property
    def change(self) -> float | None:
        """Head - base, in the unit of the metric; None where one of them is unknown or no number."""
        if isinstance(self.base, (int, float)) and isinstance(self.head, (int, float)):
            return self.head - self.base
        return None

    def marked(self, verdict: Verdict, reason: str | None = None, *, decisive: bool | None = None) -> Row:
        """The same row under another verdict."""
        return replace(self, verdict=verdict, reason=reason, decisive=self.decisive if decisive is None else decisive)

    def to_dict(self) -> dict[str, Any]:
        """The row as the document holds it."""
        kept = {k: v for k, v in asdict(self).items() if k not in ("key", "entry", "verdict")}
        return {
            "metric": self.key.metric,
            "where": dict(self.key.where),
            "id": self.key.id,
            "title": self.entry.title,
            "sort": self.entry.sort.value,
            "severity": self.entry.severity.value,
            "better": self.entry.direction.value,
            "min_effect": self.entry.min_effect,
            "verdict": self.verdict.value,
            "change": self.change,
            **kept,
        }
