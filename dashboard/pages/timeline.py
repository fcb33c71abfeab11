"""What did every rank do, and when? All lanes of a run, from hours down to one kernel."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from dash import html

from dashboard.components.guard import Query, run_page
from dashboard.reading import View

#: Where windows are opened in Perfetto unless the settings name another place.
PERFETTO = "https://ui.perfetto.dev"


def draw(view: View, query: Query) -> html.Div:
    """The frame of the timeline; ``assets/timeline*.js`` fill it and keep its state in the address."""
    site = perfetto_of(getattr(view.shared.settings, "perfetto_url", PERFETTO))
    told: dict[str, Any] = {"data-run": view.id, "data-perfetto": site or ""}
    root = html.Div(id="timeline-root", **told)
    return html.Div([html.H1("Timeline"), root], className="page timeline")


def perfetto_of(address: str | None) -> str | None:
    """The address of a Perfetto; None where none is offered, or the address is no web address.

    >>> perfetto_of("https://ui.perfetto.dev"), perfetto_of("javascript:alert(1)"), perfetto_of(None)
    ('https://ui.perfetto.dev', None, None)
    """
    parts = urlsplit(address or "")
    return address if parts.scheme in ("http", "https") and parts.hostname else None


layout = run_page(draw)
