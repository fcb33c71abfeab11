"""In which forms can an analysis be written? One file per form; all of them tell the same story in the same order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.analysed import Analysed


@dataclass(frozen=True)
class Renderer:
    """One form of the report.

    Attributes:
        name: text, plain, markdown, json or html.
        suffix: of a file in this form.
        render: Analysis -> the whole file as text.
    """

    name: str
    suffix: str
    render: Callable[[Analysed], str]


def _text(analysis: Analysed) -> str:
    from tracekit.report import text

    return text.render(analysis)


def _plain(analysis: Analysed) -> str:
    from tracekit.report import plain

    return plain.render(analysis)


def _markdown(analysis: Analysed) -> str:
    from tracekit.report import markdown

    return markdown.render(analysis)


def _json(analysis: Analysed) -> str:
    from tracekit.report import json_report

    return json_report.render(analysis)


def _html(analysis: Analysed) -> str:
    from tracekit.report import html

    return html.render(analysis)


#: Every form. Each imports what it needs only when it is used: the JSON needs neither rich, jinja2 nor plotly.
RENDERERS: tuple[Renderer, ...] = (
    Renderer("text", ".ansi", _text),
    Renderer("plain", ".txt", _plain),
    Renderer("markdown", ".md", _markdown),
    Renderer("json", ".json", _json),
    Renderer("html", ".html", _html),
)


def render(name: str, analysis: Analysed) -> str:
    """An analysis in one form, by the form's name.

    Raises:
        KeyError: there is no such form.
    """
    return {r.name: r.render for r in RENDERERS}[name](analysis)
