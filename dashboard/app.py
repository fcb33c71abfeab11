"""How do the pages become one app? Dash Pages, each module registered by name, everything served from this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import dash
from dash import ALL, MATCH, ClientsideFunction, Input, Output, State
from dash.exceptions import DependencyException
from flask import Flask

from dashboard.components.cache import ByteCache
from dashboard.components.table import block, counted, shown, with_words
from dashboard.pages import collectives, compare, definitions, job, memory, not_found_404, overview, pipeline, recompute, run, runs, timeline, upload
from dashboard.reading import EXTENSION, NotReady, Shared, UnknownRun, known_run, open_run
from dashboard.routes import blueprint
from dashboard.shell import around, shell
from tracekit.wording import clean

#: What drawings, documents and pages may take in memory together.
CACHE_BYTES = 64 * 2**20
TITLE = "tracekit"
_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{%title%}</title>
{%favicon%}
<script src="/assets/early.js"></script>
{%css%}
</head>
<body>
<noscript><p class="no-script">These pages need JavaScript. The command line says the same without it: tracekit analyze RUN</p></noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>"""


def create_app(settings: Any, library: Any, server: Flask | None = None) -> dash.Dash:
    """The app.

    Args:
        settings: how the server was started; ``cache_bytes``, where it has one, bounds what pages keep in memory.
        library: the stored runs (``dashboard.library.Library``).
        server: the Flask app to live in, which takes uploads (``dashboard.server.create_server``); a new one that takes none where None.

    Returns:
        The Dash app; ``app.server`` is the WSGI app.
    """
    app = dash.Dash(
        "dashboard",
        server=server if server is not None else True,  # type: ignore[arg-type]  # Dash takes a Flask, which its annotation leaves out
        use_pages=True,
        pages_folder="",
        assets_folder=_folder("assets"),
        assets_ignore=r"early\.js|.*\.map",
        serve_locally=True,
        suppress_callback_exceptions=True,
        title=TITLE,
        update_title="",
        index_string=_INDEX,
        compress=False,
    )
    limit = int(getattr(settings, "cache_bytes", 0) or CACHE_BYTES)
    app.server.extensions[EXTENSION] = Shared(settings, library, ByteCache(limit), server)
    app.server.register_blueprint(blueprint)
    app.server.register_error_handler(DependencyException, lambda _: ("there is no such file\n", 404, {"Content-Type": "text/plain"}))
    _register()
    app.layout = shell()
    _callbacks(app)
    return app


def _folder(name: str) -> str:
    return str(Path(__file__).parent / name)


def _register() -> None:
    """Register every page by module: nothing is searched for, so an installed package has them all."""
    for order, (module, path, name) in enumerate(pages()):
        where = {"path_template": path} if "<" in path else {"path": path}
        dash.register_page(module.__name__, name=name, title=_title(name, of_run="<run_id>" in path), order=order, layout=module.layout, **where)


def _title(name: str, of_run: bool) -> str | Callable[..., str]:
    """What a tab of the browser is called: of several tabs, each names its run."""

    def titled(run_id: str = "") -> str:
        try:
            run = known_run(run_id)
        except Exception:  # the page itself says what is wrong
            run = None
        return " · ".join([name, *([] if run is None else [clean(run.name, 100)]), TITLE])

    return titled if of_run else f"{name} · {TITLE}"


def pages() -> list[tuple[Any, str, str]]:
    """(module, path, name) of each page, the most specific path first."""
    return [
        (runs, "/", "Runs"),
        (overview, "/runs/<run_id>/overview", "Overview"),
        (collectives, "/runs/<run_id>/collectives", "Collectives"),
        (pipeline, "/runs/<run_id>/pipeline", "Pipeline"),
        (memory, "/runs/<run_id>/memory", "Memory"),
        (recompute, "/runs/<run_id>/recompute", "Recompute"),
        (upload, "/upload", "Upload"),
        (job, "/job/<run_id>", "Reading"),
        (timeline, "/runs/<run_id>/timeline", "Timeline"),
        (compare, "/compare", "Compare"),
        (definitions, "/definitions", "Definitions"),
        (not_found_404, "/404", "Not found"),
        (run, "/runs/<run_id>", "Overview"),
    ]


def _callbacks(app: dash.Dash) -> None:
    location = "_pages_location"

    @app.callback(Output("header-run", "children"), Output("navigation", "children"), Input(location, "pathname"), Input(location, "search"))
    def surroundings(pathname: str | None, search: str | None) -> Any:
        asked = parse_qs((search or "").lstrip("?")).get("step", [""])[0]
        return around(pathname, asked[:12])

    @app.callback(
        Output({"type": "rows", "of": MATCH}, "getRowsResponse"),
        Output({"type": "rows-count", "of": MATCH}, "children"),
        Input({"type": "rows", "of": MATCH}, "getRowsRequest"),
        State({"type": "rows-of", "of": MATCH}, "data"),
    )
    def rows(asked: dict[str, Any] | None, of: dict[str, Any] | None) -> Any:
        answer = rows_of(asked, of)
        return (answer, counted(answer["rowCount"], int((of or {}).get("every") or 0))) if isinstance(answer, dict) else (dash.no_update, dash.no_update)

    app.clientside_callback(
        ClientsideFunction("tracekit", "grids"),
        Output("grids", "data"),
        Input({"type": "rows", "of": ALL}, "getRowsRequest"),
        State({"type": "rows", "of": ALL}, "id"),
        State({"type": "rows-of", "of": ALL}, "data"),
    )
    app.clientside_callback(
        ClientsideFunction("tracekit", "figure"),
        Output({"type": "figure", "name": MATCH}, "figure"),
        Input({"type": "figure-source", "name": MATCH}, "data"),
        Input("scheme", "data"),
        State({"type": "figure-source", "name": MATCH}, "id"),
    )
    app.clientside_callback(
        ClientsideFunction("tracekit", "controls"),
        Output("query", "data"),
        Input({"type": "control", "name": ALL}, "value"),
        State({"type": "control", "name": ALL}, "id"),
    )
    app.clientside_callback(ClientsideFunction("tracekit", "burger"), Output("shell", "navbar"), Input("burger", "opened"), State("shell", "navbar"))
    runs.callbacks(app)


def rows_of(asked: dict[str, Any] | None, of: dict[str, Any] | None) -> Any:
    """The rows that a grid asks for; none of a run that is gone."""
    if not asked or not of:
        return dash.no_update
    try:
        view = open_run(str(of.get("run")))
    except (UnknownRun, NotReady):
        return {"rowData": [], "rowCount": 0}
    frame = view.table(str(of.get("metric")), str(of.get("table")))
    if frame is None:
        return {"rowData": [], "rowCount": 0}
    words = {str(c): str((f or {}).get("filter") or "")[:200] for c, f in (asked.get("filterModel") or {}).items()}
    chosen = with_words(shown(frame, {str(k): str(v) for k, v in (of.get("only") or {}).items()}), words)
    start, end = int(asked.get("startRow") or 0), int(asked.get("endRow") or 0)
    columns = [c for c in of.get("columns") or () if c in frame]
    rows = block(chosen, columns, start, end, asked.get("sortModel") or (), of.get("heads"), f"{of.get('metric')}.{of.get('table')}")
    return {"rowData": rows, "rowCount": len(chosen)}
