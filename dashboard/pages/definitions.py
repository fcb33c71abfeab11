"""What is each number, exactly, and who says so? Every metric's definition, every closed form, every tag."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from dash import html

from dashboard.components.attributes import aria
from dashboard.components.controls import bar, words
from dashboard.components.guard import Query, page
from dashboard.components.text import TAGS, tag
from tracekit import theory
from tracekit.metrics import METRICS

Entry = tuple[str, str, str, str, str]


@cache
def metrics() -> tuple[Entry, ...]:
    """(anchor, title, name, question, definition) of each metric, and of the what-ifs."""
    from tracekit.report.memory_what_if import _DEFINITION as of_memory
    from tracekit.report.what_if import _DEFINITION as of_pipeline

    found = tuple((f"metric-{m.name}", m.title, m.name, m.question, inspect.cleandoc(m.definition)) for m in METRICS)
    asked = ("What would another schedule or split take?", "What would memory and the step take under another recomputation or microbatch size?")
    return (
        *found,
        ("metric-what_if", "What if: pipeline", "what_if", asked[0], of_pipeline),
        ("metric-memory_what_if", "What if: memory", "memory_what_if", asked[1], of_memory),
    )


@cache
def formulas() -> tuple[Entry, ...]:
    """(anchor, name, signature, first line, rest) of each closed form."""
    found = []
    for name, of in inspect.getmembers(theory, inspect.isfunction):
        if name.startswith("_") or of.__module__ != theory.__name__:
            continue
        text = inspect.getdoc(of) or ""
        head, _, rest = text.partition("\n\n")
        found.append((f"formula-{name}", name.replace("_", " "), f"{name}({', '.join(inspect.signature(of).parameters)})", " ".join(head.split()), rest))
    return tuple(found)


def draw(query: Query) -> html.Div:
    """The page of definitions; ``q`` narrows it."""
    asked = query.get("q", "")
    chosen, forms = [_matching(of, asked) for of in (metrics(), formulas())]
    parts: list[Any] = [
        html.H1("Definitions"),
        html.P("Each number on these pages, exactly, with its source. Times are whole nanoseconds inside; unknown is never 0.", className="question"),
    ]
    parts.append(bar([words("q", "Search", asked, "bubble, wait, busbw …")]))
    if not asked:
        rows = [html.Div([html.Dt(tag(name), id=f"tag-{name}"), html.Dd(said)]) for name, said in TAGS.items()]
        parts.append(html.Section([html.H2("How a number came about"), html.Dl(rows, className="absent")], className="metric"))
    if chosen:
        parts.append(html.Section([html.H2("Metrics"), *(_entry(e) for e in chosen)], className="metric"))
    if forms:
        parts.append(html.Section([html.H2("Closed forms"), *(_entry(e) for e in forms)], className="metric"))
    if not chosen and not forms:
        parts.append(html.P(["Nothing is defined in these words. ", html.A("Show everything", href="/definitions")], className="nothing"))
    return html.Div(parts, className="page narrow")


def _matching(of: tuple[Entry, ...], asked: str) -> list[Entry]:
    return [e for e in of if all(w in " ".join(e).lower() for w in asked.lower().split())]


def _entry(e: Entry) -> html.Article:
    anchor, title, name, first, rest = e
    head = html.Header([html.H3([title, " ", html.A("#", href=f"#{anchor}", className="anchor", **aria(label=f"Link to {title}"))]), html.Code(name)])
    return html.Article([head, html.P(first), *([html.Pre(rest, className="definition")] if rest else [])], id=anchor, className="card definition")


layout = page(draw)
