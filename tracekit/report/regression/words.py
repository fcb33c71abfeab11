"""How is a comparison worded? The rows, tables and notes that every renderer shares; names are cleaned, not yet escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Grid

Document = Mapping[str, Any]
Row = Mapping[str, Any]

#: Rows shown of one table where nothing else is asked for; the document holds them all.
MOST_ROWS = 30
NO_BASELINE = "no baseline"
_TIMED = ("metric", "base", "head", "shift", "95 %", "can see", "verdict")
_CHANGED = ("regressed", "improved")
_UNTOLD = ("inconclusive", "incomparable")
_SORTS = {"step": "step", "fact": "facts", "part": "parts", "detail": "layers"}


@dataclass(frozen=True)
class Judged:
    """One thing that was judged.

    Attributes:
        sort: limits, drift, facts, step, parts or layers.
        id: which one; the same from run to run.
        name: the same for people.
        verdict: regressed, improved, unchanged, inconclusive or incomparable.
        severity: fail, warn or ignore: what a regression does.
        decisive: whether not knowing it leaves everything open.
        message: what was found, or why it cannot be told.
    """

    sort: str
    id: str
    name: str
    verdict: str
    severity: str
    decisive: bool
    message: str

    @property
    def regressed(self) -> bool:
        """Whether somebody has to hear of it."""
        return self.verdict == "regressed" and self.severity != "ignore"


def verdict(document: Document) -> str:
    """The verdict of all, in a word or two."""
    return document["verdict"] or NO_BASELINE


def sentence(document: Document, limit: int = 2000) -> str:
    """What changed and why, one line."""
    return fmt.clean(document["sentence"], limit)


def is_news(document: Document) -> bool:
    """Whether anybody should be told without asking; not where nothing changed, and not where there is no baseline yet.

    What cannot be told is news where it ends the check with an error; a project that lets it pass does not want to hear it each time.
    """
    rows = (r for r in document["metrics"] if r["sort"] in _SORTS)
    if any(r["verdict"] in _CHANGED and r["severity"] != "ignore" for r in (*rows, *document["drift"])):
        return True
    return document["verdict"] in (*_CHANGED, *_UNTOLD) and (document["verdict"] in _CHANGED or document["exit_code"] != 0)


def context(document: Document) -> str:
    """Scenario, runs of both sides and how many numbers of each verdict."""
    base, head = (fmt.plural(len(document[side]), "run") for side in ("base", "head"))
    counts = ", ".join(f"{n:,} {fmt.clean(name)}" for name, n in document["counts"].items() if n)
    scenario = f"scenario {fmt.clean(document['scenario'])}; " if document["scenario"] else ""
    return f"{scenario}base {base}, head {head}; {counts or 'nothing compared'}"


def judged(document: Document) -> list[Judged]:
    """Everything that was judged, what is worse first within its sort: limits, drift, then the metrics in the document's order."""
    out = [Judged("limits", fmt.clean(b["budget"]), fmt.clean(b["budget"]), b["verdict"], "fail", True, _limit_words(b)) for b in document["budgets"]]
    out += [
        Judged("drift", fmt.clean(d["id"], 300), f"{name(d)} over the history", d["verdict"], d["severity"], False, fmt.clean(d["sentence"], 300))
        for d in document["drift"]
    ]
    rows = (r for r in document["metrics"] if r["sort"] in _SORTS)
    return out + [Judged(_SORTS[r["sort"]], fmt.clean(r["id"], 300), name(r), r["verdict"], r["severity"], r["decisive"], _message(document, r)) for r in rows]


def _limit_words(budget: Row) -> str:
    return f"{fmt.scalar(budget['name'], budget['value'])}, {limit(budget)}"


def _message(document: Document, row: Row) -> str:
    values = f"{cell(row, 'base')} → {cell(row, 'head')}"
    if row["verdict"] in _UNTOLD:
        why = row["reason"] or (document["sentence"] if row["verdict"] == "incomparable" else "")
        return fmt.clean(why, 300) or values
    moved = f"{share(row, row['shift'], ' %')}{interval(row)}: " if row["shift"] is not None else ""
    return moved + values + (f" ({fmt.clean(row['reason'], 200)})" if row["reason"] else "")


def grids(document: Document, most: int = MOST_ROWS) -> list[Grid]:
    """The tables with at most so many rows each, and a note where there are more."""
    return [cut(grid, total) for grid, total in tables(document, most)]


def cut(grid: Grid, total: int) -> Grid:
    """A table with a note of how many of its rows are shown, where they are not all."""
    left_out = f"{len(grid.rows):,} of {total:,} shown; the JSON document holds all" if total > len(grid.rows) else ""
    return Grid(grid.title, grid.header, grid.rows, grid.numeric, left_out)


