"""By which rules are two sides compared? The catalogue's own, and what a project says otherwise of metrics, ranks and layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tracekit.compare.budgets import Budget
from tracekit.compare.catalog import Entry, entry_of
from tracekit.compare.keys import Key
from tracekit.thresholds import FALSE_ALARM, Direction, Severity


@dataclass(frozen=True)
class Override:
    """What a project says of some metrics; None leaves the catalogue's word.

    Attributes:
        metric: pattern of names (``comm_*``).
        places: (place, pattern) pairs that must match as well: rank, stage, axis, kind, direction, layer.
        min_effect: of facts: the tolerance, as a share of the base.
        better: which direction is better.
        severity: what a regression does.
    """

    metric: str = "*"
    places: tuple[tuple[str, str], ...] = ()
    min_effect: float | None = None
    better: Direction | None = None
    severity: Severity | None = None

    def covers(self, key: Key) -> bool:
        """Whether this is about a key.

        >>> from tracekit.compare.keys import key
        >>> Override("collective_*", (("layer", "layers.1*"),)).covers(key("collective_count", layer="layers.12.mlp"))
        True
        """
        return fnmatchcase(key.metric, self.metric) and all(fnmatchcase(key.place(p) or "", pattern) for p, pattern in self.places)


@dataclass(frozen=True)
class Rules:
    """How to compare.

    Attributes:
        overrides: later ones win.
        budgets: limits that the head must keep.
        false_alarm: share of comparisons of equal programs that may raise an alarm.
        ignore: names of the fingerprint that may differ.
        allow_incomparable: compare although the fingerprints differ.
        resamples: of the bootstrap.
        seed: of the bootstrap and the permutations.
    """

    overrides: tuple[Override, ...] = ()
    budgets: tuple[Budget, ...] = ()
    false_alarm: float = FALSE_ALARM
    ignore: tuple[str, ...] = ()
    allow_incomparable: bool = False
    resamples: int = 2000
    seed: int = 0

    def entry(self, key: Key) -> Entry:
        """The catalogue's entry of a key, as the project wants it."""
        return overridden(entry_of(key.metric), key, self.overrides)


def overridden(entry: Entry, key: Key, overrides: Iterable[Override]) -> Entry:
    """An entry with the overrides that cover a key, in their order."""
    for o in overrides:
        if o.covers(key):
            entry = replace(
                entry,
                min_effect=entry.min_effect if o.min_effect is None else o.min_effect,
                direction=entry.direction if o.better is None else o.better,
                severity=entry.severity if o.severity is None else o.severity,
            )
    return entry
