"""How does a what-if stand on a page? What it says, the choices that narrow it, its figure, its table; or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from dash import html

from dashboard.components.controls import bar, choice, words
from dashboard.components.drawings import Drawn
from dashboard.components.figure import card
from dashboard.components.guard import Query
from dashboard.components.query import run_page, text
from dashboard.components.states import again
from dashboard.components.text import facts, folded, tags
from dashboard.extras import LIMIT, MICROBATCHES, SIZE, alternatives, asked, of_memory, of_pipeline, recomputations, stored
from dashboard.reading import View
from tracekit.metrics import Result
from tracekit.report import memory_what_if, what_if
from tracekit.report.parts import Section
from tracekit.report.sections.common import sentence
from tracekit.wording import clean, plural, size


def pipeline(view: View, query: Query) -> html.Section:
    """What other schedules would take, with how many microbatches and within how much memory."""
    of, result = asked(query), of_pipeline(view, asked(query))
    if result is None or not result.available:
        return _none(view, result, "tracekit simulate RUN")
    controls = [_which(view, "what_if", "microbatches", MICROBATCHES, "Microbatches", query), _limit(query)]
    said, advice, found = what_if.worded(result, _emulated(view))
    caption = "Time of a step per microbatch under each alternative: work, and bubble."
    figure = _figure(view, "pipeline", "what_if", caption, alternatives(view, of), found, {k: text(query.get(k)) for k in (MICROBATCHES, LIMIT)}, query)
    return _section(said, advice, controls, of.refused, found, figure)


def memory(view: View, query: Query) -> html.Section:
    """What other recomputations would take, with microbatches of which size, and which of them fit into how much memory."""
    of, result = asked(query), of_memory(view, asked(query))
    if result is None or not result.available:
        return _none(view, result, "tracekit simulate RUN --recompute full")
    controls = [_which(view, "memory_what_if", "microbatch_size", SIZE, "Samples per microbatch", query), _limit(query)]
    said, advice, found = memory_what_if.worded(result)
    fitting = [html.P(_fitting(result, of.limit_bytes), className="advice")] if of.limit_bytes is not None else []
    drawn, kept = recomputations(view, of), {k: text(query.get(k)) for k in (SIZE, LIMIT)}
    figure = _figure(view, "memory", "memory_what_if", memory_what_if.CAPTION, drawn, found, kept, query)
    return _section(said, advice, controls, of.refused, found, [*fitting, *figure])


def _figure(view: View, page: str, name: str, caption: str, drawn: Drawn | None, found: Section, kept: dict[str, str], query: Query) -> list[Any]:
    """The card of a what-if's figure; ``kept`` is what it depends on."""
    if drawn is None:
        return []
    here = run_page(view.id, page, step=text(query.get("step")), **kept)
    source, asked_as = f"/api/runs/{view.id}/figures/{name}", {"g": view.generation, **kept}
    means = f"/definitions#metric-{name}"
    return [card(name, "Alternatives", caption, source, drawn.height, found.tags, definition=means, here=here, query=asked_as, wide=True)]


def _fitting(result: Result, limit: int) -> str:
    """Which alternatives fit into a memory, and with how many samples per microbatch they still would."""
    table = result.tables["alternatives"]
    fits = table[table["fits"].fillna(False).astype(bool)]
    named = [str(label) if pd.isna(most) else f"{label} (up to b={most})" for label, most in zip(fits["label"], fits["largest_microbatch"], strict=True)]
    return f"Within {size(limit)}: " + (clean("; ".join(named), 400) if named else f"none of {plural(len(table), 'alternative')}") + "."


def _section(said: str, advice: str, controls: Sequence[Any], refused: str, found: Section, more: Sequence[Any]) -> html.Section:
    head = html.Header([html.Div([html.H2("What if"), tags(found.tags)], className="title"), html.P([said, " ", html.B(advice)], className="question")])
    complaint = [html.P(clean(refused, 200), className="note", role="alert")] if refused else []
    notes = html.Div([html.P(n, className="note") for n in found.notes], className="notes")
    return html.Section([head, bar(controls), *complaint, facts(found.facts), *more, folded(found.grids), notes], className="metric", id="metric-what_if")


def _none(view: View, result: Result | None, command: str) -> html.Section:
    """Why there is no what-if, and where no one asked for one, the command that does."""
    before = "Alternatives are simulated while a run is read; this one was read before that. "
    line: list[Any] = [before, html.A("Read it again", href=again(view.id)), ", or use the command line:"]
    head = html.Header(html.Div([html.H2("What if"), tags(("simulated",))], className="title"))
    said = [html.P(line, className="question"), html.Pre(html.Code(command), className="command")]
    reason = "" if result is None else clean(str(result.reason), 400)
    why = [html.P(sentence(reason), className="question")] if reason else said
    return html.Section([head, *why], className="metric", id="metric-what_if")


def _which(view: View, name: str, column: str, asked_as: str, label: str, query: Query) -> Any:
    """A choice among the numbers that were tried."""
    result = stored(view, name)
    known = sorted(set(result.tables["alternatives"][column].dropna().astype(int))) if result is not None and result.available else []
    ran = "" if result is None else f"as ran: {result.summary['microbatch_size' if column == 'microbatch_size' else column]}"
    return choice(asked_as, label, known, text(query.get(asked_as)), ran)


def _limit(query: Query) -> Any:
    return words(LIMIT, "Memory of a device", text(query.get(LIMIT)), "no limit, or 80GB")


def _emulated(view: View) -> bool:
    return bool(view.document(())["run"].get("emulated"))
