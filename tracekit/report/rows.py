"""How are the rows of a report document picked and averaged for reading?

A report is a document (``Analysis.to_dict()``): tables are lists of dicts, None is unknown. A mean with an unknown member
is unknown: a mean over the known ones would be a different number under the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tracekit.compare import document as documents
from tracekit.compare.document import steady_steps

Row = Mapping[str, Any]


def metric(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A metric of the document; one that says it was not computed where the document has none."""
    return documents.section(document, name) or {"available": False, "reason": "this report does not hold it", "summary": {}, "tables": {}}


def table(document: Mapping[str, Any], name: str, of: str) -> Sequence[Row]:
    """Rows of one table of a metric, none where it has no such table."""
    rows: Sequence[Row] = (metric(document, name).get("tables") or {}).get(of) or ()
    return rows


def of_steps(rows: Iterable[Row], steps: frozenset[int]) -> list[Row]:
    """Rows of these steps; where none is named, or no row has one of them, the rows of the whole trace (step null); where there are none, all."""
    rows = list(rows)
    return documents.of_steps(rows, steps) or rows


def span_word(document: Mapping[str, Any]) -> str:
    """What the numbers of this report are about: the ``step``, or the whole ``recording`` where no step was marked."""
    return "step" if steady_steps(document) else "recording"


def mean(values: Iterable[float | None]) -> float | None:
    """Arithmetic mean; unknown where a member is unknown, or there is none.

    >>> mean([1, 3]), mean([1, None]), mean([])
    (2.0, None, None)
    """
    known = list(values)
    numbers = [v for v in known if v is not None]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(known) else None


def total(values: Iterable[float | None]) -> float | None:
    """Sum; unknown where a member is unknown, or there is none."""
    known = list(values)
    numbers = [v for v in known if v is not None]
    return sum(numbers) if numbers and len(numbers) == len(known) else None


def group(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(k) for k in keys), []).append(row)
    return groups


def mean_rows(rows: Iterable[Row], keys: Sequence[str], values: Sequence[str]) -> list[dict[str, Any]]:
    """One row per group, with the means of the value columns.

    >>> mean_rows([{"rank": 0, "a_ns": 2}, {"rank": 0, "a_ns": 4}], ["rank"], ["a_ns"])
    [{'rank': 0, 'a_ns': 3.0}]
    """
    return [dict(zip(keys, key, strict=True)) | {v: mean(r.get(v) for r in members) for v in values} for key, members in group(rows, keys).items()]


__all__ = ["Row", "group", "mean", "mean_rows", "metric", "of_steps", "span_word", "steady_steps", "table", "total"]
