"""How does a figure stand on a page? A card: title, how its numbers came about, caption, drawing, and the ways to take it along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from dashboard.components.attributes import aria, data
from dashboard.components.query import address
from dashboard.components.text import tags

#: Figures of many lanes or panels: they take the whole width of a wide screen.
WIDE = frozenset({"schedule", "late_arrivals", "layer_cost", "memory_curve", "step_waterfall"})
#: Until its data is there a drawing shows nothing: no axes that mean nothing.
_BLANK = {"data": [], "layout": {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "xaxis": {"visible": False}, "yaxis": {"visible": False}}}
_CONFIG: dcc.Graph.Config = {"displayModeBar": False, "responsive": True, "scrollZoom": False, "doubleClick": "reset"}


def card(
    name: str,
    title: str,
    caption: str,
    source: str,
    height: int,
    how: Sequence[str],
    *,
    definition: str,
    here: str,
    query: dict[str, Any] | None = None,
    wide: bool = False,
) -> html.Section:
    """A figure in its card.

    Args:
        name: short name, unique on the page; its anchor is ``figure-<name>``.
        title: a few words.
        caption: what it shows, one line.
        source: address of its JSON and CSV without the suffix.
        height: pixels.
        how: tags.
        definition: address of its definition.
        here: address of this page, the state included.
        query: the state that the drawing depends on.
        wide: whether it takes the whole width.
    """
    anchor, query = f"figure-{name}", query or {}
    actions = [
        html.Button("PNG", className="action", title="Save this figure as an image", **data(png=name), **aria(label=f"Save {title} as PNG"), type="button"),
        html.A(
            "CSV",
            href=address(f"{source}.csv", **query),
            className="action",
            title="Save the numbers that this figure draws",
            download="",
            **aria(label=f"Save {title} as CSV"),
        ),
        html.A("Definition", href=definition, className="action", title="What these numbers are, and where their definition comes from"),
        html.A(
            "Link",
            href=f"{here}#{anchor}",
            className="action",
            title="A link to this figure as it stands",
            **data(copy="true"),
            **aria(label=f"Link to {title}"),
        ),
    ]
    plot = html.Div(
        [
            dcc.Graph(id={"type": "figure", "name": name}, figure=_BLANK, config=_CONFIG, style={"height": f"{height}px"}, responsive=True),
            dcc.Store(id={"type": "figure-source", "name": name}, data=address(f"{source}.json", **query)),
        ],
        className="plot loading",
        role="img",
        style={"minHeight": f"{height}px"},
        **aria(label=caption),
        **data(figure=name),
    )
    head = html.Header([html.Div([html.H3(title, id=f"{anchor}-title"), tags(how)], className="title"), html.Div(actions, className="actions")])
    return html.Section([head, html.P(caption, className="caption"), plot], id=anchor, className="card figure" + (" wide" if wide or name in WIDE else ""))
