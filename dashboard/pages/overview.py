"""What is wrong with this run, in five seconds? Health first, then one sentence, then key numbers and where the step went."""

from __future__ import annotations

from typing import Any

from dash import html

from dashboard.components.controls import bar, step_choice
from dashboard.components.guard import Query, run_page
from dashboard.components.query import narrowed, text
from dashboard.components.section import section, stays
from dashboard.components.text import badge, cards, facts, findings
from dashboard.pages import OWN
from dashboard.reading import View
from tracekit.metrics import METRICS
from tracekit.report.cards import cards as key_numbers
from tracekit.report.headline import headline
from tracekit.report.sections.common import emulated
from tracekit.report.story import findings_of, run_of

FIRST = ("budget", "step_time", "breakdown")


def draw(view: View, query: Query) -> html.Div:
    """The overview of a run."""
    document = view.brief()
    said, advice = headline(document)
    found = findings_of(document)
    only = {k: v for k, v in narrowed(query, view.steps()).items() if k == "step"}
    verdict = str(document["health"]["verdict"])
    state = [badge(f"health: {verdict}", verdict), *([badge("emulated compute", "emulated")] if emulated(document) else [])]
    top = html.Header(
        [
            html.Div([html.H1(view.run.name), html.Span(state, className="tags")], className="title"),
            *findings(found),
            html.P(said, className="answer"),
            *([html.P(advice, className="advice")] if advice else []),
            cards(key_numbers(document)),
            facts(run_of(document), "run"),
        ],
        className="page-head",
    )
    rest = [m.name for m in METRICS if m.name not in OWN and m.name not in FIRST]
    available = view.available()
    shown = [m for m in (*FIRST, *rest) if m in FIRST or m in available]
    absent = [view.metric(m.name) for m in METRICS if m.name not in shown and m.name not in available]
    parts: list[Any] = [section(view, m, "overview", only, brief=m not in FIRST) for m in shown]
    return html.Div([top, bar(step_choice(view.steps(), view.steady(), text(query.get("step")))), *stays(only), *parts, *_absent(absent)], className="page")


def _absent(of: list[dict[str, Any]]) -> list[html.Section]:
    if not of:
        return []
    rows = [html.Div([html.Dt(m["title"]), html.Dd(str(m["reason"] or "no reason was given"))]) for m in of]
    return [html.Section([html.H2("Not available, and why"), html.Dl(rows, className="absent")], className="metric", id="unavailable")]


layout = run_page(draw)
