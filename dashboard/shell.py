"""What stands around every page? Header, navigation, the switch between light and dark, and what the address is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import dcc, html

from dashboard.components.attributes import aria
from dashboard.components.query import run_page
from dashboard.components.text import badge
from dashboard.reading import NotReady, UnknownRun, known_run, open_run
from tracekit.errors import InputError

#: Pages of a run: name in the address -> words.
RUN_PAGES: Mapping[str, str] = {
    "overview": "Overview",
    "collectives": "Collectives",
    "pipeline": "Pipeline",
    "memory": "Memory",
    "recompute": "Recompute",
    "timeline": "Timeline",
}
THEME = {
    "colors": {"dark": ["#D5DCE5", "#B7C1CD", "#8C98A7", "#6A7685", "#3F4A58", "#333C48", "#222A34", "#1C222B", "#161B22", "#12161C"]},
    "fontFamily": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
    "primaryColor": "blue",
    "defaultRadius": "md",
    "cursorType": "pointer",
    "respectReducedMotion": True,
    "focusRing": "auto",
}


def shell() -> dmc.MantineProvider:
    """The frame of all pages; ``dash.page_container`` is the page itself."""
    head = dmc.AppShellHeader(
        html.Div(
            [
                dmc.Burger(id="burger", size="sm", hiddenFrom="md", opened=False, **aria(label="Navigation")),
                html.A([html.Span(className="logo", **aria(hidden="true")), "tracekit"], href="/", className="brand", **aria(label="tracekit, all runs")),
                html.Div(id="header-run", className="header-run"),
                dmc.ColorSchemeToggle(
                    id="scheme-toggle",
                    lightIcon=html.Span("☀", className="glyph"),
                    darkIcon=html.Span("☾", className="glyph"),
                    variant="subtle",
                    color="gray",
                    size="lg",
                    **aria(label="Switch between light and dark"),
                ),
            ],
            className="header",
        )
    )
    return dmc.MantineProvider(
        [
            html.A("Skip to the content", href="#content", className="skip"),
            dcc.Store(id="scheme"),
            dcc.Store(id="query"),
            dcc.Store(id="grids"),
            html.Div(id="offline", role="alert", className="offline", hidden=True),
            html.Div(id="announce", role="status", className="visually-hidden", **aria(live="polite")),
            dmc.AppShell(
                [
                    head,
                    dmc.AppShellNavbar(html.Nav(id="navigation", **aria(label="Pages"))),
                    dmc.AppShellMain(html.Main(dash.page_container, id="content", tabIndex=-1)),
                ],
                id="shell",
                header={"height": 56},
                navbar={"width": 208, "breakpoint": "md", "collapsed": {"mobile": True}},
                padding=0,
            ),
        ],
        defaultColorScheme="auto",
        theme=THEME,
    )


def place(pathname: str | None) -> tuple[str | None, str]:
    """(run, page) of an address; the run is None where it names none.

    >>> place("/runs/r1/memory"), place("/"), place("/compare")
    (('r1', 'memory'), (None, 'runs'), (None, 'compare'))
    """
    parts = [p for p in (pathname or "/").split("/") if p]
    if not parts:
        return None, "runs"
    if parts[0] == "runs" and len(parts) > 1:
        return parts[1], parts[2] if len(parts) > 2 else "overview"
    return None, parts[0]


def around(pathname: str | None, step: str = "") -> tuple[list[Any], list[Any]]:
    """(header, navigation) for an address.

    Args:
        pathname: of the address.
        step: the chosen step, which the pages of a run share.
    """
    run, here = place(pathname)
    name, verdict, known = _about(run)
    of_run = []
    if run is not None and known:
        of_run = [html.P("This run", className="nav-title")] + [_link(words, run_page(run, page, step=step), page == here) for page, words in RUN_PAGES.items()]
    compare = f"/compare?a={run}" if run is not None and known else "/compare"
    links = [
        _link("Runs", "/", here == "runs"),
        *of_run,
        html.P("More", className="nav-title"),
        _link("Compare", compare, here == "compare"),
        _link("Definitions", "/definitions", here == "definitions"),
    ]
    head = (
        []
        if name is None
        else [
            html.A(name, href=run_page(run or "", "overview"), className="run-name", title=name),
            *([badge(f"health: {verdict}", verdict)] if verdict else []),
        ]
    )
    return head, links


def _about(run: str | None) -> tuple[str | None, str | None, bool]:
    """(name, verdict, whether there is such a run)."""
    if run is None:
        return None, None, False
    try:
        view = open_run(run)
        return str(view.run.name), str(view.document(())["health"]["verdict"]), True
    except UnknownRun:
        return None, None, False
    except NotReady as error:
        return str(getattr(error.args[0], "name", run)), None, True
    except InputError:  # its page says so
        row = known_run(run)
        return (None, None, False) if row is None else (str(row.name), None, True)


def _link(words: str, href: str, here: bool) -> html.A:
    return html.A(words, href=href, className="nav-link here" if here else "nav-link", **(aria(current="page") if here else {}))
