"""What does a page show when it has nothing to show? One clear line on why, and a way on; never a blank screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from dashboard.components.attributes import aria
from dashboard.components.query import run_page


def state(title: str, line: str, ways: Sequence[tuple[str, str]] = (), *, kind: str = "empty", command: str = "", more: Sequence[Any] = ()) -> html.Div:
    """A state of a page.

    Args:
        title: a few words.
        line: one sentence on why.
        ways: (words, address) of links that lead on; the first is the one to take.
        kind: empty, error, missing or busy.
        command: a command that helps, to be copied.
        more: components below.
    """
    links = [html.A(words, href=address, className="button" if i == 0 else "button quiet") for i, (words, address) in enumerate(ways)]
    parts = [
        html.Div(className=f"mark {kind}", **aria(hidden="true")),
        html.H1(title),
        html.P(line, className="line"),
        *([html.Pre(html.Code(command), className="command")] if command else []),
        *([html.P(links, className="ways")] if links else []),
        *more,
    ]
    return html.Div(parts, className=f"state {kind}", role="alert" if kind == "error" else "status")


#: State of a run -> what is being done.
_DOING = {"queued": "waiting for its turn", "reading": "being read", "analysing": "being analysed"}


def no_run(run_id: str) -> html.Div:
    """There is no such run."""
    return state(
        "There is no such run",
        f"Nothing is stored under {run_id[:80]}. It may have been deleted, or the link is of another server.",
        [("All runs", "/")],
        kind="missing",
    )


def no_page(path: str) -> html.Div:
    """There is no such page."""
    return state("There is no such page", f"This server has nothing at {path[:120]}.", [("All runs", "/"), ("Definitions", "/definitions")], kind="missing")


def not_ready(run: Any) -> html.Div:
    """The run is being read, or could not be."""
    status, job = str(run.state), f"/job/{run.id}"
    if status == "failed":
        return state("This run could not be analysed", str(run.error or "no reason was recorded"), [("What happened", job), ("All runs", "/")], kind="error")
    if status == "cancelled":
        return state("This run was cancelled", "Its reading was stopped before anything was analysed.", [("Read it again", job), ("All runs", "/")])
    return state(
        "Not analysed yet",
        f"This run is {_DOING.get(status, status)}. Its pages open as soon as its first ranks are read.",
        [("Watch it", job), ("All runs", "/")],
        kind="busy",
    )


def damaged(run_id: str, reason: str) -> html.Div:
    """What was stored of a run cannot be read; its files can."""
    why = reason.partition(";")[0]
    line = f"{why[:1].upper()}{why[1:]}. The files that were uploaded are kept apart from it, and can be read again."
    return state("The results of this run cannot be read", line, [("Read it again", again(run_id)), ("All runs", "/")], kind="error")


def again(run_id: str) -> str:
    """Where a run is read once more, also one that is ready."""
    return f"/job/{run_id}?again=yes"


def broken(what: str, reference: str) -> html.Div:
    """A page failed: what went wrong in a few words, and the number under which the server's log has the rest."""
    line = f"{what}. The server's log has the details under {reference}; other pages are not affected."
    return state("This page could not be drawn", line, [("Try again", ""), ("All runs", "/")], kind="error")


def unavailable(title: str, reason: str) -> html.Div:
    """A metric that these traces cannot answer, and why."""
    return html.Div([html.B(title), html.Span(reason)], className="unavailable", role="note")


def elsewhere(run_id: str) -> list[tuple[str, str]]:
    """Where to go from a page that has nothing."""
    return [("Overview of this run", run_page(run_id, "overview")), ("All runs", "/")]
