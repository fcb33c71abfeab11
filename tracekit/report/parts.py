"""What is a report made of? The pieces that every renderer draws, already worded, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit import wording as fmt

#: Rows that a table of a report shows at most; the JSON document holds them all.
ROW_LIMIT = 24


@dataclass(frozen=True)
class Finding:
    """One health finding, worded: severity, code, message and where."""

    severity: str
    code: str
    message: str
    where: str


@dataclass(frozen=True)
class Card:
    """One key number: what it is, its value, and what stands beside it (closed form, share, cause)."""

    label: str
    value: str
    detail: str


@dataclass(frozen=True)
class Bar:
    """One part of the step in a waterfall.

    Attributes:
        label: the part.
        text: how long it is, and its share of the step.
        told: how much of it could come back at best, or "".
        start, length, recoverable: shares of the step: where it begins, how long it is, and how much of that could come back.
        work: whether it is work, and not cost or loss.
    """

    label: str
    text: str
    told: str
    start: float
    length: float
    recoverable: float
    work: bool


@dataclass(frozen=True)
class Grid:
    """A table ready to be drawn.

    Attributes:
        title: what its rows are.
        header: column names with units.
        rows: cells, as many as the header has.
        numeric: whether a column holds numbers (drawn flush right).
        note: what was left out, or "".
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One metric's part of the report.

    Attributes:
        name: the metric.
        question: the question it answers.
        definition: one line.
        full_definition: all of it, with its source.
        tags: how the numbers came about: measured, derived, inferred, emulated.
        obtained: the same in a sentence.
        facts: (name, value) pairs of the summary.
        grids: tables.
        notes: the metric's own sentences.
    """

    name: str
    title: str
    question: str
    definition: str
    full_definition: str
    tags: tuple[str, ...]
    obtained: str
    facts: tuple[tuple[str, str], ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Story:
    """A whole report: health first, then one sentence, then numbers, then the sections, last what is not available and why."""

    title: str
    version: str
    verdict: str
    findings: tuple[Finding, ...]
    headline: str
    advice: str
    run: tuple[tuple[str, str], ...]
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]
    unavailable: tuple[tuple[str, str, str], ...]
    emulated: bool
    waterfall: tuple[Bar, ...] = ()


def grid(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, limit: int = ROW_LIMIT, left_out: str = "") -> Grid:
    """A Grid of some columns of rows; columns that no row has are dropped, rows past the limit are counted in the note.

    Args:
        title: what the rows are.
        rows: dicts with numbers in base units (ns, bytes); None is unknown.
        columns: which, in order.
        limit: rows shown.
        left_out: how the shown rows were chosen, appended to the note when some were left out.
    """
    kept = [c for c in columns if any(c in r for r in rows)]
    shown = list(rows[:limit])
    made = [fmt.column(c, [r.get(c) for r in shown]) for c in kept]
    numeric = tuple(c not in ("rank", "layer", "part", "axis", "step") and any(isinstance(r.get(c), (int, float)) for r in shown) for c in kept)
    note = f"{len(shown)} of {len(rows)} rows shown{left_out}; the JSON report holds all" if len(rows) > len(shown) else ""
    return Grid(title, tuple(h for h, _ in made), tuple(zip(*(cells for _, cells in made), strict=True)), numeric, note)


def facts(summary: Mapping[str, Any], always: Sequence[str] = (), words: Mapping[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """(name, value) pairs of a summary's scalars, worded.

    Args:
        summary: the metric's summary.
        always: shown first and in this order, unknown or not; of the rest, what is unknown or nothing is left to the JSON.
        words: what to call a scalar whose name alone does not say what it counts; else its label.
    """
    first = [n for n in always if n in summary]
    rest = [n for n, v in summary.items() if n not in first and not isinstance(v, (dict, list)) and v not in (None, 0, False, "")]
    return tuple(((words or {}).get(n, fmt.label(n)), fmt.scalar(n, summary[n])) for n in (*first, *rest))
