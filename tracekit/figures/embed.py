"""How does a figure get into a page? As strict JSON, and the script that draws it."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs


def to_json(fig: go.Figure) -> str:
    """A figure as JSON that is safe inside a ``<script>`` element: no ``<`` is left that could close it."""
    text: str = fig.to_json()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def script() -> str:
    """plotly.js itself (4.8 MB), to be written once per page so that the page needs no network."""
    return str(get_plotlyjs()).replace("</script", "<\\/script")
