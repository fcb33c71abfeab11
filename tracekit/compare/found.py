"""What was found of a run's numbers: those that are known, those that are not, and metrics that it has none of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracekit.compare.keys import Key

#: Why a number that has its place is not known, where nothing more is said.
NOT_RECORDED = "its report holds null for a step or rank"


@dataclass(frozen=True)
class Found:
    """Numbers of a run.

    Attributes:
        known: values by key.
        missing: metrics that there is no number of -> why.
        unknown: single numbers that nobody knows -> why.
    """

    known: dict[Key, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unknown: dict[Key, str] = field(default_factory=dict)

    def __or__(self, other: Found) -> Found:
        """Both together."""
        return Found(self.known | other.known, self.missing | other.missing, self.unknown | other.unknown)


def found(numbers: Mapping[Key, Any], missing: Mapping[str, str] | None = None, *, why: str = NOT_RECORDED) -> Found:
    """Numbers by key, None for those that are not known.

    >>> from tracekit.compare.keys import key
    >>> [k.id for k in found({key("idle_ns"): 3.0, key("copies_ns"): None}).unknown]
    ['copies_ns']
    """
    return Found({k: v for k, v in numbers.items() if v is not None}, dict(missing or {}), {k: why for k, v in numbers.items() if v is None})
