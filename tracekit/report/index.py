"""How do several runs become one page? A comparison on top, and a link to each run's own report."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tracekit import wording as fmt
from tracekit.report.html import Drawn, page
from tracekit.report.rows import metric
from tracekit.report.sections.budget import mean_parts
from tracekit.report.sections.common import emulated
from tracekit.report.side_by_side import Compared, cards, sentences, tables


def render(title: str, answer: str, explanation: str, runs: Sequence[Compared]) -> str:
    """One self-contained HTML document over several runs; links are relative to it."""
    from tracekit import __version__
    from tracekit.figures import embed, side_by_side

    parts = {
        r.name: {fmt.part(p["part"], p["axis"]): p["duration_ns"] for p in mean_parts(r.document) if p["duration_ns"] is not None}
        for r in runs
        if metric(r.document, "budget").get("available")
    }
    fig = side_by_side.budgets(parts)
    figures = [] if fig is None else [Drawn("figure-budgets", "Where the step of each run went.", int(fig.layout.height), Markup(embed.to_json(fig)))]
    return page(
        "index.html.j2",
        title=title,
        answer=answer,
        explanation=explanation,
        cards=cards(runs),
        sentences=sentences(runs),
        emulated={r.name for r in runs if emulated(r.document)},
        figures=figures,
        grids=tables(runs),
        version=__version__,
    )