def tables(document: Document, most: int = MOST_ROWS) -> list[tuple[Grid, int]]:
    """Limits, what is not the same, what creeps, changed facts, and the timed metrics: each with how many rows it would have."""
    rows, out = document["metrics"], []

    def add(title: str, header: tuple[str, ...], numeric: str, found: Sequence[Any], cells: Callable[[Any], tuple[str, ...]]) -> None:
        if found:
            out.append((Grid(title, header, tuple(cells(r) for r in found[:most]), tuple(c == "n" for c in numeric)), len(found)))

    add(
        "Limits",
        ("limit", "head", "verdict"),
        "-n-",
        document["budgets"],
        lambda b: (first(b["budget"]), fmt.scalar(b["name"], b["value"]), limit(b)),
    )
    add(
        "What is not the same",
        ("setup", "base", "head"),
        "---",
        document["fingerprint"]["differs"],
        lambda d: (first(d["name"]), fmt.scalar("", d["base"]), fmt.scalar("", d["head"])),
    )
    add(
        "Over the baseline's history, against its first level",
        ("metric", "new level", "since", "head", "verdict"),
        "-n-n-",
        document["drift"],
        lambda d: (name(d), fmt.signed_percent(d["shift"]), fmt.clean(d["points"][0], 16), fmt.signed_percent(d["head_shift"]), d["verdict"]),
    )
    if not _all_incomparable(document):
        facts = [r for r in rows if r["sort"] == "fact" and (r["verdict"] != "unchanged" or r["reason"])]
        add("Facts that changed", ("fact", "base", "head", "verdict"), "-nn-", facts, lambda r: (name(r), cell(r, "base"), cell(r, "head"), r["verdict"]))
    add("Per step, median over runs", _TIMED, "-nnnnn-", [r for r in rows if r["sort"] in ("step", "part")], _timed)
    add("Layers", _TIMED, "-nnnnn-", [r for r in rows if r["sort"] == "detail" and r["verdict"] in _CHANGED], _timed)
    return out


def _all_incomparable(document: Document) -> bool:
    return bool(document["fingerprint"]["differs"]) and not document["fingerprint"]["forced"]


def _timed(row: Row) -> tuple[str, ...]:
    low_high = "" if row["low"] is None or row["high"] is None else f"{share(row, row['low'], '')} … {share(row, row['high'], '')}"
    seen = "" if row["detectable"] is None else f"≥ {100 * row['detectable']:.1f}"
    told = row["verdict"] + (f" ({fmt.plural(row['runs_needed'], 'run')} would do)" if row["runs_needed"] and row["verdict"] == "inconclusive" else "")
    return (name(row), cell(row, "base"), cell(row, "head"), share(row, row["shift"], " %"), low_high, seen, told)


def interval(row: Row) -> str:
    """The 95 % interval of a shift in brackets, after a blank; "" where there is none."""
    return "" if row["low"] is None or row["high"] is None else f" [{share(row, row['low'], '')}, {share(row, row['high'], '')}]"


def share(row: Row, value: float | None, unit: str) -> str:
    """A shift on its row's own scale: percent, points of a ratio, or the metric's unit; ``unit`` is written where it is not empty."""
    if value is None:
        return fmt.UNKNOWN if unit else ""
    if row["scale"] == "difference" and not row["metric"].endswith("_ratio"):
        return fmt.signed(row["metric"], value)
    number = fmt.signed_percent(value).removesuffix(" %")
    return number + (unit if row["scale"] == "ratio" else " pts" if unit else "")


def cell(row: Row, side: str) -> str:
    """The value of one side; of a fact that has several, the first of them."""
    value = row[side]
    if isinstance(value, list):
        return " or ".join(fmt.scalar(row["metric"], v) for v in value[:3]) + (" …" if len(value) > 3 else "")
    return fmt.scalar(row["metric"], value)


def name(row: Row) -> str:
    """A metric and its place in words; of a single layer, the layer comes first."""
    where = dict(row["where"])
    if row["metric"].startswith("layer_") and (layer := where.pop("layer", None)) is not None:
        kind, axis = fmt.clean(where.pop("kind", ""), 20).replace("_", "-"), fmt.clean(where.pop("axis", ""), 20)
        others = (fmt.clean(v, 60) for v in where.values())
        what = fmt.label(row["metric"]).removeprefix("layer ")
        of = "vs. siblings" if row.get("against") else ""
        return first(" ".join(filter(None, (fmt.clean(layer, 60), kind, f"({axis})" if axis else "", *others, what, of))), 200)
    place = " ".join(fmt.clean(f"rank {v}" if p == "rank" else str(v).replace("_", "-") if p == "kind" else v, 60) for p, v in where.items())
    siblings = " vs. siblings" if row.get("against") else ""
    return first(row["title"]) + (f", {place}" if place else "") + siblings


def first(text: object, most: int = 80) -> str:
    """A name at the start of a line, where a CI runner would take ``::error::`` as a command."""
    return fmt.clean(text, most).replace("::", ": :")


def limit(budget: Row) -> str:
    """How a limit stands."""
    words = {"unchanged": "kept", "regressed": "broken"}
    return words.get(str(budget["verdict"])) or f"unknown: {fmt.clean(budget['reason'] or '', 200)}"


def notes(document: Document) -> list[str]:
    """The document's notes, and the reasons of what could not be told."""
    reasons: dict[str, list[str]] = {}
    for r in document["metrics"]:
        if r["reason"] and r["verdict"] in _UNTOLD and (r["decisive"] or r["sort"] in ("step", "fact")):
            reasons.setdefault(r["reason"], []).append(name(r))
    told = [f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}: {reason}." for reason, names in list(reasons.items())[:6]]
    return [fmt.clean(note, 1000) for note in (*document["notes"], *told)]
