"""How do traces get here? A page, and an area for other pages, that ``assets/upload*.js`` fill."""

from __future__ import annotations

from dash import html

from dashboard.components.guard import Query, page


def upload_area() -> html.Div:
    """Where files and folders are dropped; what it shows is drawn in the browser, where the files are."""
    return html.Div(id="tk-upload", className="tk-upload")


def draw(query: Query) -> html.Div:
    """The page of uploads alone."""
    intro = "Drop the traces of one job: each drop becomes a run. After a reload, a network cut or a restart of the server, choose the same files again."
    twin = html.P(["From a shell: ", html.Code("tracekit upload RUN --to ADDRESS")], className="where")
    return html.Div([html.Div(html.H1("Upload"), className="title"), html.P(intro, className="question"), upload_area(), twin], className="page narrow")


layout = page(draw)
