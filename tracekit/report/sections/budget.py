"""What is each rank's step made of? Parts that add up to the step, as means over the steady steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Grid, Section, grid
from tracekit.report.rows import Row, group, of_steps, span_word, steady_steps, table, total
from tracekit.report.sections.common import section
from tracekit.report.waterfall import account

#: So many ranks stand as columns beside the mean; more make a table of their own.
BESIDE = 8


def mean_parts(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows part, axis, duration_ns: means over ranks and steady steps, of parts that some rank spent time in.

    A rank and step without a row of a part spent nothing in it: the parts add up to the step.
    """
    rows = of_steps(table(document, "budget", "ranks"), steady_steps(document))
    steps = len(group(rows, ["rank", "capture", "device", "step"]))
    sums = [
        {"part": p, "axis": a, "duration_ns": _divide(total(r.get("duration_ns") for r in of), steps)} for (p, a), of in group(rows, ["part", "axis"]).items()
    ]
    return [r for r in sums if r["duration_ns"] != 0]


def budget(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``budget``."""
    rows = of_steps(table(document, "budget", "ranks"), steady_steps(document))
    parts = mean_parts(document)
    whole = total(p["duration_ns"] for p in parts)
    shares: list[Row] = [
        {"part": fmt.part(p["part"], p["axis"]), "mean_ns": p["duration_ns"], "share_ratio": _divide(p["duration_ns"], whole)}
        for p in sorted(parts, key=lambda p: -(p["duration_ns"] or 0))
    ]
    last: Row = {"part": span_word(document), "mean_ns": whole, "share_ratio": None if whole is None else 1.0}
    per_rank = _per_rank(rows, parts, span_word(document))
    beside = per_rank if 1 < len(per_rank) <= BESIDE else []
    lines = [{**r, **{f"rank {x['rank']}_ns": x.get(f"{r['part']}_ns") for x in beside}} for r in [*shares, last]] if shares else []
    title = f"Mean {span_word(document)}, over the ranks" + (" and of each" if beside else "")
    grids: tuple[Grid, ...] = (grid(title, lines, ["part", "mean_ns", "share_ratio", *(f"rank {x['rank']}_ns" for x in beside)]),)
    if len(per_rank) > BESIDE:
        columns = ["rank", *dict.fromkeys(k for r in per_rank for k in r if k != "rank")]
        grids = (*grids, grid("Per rank", per_rank, columns, limit=16, left_out=", those with the least compute first"))
    grids = (*grids, _account(document))
    return section(document, "budget", "derived: an exact division of each rank's measured step, its parts add up to the step", ("derived",), grids=grids)


def _account(document: Mapping[str, Any]) -> Grid:
    """What each part is, how it was told, and how much of it could come back."""
    rows: list[Row] = [
        {
            "part": fmt.part(r.get("part"), r.get("axis")),
            "mean_ns": r.get("duration_ns"),
            "told": r.get("source"),
            "could come back_ns": r.get("recoverable_ns"),
            "how": r.get("what") or "not known",
        }
        for r in account(document)
    ]
    return grid("What could come back at best", rows, ["part", "mean_ns", "told", "could come back_ns", "how"])


def _per_rank(rows: list[Row], parts: list[dict[str, Any]], span: str) -> list[Row]:
    """One row per rank, a column per part of the account; of many ranks those that work the least stand first."""
    known = sorted(((p["part"], p["axis"]) for p in parts), key=lambda p: (p[0] not in fmt.WORK, str(p)))
    out: list[tuple[float, Row]] = []
    for (rank,), of in group(rows, ["rank"]).items():
        accounts = len(group(of, ["capture", "device", "step"]))
        sums = {key: total(r.get("duration_ns") for r in members) for key, members in group(of, ["part", "axis"]).items()}
        named = {fmt.part(*key) + "_ns": _divide(sums.get(key, 0), accounts) for key in known}
        work = total(v for (part, _), v in sums.items() if part in fmt.WORK) or 0
        out.append((work / accounts, {"rank": rank, **named, f"{span}_ns": _divide(total(sums.values()), accounts)}))
    return [row for _, row in (out if len(out) <= 16 else sorted(out, key=lambda pair: pair[0]))]


def _divide(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b
