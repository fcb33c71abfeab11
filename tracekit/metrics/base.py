"""What does a metric give back, and what does it say when it cannot?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tracekit.job.base import Job


@dataclass(frozen=True)
class Result:
    """A metric's answer.

    Attributes:
        summary: scalars, units in their names; None is unknown.
        tables: tidy frames, null is unknown.
        available: False when the metric cannot be computed at all; then ``reason`` says why.
        notes: sentences on how the numbers came about (measured, inferred, emulated, lower bounds).
    """

    summary: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    available: bool = True
    reason: str | None = None
    notes: tuple[str, ...] = ()


def unavailable(reason: str) -> Result:
    """A metric that cannot be computed, and why."""
    return Result(available=False, reason=reason)


@dataclass(frozen=True)
class Metric:
    """One question that tracekit answers.

    Attributes:
        name: its key in the report.
        title: a few words for headings.
        question: the question it answers, one sentence.
        definition: the definition with its source (shown by ``tracekit metrics`` and the definitions page).
        compute: Job -> Result. Never plots, prints, rounds or formats. Other metrics' results are not at hand:
            shared work belongs in the facts or in job/.
    """

    name: str
    title: str
    question: str
    definition: str
    compute: Callable[[Job], Result]
