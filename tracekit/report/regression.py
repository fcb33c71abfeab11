"""How does a comparison read in a terminal? The verdict, then the cause, then a table of what was measured and what could be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit import wording as fmt
from tracekit.report import plain
from tracekit.report.parts import Grid

Document = Mapping[str, Any]
Cells = tuple[tuple[str, ...], ...]

_COLOUR = {"regressed": "bold white on red", "improved": "bold green", "unchanged": "bold green", "inconclusive": "bold yellow", "incomparable": "bold yellow"}
_HEADER = ("metric", "base", "head", "shift", "95 %", "can see", "verdict")
_NUMERIC = (False, True, True, True, True, True, False)
#: Rows shown of one table; the document holds them all.
MOST_ROWS = 30


def text(document: Document) -> str:
    """A comparison as plain text."""
    lines = [f"{document['verdict'].upper()}: {fmt.clean(document['sentence'], 2000)}", *_context(document), ""]
    for grid in grids(document):
        lines += [grid.title, *plain.table(grid), ""]
    lines += [f"Note: {fmt.clean(note, 1000)}" for note in notes(document)]
    return "\n".join(lines).rstrip() + "\n"


def renderable(document: Document) -> Any:
    """The same for a rich terminal."""
    from rich.console import Group
    from rich.text import Text

    from tracekit.report.text import Fitted

    verdict = document["verdict"]
    head = Text.assemble((f" {verdict.upper()} ", _COLOUR.get(verdict, "bold")), " ", (fmt.clean(document["sentence"], 2000), "bold"))
    parts: list[Any] = [head, *(Text(line, style="dim") for line in _context(document))]
    parts += [Fitted(grid) for grid in grids(document)]
    return Group(*parts, *(Text(f"Note: {fmt.clean(note, 1000)}", style="dim") for note in notes(document)))


def _context(document: Document) -> list[str]:
    base, head = (fmt.plural(len(document[side]), "run") for side in ("base", "head"))
    counts = ", ".join(f"{n:,} {name}" for name, n in document["counts"].items() if n)
    scenario = f"scenario {fmt.clean(document['scenario'])}; " if document.get("scenario") else ""
    return [f"{scenario}base {base}, head {head}; {counts or 'nothing compared'}"]


def grids(document: Document) -> list[Grid]:
    """Limits, what creeps, changed facts, and the timed metrics."""
    rows = document["metrics"]
    out = []
    if document["budgets"]:
        cells: Cells = tuple((fmt.clean(b["budget"]), fmt.scalar(b["name"], b["value"]), _limit(b)) for b in document["budgets"])
        out.append(Grid("Limits", ("limit", "head", "verdict"), cells, (False, True, False)))
    differs = document["fingerprint"]["differs"]
    if differs:
        cells = tuple((_first(d["name"]), fmt.scalar("", d["base"]), fmt.scalar("", d["head"])) for d in differs[:MOST_ROWS])
        out.append(Grid("What is not the same", ("setup", "base", "head"), cells, (False, False, False), _left_out(differs)))
    if document["drift"]:
        cells = tuple(
            (_name(d), fmt.signed_percent(d["shift"]), fmt.clean(d["points"][0], 16), fmt.signed_percent(d["head_shift"]), d["verdict"])
            for d in document["drift"]
        )
        header = ("metric", "new level", "since", "head", "verdict")
        out.append(Grid("Over the baseline's history, against its first level", header, cells, (False, True, False, True, False)))
    facts = [r for r in rows if r["sort"] == "fact" and (r["verdict"] != "unchanged" or r["reason"])]
    if facts and not _all_incomparable(document):
        cells = tuple((_name(r), _cell(r, "base"), _cell(r, "head"), r["verdict"]) for r in facts[:MOST_ROWS])
        out.append(Grid("Facts that changed", ("fact", "base", "head", "verdict"), cells, (False, True, True, False), _left_out(facts)))
    timed = [r for r in rows if r["sort"] in ("step", "part")]
    details = [r for r in rows if r["sort"] == "detail" and r["verdict"] in ("regressed", "improved")]
    for title, found in (("Per step, median over runs", timed), ("Layers", details)):
        if found:
            cells = tuple(_timed(r) for r in found[:MOST_ROWS])
            out.append(Grid(title, _HEADER, cells, _NUMERIC, _left_out(found)))
    return out


def _all_incomparable(document: Document) -> bool:
    return bool(document["fingerprint"]["differs"]) and not document["fingerprint"]["forced"]


def _timed(row: Mapping[str, Any]) -> tuple[str, ...]:
    low_high = "" if row["low"] is None else f"{_share(row, row['low'], '')} … {_share(row, row['high'], '')}"
    seen = "" if row["detectable"] is None else f"≥ {100 * row['detectable']:.1f}"
    verdict = row["verdict"] + (f" ({fmt.plural(row['runs_needed'], 'run')} would do)" if row["runs_needed"] and row["verdict"] == "inconclusive" else "")
    name = _name(row) + (" vs. siblings" if row["against"] else "")
    return (name, _cell(row, "base"), _cell(row, "head"), _share(row, row["shift"], " %"), low_high, seen, verdict)


def _share(row: Mapping[str, Any], value: float | None, unit: str) -> str:
    if value is None:
        return fmt.UNKNOWN if unit else ""
    if row["scale"] == "difference" and not row["metric"].endswith("_ratio"):
        return fmt.signed(row["metric"], value)
    number = fmt.signed_percent(value).removesuffix(" %")
    return number + (unit if row["scale"] == "ratio" else " pts" if unit else "")


def _cell(row: Mapping[str, Any], side: str) -> str:
    value = row[side]
    if isinstance(value, list):
        return " or ".join(fmt.scalar(row["metric"], v) for v in value[:3]) + (" …" if len(value) > 3 else "")
    return fmt.scalar(row["metric"], value)


def _name(row: Mapping[str, Any]) -> str:
    where = row["where"]
    place = " ".join(fmt.clean(f"rank {v}" if p == "rank" else str(v).replace("_", "-") if p == "kind" else v, 60) for p, v in where.items())
    return _first(row["title"]) + (f", {place}" if place else "")


def _first(name: object) -> str:
    """A name at the start of a line, where a CI runner would take ``::error::`` as a command."""
    return fmt.clean(name, 80).replace("::", ": :")


def _limit(budget: Mapping[str, Any]) -> str:
    words = {"unchanged": "kept", "regressed": "broken"}
    return words.get(str(budget["verdict"])) or f"unknown: {fmt.clean(budget['reason'] or '', 200)}"


def _left_out(rows: Sequence[Any]) -> str:
    return f"{MOST_ROWS} of {len(rows):,} shown; the JSON document holds all" if len(rows) > MOST_ROWS else ""


def notes(document: Document) -> list[str]:
    """The document's notes, and the reasons of what could not be told."""
    reasons: dict[str, list[str]] = {}
    for r in document["metrics"]:
        if r["reason"] and r["verdict"] in ("inconclusive", "incomparable") and (r["decisive"] or r["sort"] in ("step", "fact")):
            reasons.setdefault(r["reason"], []).append(_name(r))
    told = [f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}: {reason}." for reason, names in list(reasons.items())[:6]]
    return [*document["notes"], *told]
