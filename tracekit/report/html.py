"""How does a report become one HTML file that needs no network and trusts no name in it?

Text is escaped by jinja2, figures travel as JSON, and the page's own Content-Security-Policy allows exactly its own
scripts (by their hashes) and no request to anywhere: a name that got through all the same could neither run nor call home.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tracekit.report.rows import steady_steps
from tracekit.report.story import story

if TYPE_CHECKING:
    from tracekit.analysed import Analysed


@dataclass(frozen=True)
class Drawn:
    """A figure in the page: id of its element, caption, height in pixels, JSON."""

    id: str
    caption: str
    height: int
    json: Markup


def render(analysis: Analysed) -> str:
    """The report as one self-contained HTML document (about 5 MB, of which plotly.js is 4.8)."""
    document = analysis.to_dict()
    return page("report.html.j2", story=story(document), figures=draw(analysis, document))


def draw(analysis: Analysed, document: Mapping[str, Any]) -> dict[str, list[Drawn]]:
    """Figures by metric, those that have something to draw."""
    from tracekit import figures
    from tracekit.figures import embed

    metrics, steps = document.get("metrics") or {}, steady_steps(document)
    out: dict[str, list[Drawn]] = {}
    for drawing in figures.FIGURES:
        if not (metrics.get(drawing.metric) or {}).get("available"):
            continue
        fig = drawing.draw(analysis.result, steps)
        if fig is not None:
            made = Drawn(f"figure-{drawing.name}", drawing.caption, int(fig.layout.height), Markup(embed.to_json(fig)))
            out.setdefault(drawing.metric, []).append(made)
    return out


def page(template: str, **values: Any) -> str:
    """A page from one of the templates, with style, scripts and the policy that allows only them."""
    from tracekit.figures import embed

    plotly, own = embed.script(), _asset("report.js")
    scripts = [Markup(plotly), Markup(own)]
    return _environment().get_template(template).render(style=Markup(_asset("style.css")), scripts=scripts, policy=_policy([plotly, own]), **values)


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("tracekit.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _asset(name: str) -> str:
    return (files("tracekit.report") / "templates" / name).read_text(encoding="utf-8")
