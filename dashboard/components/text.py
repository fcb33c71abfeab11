"""How are words set? Badges, tags, definition lists and small tables; every text is plain text, never HTML or Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dash import html

from dashboard.components.attributes import aria, data
from tracekit.report.parts import Card, Finding, Grid
from tracekit.wording import UNKNOWN

#: How a number came about -> what that means, in a few words; the page of definitions says it in full.
TAGS = {
    "measured": "read from the trace, or added from what is",
    "derived": "follows exactly from measured numbers",
    "inferred": "concluded from repetition or order where no name says it",
    "simulated": "computed by a simulation with measured times",
    "emulated": "the ranks slept instead of computing: times that follow from it are emulated too",
    "theory": "a closed form, nothing was measured",
}


def tag(name: str) -> html.A:
    """A tag that says how numbers came about, linked to its definition."""
    word = "emulated compute" if name == "emulated" else name
    return html.A(word, href=f"/definitions#tag-{name}", className=f"tag {name}", title=TAGS.get(name, ""))


def tags(names: Sequence[str]) -> html.Span:
    """Several tags side by side."""
    return html.Span([tag(n) for n in names], className="tags")


def badge(word: str, kind: str = "") -> html.Span:
    """A short state: ok, warnings, error."""
    return html.Span(word, className=f"badge {kind or word}")


def value(text: str) -> html.Span:
    """A value; ``unknown`` is set apart, so that nobody takes it for a number."""
    return html.Span(text, className="unknown" if text == UNKNOWN else "value")


def facts(pairs: Sequence[tuple[str, str]], kind: str = "facts") -> html.Dl:
    """Names and values."""
    return html.Dl([html.Div([html.Dt(name), html.Dd(value(v))]) for name, v in pairs], className=kind)


def cards(made: Sequence[Card]) -> html.Dl:
    """Key numbers, large."""
    return html.Dl([html.Div([html.Dt(c.label), html.Dd(value(c.value)), html.P(c.detail)], className="number") for c in made], className="numbers")


def folded(grids: Sequence[Grid]) -> html.Details:
    """Worded tables behind a line that opens them; ``assets/folds.js`` builds them then, from what is stated here."""
    stated = [{"title": g.title, "header": g.header, "rows": g.rows, "numeric": g.numeric, "note": _note(g)} for g in grids]
    place = html.Div(className="later", **data(grids=json.dumps(stated, ensure_ascii=False, separators=(",", ":"))))
    return html.Details([html.Summary("Numbers"), place], className="fold")


def grid(g: Grid) -> html.Div:
    """A worded table of a few rows."""
    head = html.Thead(html.Tr([html.Th(h, scope="col", className="num" if n else "") for h, n in zip(g.header, g.numeric, strict=True)]))
    body = html.Tbody([html.Tr([_cell(c, n) for c, n in zip(row, g.numeric, strict=True)]) for row in g.rows])
    table = html.Div(html.Table([head, body]), className="scroll", tabIndex=0, role="region", **aria(label=g.title))
    note = [html.P(_note(g), className="note")] if g.note else []
    return html.Div([html.H4(g.title), table, *note], className="grid")


def _note(g: Grid) -> str:
    return g.note.replace("the JSON report holds all", "the report of tracekit analyze holds all") + "." if g.note else ""


def _cell(text: str, numeric: bool) -> html.Td:
    names = [*(["num"] if numeric else []), *(["unknown"] if text == UNKNOWN else [])]
    return html.Td(text, className=" ".join(names))


def findings(found: Sequence[Finding], shown: int = 3) -> list[Any]:
    """Health findings, the worst first; past a few they are folded."""
    rows = [_finding(f) for f in found]
    if len(rows) <= shown:
        return [html.Ul(rows, className="findings")] if rows else []
    more = html.Details([html.Summary(f"{len(rows) - shown} more"), html.Ul(rows[shown:200], className="findings")], className="more")
    return [html.Ul(rows[:shown], className="findings"), more]


def _finding(f: Finding) -> html.Li:
    where = [html.Span(f" ({f.where})", className="where")] if f.where else []
    return html.Li([badge(f.severity), html.Span([html.Code(f.code), " ", f.message, *where])])
