"""What is different between two runs, and why? Differences ranked by size with their cause; nothing is claimed of runs that cannot be compared."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from dashboard.components.attributes import aria
from dashboard.components.drawings import Drawn, serialised
from dashboard.components.figure import card
from dashboard.components.guard import Query, as_json, page, some_ranks
from dashboard.components.query import address, run_page
from dashboard.components.states import damaged, no_run, not_ready, state
from dashboard.components.text import badge, grid, tag
from dashboard.reading import NotReady, UnknownRun, View, open_run, shared
from dashboard.tables import NOT_COMPARED, without
from tracekit import wording as fmt
from tracekit.compare.comparison import Comparison, compare
from tracekit.compare.rows import Row
from tracekit.compare.snapshot import Snapshot, snapshot
from tracekit.errors import InputError
from tracekit.figures import side_by_side as figures
from tracekit.metrics import METRICS
from tracekit.report import side_by_side as report
from tracekit.report.parts import Grid
from tracekit.report.rows import metric
from tracekit.report.sections.budget import mean_parts
from tracekit.report.sections.common import emulated

_MOST = 24


def draw(query: Query) -> html.Div:
    """The comparison of the runs ``a`` and ``b``."""
    a, b = query.get("a", ""), query.get("b", "")
    head = [html.H1("Compare"), _choices(a, b)]
    if not a or not b or a == b:
        line = (
            "Choose two different runs above, or tick them in the list of runs."
            if len(_ready()) > 1
            else "Two runs are needed; this server has fewer that are ready."
        )
        return html.Div([*head, state("Two runs, side by side", line, [("All runs", "/")])], className="page")
    views = []
    for run in (a, b):
        try:
            views.append(open_run(run))
        except UnknownRun:
            return html.Div([*head, no_run(run)], className="page")
        except NotReady as error:
            return html.Div([*head, not_ready(error.args[0])], className="page")
        except InputError as error:
            return html.Div([*head, damaged(run, error.reason)], className="page")
    first, second = views
    anyway = query.get("anyway") == "1"
    key = ("compare", first.run.name, second.id, second.generation, second.run.name, anyway)
    body = first.cached(key, lambda: as_json(_body(first, second, anyway)), lambda d: 4 * len(str(d)))
    partial = [html.Div([html.H3(fmt.clean(v.run.name, 80)), some_ranks(v.run)]) for v in views if v.run.partial]
    return html.Div([*head, *partial, body], className="page")


def compared(first: View, second: View) -> Comparison:
    """Two runs, one on each side: facts exactly, times without statistics."""
    return compare([_snapshot(first)], [_snapshot(second)])


def _snapshot(view: View) -> Snapshot:
    def made() -> Snapshot:
        metrics = {about.name: without(about.name, view.analysis.result(about.name), NOT_COMPARED) for about in METRICS}
        document = {**view.document(()), "metrics": metrics}
        return snapshot(document, str(view.run.name))

    return view.cached(("snapshot", view.run.name), made, lambda s: 400 * (len(s.facts) + len(s.timed)))


def _body(first: View, second: View, anyway: bool) -> html.Div:
    found = compared(first, second)
    differs = bool(found.differs)
    claims = not differs or anyway
    slept = emulated(first.document(())) or emulated(second.document(()))
    how = ["measured", *(["emulated"] if slept else [])]
    parts: list[Any] = [_said(found, claims, first, second)]
    if differs:
        parts.append(_differs(found, first, second, anyway))
    drawn = budgets(first, second)
    if drawn is not None:
        source = f"/api/compare/{first.id}/{second.id}/budgets"
        here = address("/compare", a=first.id, b=second.id)
        made = card(
            "budgets", "Where the step of each run went", "Shares of a mean step, by part.", source, drawn.height, ["derived", *how[1:]],
            definition="/definitions#metric-budget", here=here, query={"g": _stamp(first, second)}, wide=True,
        )  # fmt: skip
        parts.append(html.Div(made, className="figures"))
    document = found.to_dict()
    tables = [
        _parts(document["attribution"]["parts"], claims, first, second),
        *([_layers(document["attribution"]["layers"])] if claims else []),
        _facts(found.rows, claims, first, second),
    ]
    parts += [html.Div(grid(g), className="card plain") for g in tables if g.rows]
    runs = [
        report.Compared(str(v.run.name), run_page(v.id, "overview"), v.document(("budget", "breakdown", "collectives", "pipeline", "memory", "recompute")))
        for v in (first, second)
    ]
    beside = [grid(g) for g in report.tables(runs) if g.rows]
    parts.append(html.Section([html.H2("Side by side"), html.Div(beside, className="card plain")], className="metric"))
    return html.Div([*parts, html.Div([html.P(fmt.clean(n, 400), className="note") for n in found.notes], className="notes")])


def _stamp(first: View, second: View) -> str:
    """Changes whenever the drawing of two runs does; their names stand in it."""
    return f"{first.generation}.{second.generation}.{zlib.crc32(repr((first.run.name, second.run.name)).encode()):x}"


def budgets(first: View, second: View) -> Drawn | None:
    """Where the step of each run went, drawn."""
    parts = {}
    for side, view in (("base: ", first), ("head: ", second)):
        document = view.document(("budget",))
        if metric(document, "budget").get("available"):
            parts[side + fmt.clean(view.run.name, 50)] = {
                fmt.part(p["part"], p["axis"]): p["duration_ns"] for p in mean_parts(document) if p["duration_ns"] is not None
            }
    return serialised(figures.budgets(parts)) if parts else None


def _said(found: Comparison, claims: bool, first: View, second: View) -> html.Header:
    names = html.P(
        [
            html.B("base "),
            html.A(first.run.name, href=run_page(first.id, "overview")),
            "  →  ",
            html.B("head "),
            html.A(second.run.name, href=run_page(second.id, "overview")),
        ]
    )
    swap = html.A("Swap", href=address("/compare", a=second.id, b=first.id), className="action")
    if not claims:
        line = (
            "These runs are not comparable; they differ in "
            + ", ".join(d.text() for d in found.differs[:3])
            + ("" if len(found.differs) <= 3 else f" and {len(found.differs) - 3} more")
            + "."
        )
        said = [html.P(fmt.clean(line, 300), className="answer"), html.P("Their numbers stand side by side; no difference is claimed.", className="advice")]
    else:
        sentence = fmt.clean(found.sentence, 500)
        said = [
            html.P(sentence[:1].upper() + sentence[1:], className="answer"),
            html.P("Difference, no statistics: one run each. Counts and bytes are compared exactly; times vary from run to run.", className="advice"),
        ]
    verdict = "no baseline" if found.verdict is None else found.verdict.value
    kind = {"regressed": "error", "improved": "ok", "unchanged": "ok"}.get(verdict, "warning")
    return html.Header([html.Div([names, badge(verdict, kind), tag("measured"), swap], className="title"), *said], className="page-head")


def _differs(found: Comparison, first: View, second: View, anyway: bool) -> html.Section:
    rows = tuple((fmt.clean(d.name), _word(d.base), _word(d.head)) for d in found.differs)
    table = grid(
        Grid("What is not the same", ("what", f"base: {fmt.clean(first.run.name, 40)}", f"head: {fmt.clean(second.run.name, 40)}"), rows, (False, False, False))
    )
    words, value = ("Claim nothing", None) if anyway else ("Show the differences all the same", "1")
    way = html.P(html.A(words, href=address("/compare", a=first.id, b=second.id, anyway=value), className="button quiet"), className="ways")
    return html.Section([table, way], className="card plain")


def _parts(parts: Sequence[dict[str, Any]], claims: bool, first: View, second: View) -> Grid:
    shown = parts[:_MOST]
    columns = [fmt.column("base_ns", [p["base_ns"] for p in shown]), fmt.column("head_ns", [p["head_ns"] for p in shown])]
    header = ["part of the step", columns[0][0], columns[1][0]]
    cells = [[fmt.part(p["part"], p["axis"]) for p in shown], columns[0][1], columns[1][1]]
    if claims:
        header.append("change")
        cells.append([fmt.signed("change_ns", p["change_ns"]) for p in shown])
    title = "What changed in a step, the largest difference first" if claims else "Parts of a step"
    return Grid(title, tuple(header), tuple(zip(*cells, strict=True)), (False, *([True] * (len(header) - 1))))


def _layers(layers: Sequence[dict[str, Any]]) -> Grid:
    rows = tuple(
        (
            *(fmt.clean(x["text"], 80), fmt.clean(x["kind"] or fmt.UNKNOWN), fmt.clean(x["axis"] or "")),
            *(fmt.signed(name, x[name]) for name in ("change_ns", "exposed_change_ns")),
        )
        for x in layers[:_MOST]
    )
    return Grid(
        "Layers whose collectives changed, the largest difference first",
        ("layers", "kind", "axis", "change", "of it exposed"),
        rows,
        (False, False, False, True, True),
    )


def _facts(rows: Sequence[Row], claims: bool, first: View, second: View) -> Grid:
    changed = [r for r in rows if r.entry.sort == "fact" and r.base != r.head]
    changed.sort(key=lambda r: -_size(r))
    shown = tuple(
        (
            r.entry.title,
            fmt.clean(", ".join(f"{k} {v}" for k, v in r.key.where), 80),
            fmt.scalar(r.key.metric, r.base),
            fmt.scalar(r.key.metric, r.head),
            *([r.verdict.value] if claims else []),
        )
        for r in changed[:_MOST]
    )
    note = f"{len(shown)} of {len(changed)} rows shown" if len(changed) > len(shown) else ""
    return Grid(
        "Counts and bytes that are not the same",
        ("what", "where", "base", "head", *(["verdict"] if claims else [])),
        shown,
        (False, False, True, True, *([False] if claims else [])),
        note,
    )


def _size(row: Row) -> float:
    """How much larger one side is than the other; one that is unknown comes last."""
    numbers = [abs(v) for v in (row.base, row.head) if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return abs(numbers[0] - numbers[1]) / max(numbers) if len(numbers) == 2 and max(numbers) else 0.0


def _word(value: Any) -> str:
    return fmt.UNKNOWN if value is None else fmt.clean(value, 80)


def _ready() -> list[Any]:
    return [r for r in shared().library.runs(limit=400) if r.generation]


def _choices(a: str, b: str) -> html.Div:
    data = [{"value": str(r.id), "label": fmt.clean(r.name, 80)} for r in _ready()]

    def select(name: str, label: str, chosen: str) -> dmc.Select:
        return dmc.Select(
            id={"type": "control", "name": name},
            label=label,
            data=data,
            value=chosen or None,
            placeholder="choose a run",
            searchable=True,
            size="sm",
            className="choice wide-choice",
        )

    return html.Div([select("a", "Base", a), select("b", "Head", b)], className="controls", role="group", **aria(label="Runs to compare"))


layout = page(draw)
