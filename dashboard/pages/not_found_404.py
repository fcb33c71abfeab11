"""What does a reader see at an address where nothing is?"""

from __future__ import annotations

from dash import html
from flask import has_request_context, request

from dashboard.components.guard import Query, page
from dashboard.components.states import no_page


def draw(query: Query) -> html.Div:
    """The page for an unknown address."""
    asked = request.get_json(silent=True) if has_request_context() and request.method == "POST" else None
    inputs = (asked or {}).get("inputs") or [] if isinstance(asked, dict) else []
    path = next((str(i.get("value")) for i in inputs if isinstance(i, dict) and i.get("property") == "pathname"), "this address")
    return no_page(path)


layout = page(draw)
