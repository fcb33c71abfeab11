"""How are numbers and rows taken from a report that may hold anything? What is not of the right type counts as unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

Document = Mapping[str, Any]
Row = Mapping[str, Any]

#: No time, size or count is as large, and none but 0 as small as its inverse; sums, ratios and squares of such numbers stay finite.
LARGEST = 1e60
_SCALARS = (str, int, float, type(None))


def number(value: object) -> float | None:
    """A number that can be one of a run, or None.

    >>> number(3), number("3"), number(True), number(float("nan")), number(10**400)
    (3, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if value == 0 or 1 / LARGEST <= abs(value) <= LARGEST else None


def section(document: Document, name: str) -> Mapping[str, Any]:
    """A metric's part of the report, or {}."""
    metrics = document.get("metrics")
    found = metrics.get(name) if isinstance(metrics, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def summary(document: Document, name: str) -> Mapping[str, Any]:
    """A metric's summary, or {}."""
    found = section(document, name).get("summary")
    return found if isinstance(found, Mapping) else {}


def rows(document: Document, name: str, table: str) -> Sequence[Row]:
    """Rows of one table, [] where there is none. A cell that is no scalar becomes the name of its type: no number, and not null either."""
    tables = section(document, name).get("tables")
    found = tables.get(table) if isinstance(tables, Mapping) else None
    return [_of_scalars(r) for r in found if isinstance(r, Mapping)] if isinstance(found, list) else []


def _of_scalars(row: Row) -> Row:
    return row if all(isinstance(v, _SCALARS) for v in row.values()) else {k: v if isinstance(v, _SCALARS) else f"<{type(v).__name__}>" for k, v in row.items()}


def reason(document: Document, name: str) -> str | None:
    """Why a metric is not there, or None where it is."""
    found = section(document, name)
    if found.get("available") is True:
        return None
    said = found.get("reason")
    return said if isinstance(said, str) and said else "the report does not hold it"


def steady_steps(document: Document) -> frozenset[int]:
    """Steps that are complete and no warm-up on every rank; every complete one where none is left; every one where none is complete."""
    marked = [r for r in rows(document, "step_time", "steps") if number(r.get("step")) is not None]
    every = {int(r["step"]) for r in marked}
    cut = {int(r["step"]) for r in marked if r.get("complete") is False}
    warm = {int(r["step"]) for r in marked if r.get("warmup") is True}
    complete = every - cut or every
    return frozenset(complete - warm) or frozenset(complete)


def of_steps(found: Iterable[Row], steps: frozenset[int]) -> list[Row]:
    """Rows of these steps; of the whole recording (step null) where no row is of one of them."""
    every = list(found)
    picked = [r for r in every if r.get("step") in steps] if steps else []
    return picked or [r for r in every if r.get("step") is None]


def per_step(found: Iterable[Row], column: str, across: str) -> dict[Any, float | None]:
    """A column of each (capture, step), over its ranks: their ``mean``, ``max`` or ``sum``; None where one of them is unknown."""
    by_step: dict[Any, list[float | None]] = {}
    for r in found:
        by_step.setdefault((r.get("capture"), r.get("step")), []).append(number(r.get(column)))
    out: dict[Any, float | None] = {}
    for step, values in by_step.items():
        known = [v for v in values if v is not None]
        whole = len(known) == len(values)
        out[step] = None if not whole else max(known) if across == "max" else sum(known) / (len(known) if across == "mean" else 1)
    return out


def greatest(values: Iterable[float | None]) -> float | None:
    """The maximum; None where a value is unknown or there is none: the unknown one may be greater."""
    every = list(values)
    known = [v for v in every if v is not None]
    return max(known) if known and len(known) == len(every) else None


def typical(values: Iterable[float | None]) -> float | None:
    """The median; None where a value is unknown or there is none."""
    every = list(values)
    known = [v for v in every if v is not None]
    return float(median(known)) if known and len(known) == len(every) else None
