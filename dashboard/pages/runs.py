"""Which runs are stored here? A list to search, tag, delete and compare, with the state of those that are still being read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ALL, ClientsideFunction, Input, Output, State, ctx, dcc, html

from dashboard.components.attributes import aria
from dashboard.components.controls import bar, choice, words
from dashboard.components.guard import Query, as_json, guarded, page
from dashboard.components.query import address, number, run_page
from dashboard.components.states import state
from dashboard.components.text import badge
from dashboard.reading import known_run, shared
from dashboard.store.rows import RunRow
from tracekit.wording import clean, duration, percent, plural, size

#: Runs on one page of the list.
PAGE = 50
#: Ticked runs that an address may name.
_TICKED = 20
_HEADS = [
    ("", ""),
    ("Run", ""),
    ("State", ""),
    ("Health", ""),
    ("Ranks", "num"),
    ("Step", "num"),
    ("Bubble", "num"),
    ("Peak memory", "num"),
    ("Added", ""),
    ("", ""),
]
_WORDS = {"ready": "ok", "failed": "error", "cancelled": "warning"}


def draw(query: Query) -> html.Div:
    """The list of runs; ``q``, ``tag`` and ``page`` narrow it, ``pick`` names those that are ticked."""
    library, upload = shared().library, _upload_area()
    every = library.count()
    above = [upload] if upload is not None else []
    if not every:
        line = "Drop the traces of a job here, or send them from a shell. Everything stays on this server."
        first = state("No runs yet", line, command="tracekit upload RUN --to ADDRESS")
        return html.Div([html.H1("Runs", className="visually-hidden"), *above, first, *_live("", query), *_dialogs()], className="page")
    known = [tag for tag, _ in library.tags()]
    controls = [words("q", "Search", query.get("q", ""), "name or tag"), *([choice("tag", "Tag", known, query.get("tag", ""), "every tag")] if known else [])]
    compare = html.A("Compare", href="/compare", id="compare-picked", className="button quiet off", **aria(disabled="true"), title="Tick two runs")
    listed = listing(query)
    head = html.Div([html.H1("Runs"), html.Span(plural(every, "run"), className="where")], className="title")
    state_of = _digest(listing(_unticked(query)))
    return html.Div([head, *above, bar(controls, [compare]), html.Div(listed, id="run-list"), *_live(state_of, query), *_dialogs()], className="page")


def listing(query: Query) -> list[Any]:
    """The runs that a query asks for, the newest first, and among them the ticked ones that it does not ask for: a search unticks nothing."""
    library = shared().library
    asked, tag = query.get("q", ""), query.get("tag") or None
    count = library.count(asked, tag)
    last = max(1, -(-count // PAGE))
    at = min(max(1, number(query.get("page"), 1) or 1), last)
    found = library.runs(asked, tag, limit=PAGE, offset=(at - 1) * PAGE)
    picked = [p for p in dict.fromkeys(query.get("pick", "").split(",")[:_TICKED]) if p]
    here = {r.id for r in found}
    ticked = [r for p in picked if p not in here and (r := known_run(p)) is not None and r.generation]
    nothing = [] if found else [html.P(["No run matches. ", html.A("Show all runs", href=address("/", pick=query.get("pick")))], className="nothing")]
    rows = html.Tbody([_row(r, r.id in picked) for r in sorted((*ticked, *found), key=lambda r: r.created_at, reverse=True)])
    head = html.Thead(html.Tr([html.Th(words, scope="col", className=kind) for words, kind in _HEADS]))
    table = html.Div(html.Table([head, rows], className="runs"), className="card scroll", tabIndex=0, role="region", **aria(label="Runs"))
    other = {k: v for k, v in query.items() if k != "page"}
    ways = [html.A(words, href=address("/", **other, page=n)) for words, n in (("Newer", at - 1), ("Older", at + 1)) if 1 <= n <= last]
    return [*nothing, *([table] if ticked or found else []), *([html.P([f"Page {at} of {last} ", *ways], className="ways")] if last > 1 else [])]


def _unticked(query: Query) -> dict[str, str]:
    return {k: v for k, v in query.items() if k != "pick"}


def _row(run: RunRow, picked: bool) -> html.Tr:
    name, readable = clean(run.name, 100), run.generation > 0
    href = run_page(run.id, "overview") if readable else f"/job/{run.id}"
    told = _told(run)
    partial = [badge("some ranks only", "warning")] if run.partial else []
    buttons = [("Edit", "edit", "action", f"Rename or tag {name}"), ("Delete", "delete", "action danger", f"Delete {name}")]
    cells = [
        html.Td(
            dmc.Checkbox(id={"type": "pick", "run": run.id}, checked=picked and readable, size="sm", disabled=not readable, **aria(label=f"Compare {name}"))
        ),
        html.Td([html.A(name, href=href, className="run-link"), html.Div([html.A(clean(t, 40), href=address("/", tag=t), className="tag") for t in run.tags])]),
        html.Td([badge(run.state.value, _WORDS.get(run.state.value, "busy")), *partial, *([html.Div(told, className="where told")] if told else [])]),
        html.Td([badge(run.verdict, run.verdict)] if run.verdict else []),
        html.Td("" if run.ranks is None else str(run.ranks), className="num"),
        html.Td("" if run.step_ns is None else duration(run.step_ns), className="num"),
        html.Td("" if run.bubble_ratio is None else percent(run.bubble_ratio), className="num"),
        html.Td("" if run.peak_bytes is None else size(run.peak_bytes), className="num"),
        html.Td(
            [html.Time(f"{run.created_at:%Y-%m-%d %H:%M}", dateTime=run.created_at.isoformat(), title="UTC"), html.Div(size(run.nbytes))], className="where"
        ),
        html.Td(
            [
                html.Button(words, id={"type": kind, "run": run.id}, className=look, type="button", n_clicks=0, **aria(label=hint))
                for words, kind, look, hint in buttons
            ],
            className="row-actions",
        ),
    ]
    return html.Tr(cells)


def _told(run: RunRow) -> str:
    """What is going on, in a few words."""
    if run.state.ended:
        return clean(run.error or "", 90)
    found = shared().library.progress(run.id)
    if found is None:
        return ""
    read = f"{found.done} of {found.total} files" if found.total else clean(found.message, 60)
    return read + (f", {found.events_per_s:,.0f} events/s" if found.events_per_s else "")


def _upload_area() -> Any:
    """The upload area, where this server takes uploads."""
    held = shared()
    if held.server is None:
        return None
    from dashboard.pages import upload

    return upload.upload_area()


def _live(digest: str, query: Query) -> list[Any]:
    return [dcc.Interval(id="runs-tick", interval=2500), dcc.Store(id="run-digest", data=digest), dcc.Store(id="run-query", data=dict(query))]


def _digest(listed: Sequence[Any]) -> str:
    return hashlib.sha256(repr(as_json(list(listed))).encode()).hexdigest()


def _dialogs() -> list[Any]:
    delete = dmc.Modal(
        [
            html.P(id="delete-line"),
            html.P(
                [
                    html.Button("Delete it", id="delete-yes", className="button danger", type="button", n_clicks=0),
                    html.Button("Keep it", id="delete-no", className="button quiet", type="button", n_clicks=0),
                ],
                className="ways",
            ),
        ],
        id="delete-dialog",
        title="Delete this run?",
        opened=False,
        centered=True,
    )
    edit = dmc.Modal(
        [
            dmc.TextInput(id="edit-name", label="Name"),
            dmc.TagsInput(id="edit-tags", label="Tags", description="Enter ends a tag", maxTags=20),
            html.P(html.Button("Save", id="edit-save", className="button", type="button", n_clicks=0), className="ways"),
        ],
        id="edit-dialog",
        title="Name and tags",
        opened=False,
        centered=True,
    )
    return [delete, edit, dcc.Store(id="dialog-run")]


def callbacks(app: dash.Dash) -> None:
    """What happens on this page after it is drawn."""

    @app.callback(
        Output("run-list", "children"),
        Output("run-digest", "data"),
        Input("runs-tick", "n_intervals"),
        State("run-digest", "data"),
        State("run-query", "data"),
        prevent_initial_call=True,
    )
    def live(_: int | None, digest: str | None, query: dict[str, str] | None) -> Any:
        return refreshed(digest, query or {})

    @app.callback(
        Output("delete-dialog", "opened"),
        Output("edit-dialog", "opened"),
        Output("dialog-run", "data"),
        Output("delete-line", "children"),
        Output("edit-name", "value"),
        Output("edit-tags", "value"),
        Input({"type": "delete", "run": ALL}, "n_clicks"),
        Input({"type": "edit", "run": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def ask(_d: Any, _e: Any) -> Any:
        asked = ctx.triggered_id
        if not isinstance(asked, dict) or not (ctx.triggered and ctx.triggered[0].get("value")):
            return (dash.no_update,) * 6
        return opened(str(asked.get("type")), str(asked.get("run")))

    @app.callback(
        Output("delete-dialog", "opened", allow_duplicate=True),
        Output("edit-dialog", "opened", allow_duplicate=True),
        Output("run-list", "children", allow_duplicate=True),
        Input("delete-yes", "n_clicks"),
        Input("delete-no", "n_clicks"),
        Input("edit-save", "n_clicks"),
        State("dialog-run", "data"),
        State("edit-name", "value"),
        State("edit-tags", "value"),
        State("run-query", "data"),
        prevent_initial_call=True,
    )
    def act(yes: int | None, no: int | None, save: int | None, run: str | None, name: str | None, tags: list[str] | None, query: dict[str, str] | None) -> Any:
        if not (yes or no or save) or not run:
            return (dash.no_update,) * 3
        done(str(ctx.triggered_id), run, name, tags)
        return False, False, as_json(listing(query or {}))

    app.clientside_callback(
        ClientsideFunction("tracekit", "picked"),
        Output("compare-picked", "href"),
        Output("run-query", "data"),
        Input({"type": "pick", "run": ALL}, "checked"),
        State({"type": "pick", "run": ALL}, "id"),
    )


def refreshed(digest: str | None, query: Query) -> Any:
    """The list anew, with what is ticked by now, or nothing where no run changed; where the first run comes, the page has to be drawn again."""
    listed = guarded(lambda: listing(_unticked(query)), __name__)
    now = _digest(listed if isinstance(listed, list) else [listed])
    return (dash.no_update, dash.no_update) if now == digest else (as_json(guarded(lambda: listing(query), __name__)), now)


def opened(what: str, run_id: str) -> tuple[Any, ...]:
    """What the dialogs show for a run."""
    run = known_run(run_id)
    if run is None:
        return False, False, None, "", "", []
    line = f"{clean(run.name, 100)}: its traces and everything computed from them are removed from this server. This cannot be undone."
    return what == "delete", what == "edit", run_id, line, run.name, list(run.tags)


def done(button: str, run_id: str, name: str | None, tags: Sequence[str] | None) -> None:
    """What a button of a dialog does; nothing to a run that somebody else deleted meanwhile, which the list then shows."""
    library = shared().library
    with suppress(LookupError):
        if button == "delete-yes":
            library.delete(run_id)
        elif button == "edit-save":
            if name and name.strip():
                library.rename(run_id, clean(name.strip(), 120))
            library.set_tags(run_id, [clean(t.strip(), 40) for t in tags or () if t.strip()])


layout = page(draw)
