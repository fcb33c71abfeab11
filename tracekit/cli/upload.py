"""How do traces get to a dashboard from a shell? ``tracekit upload PATH… --to URL``"""

from __future__ import annotations

import json as text
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.screen import meter, say
from tracekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from tracekit.cli.sending import Dashboard, Item

#: States of a run in which nothing will change any more.
_ENDS = frozenset({"ready", "failed", "cancelled"})
_LOOK_EVERY_S = 0.5
_MIB = 1 << 20


def upload(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Trace files, archives, run directories, or folders; all of one job.", show_default=False)
    ],
    to: Annotated[str, typer.Option("--to", metavar="URL", help="Address of the dashboard, as tracekit serve printed it.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Name of the run.", show_default="the first path's")] = None,
    token: Annotated[str | None, typer.Option(metavar="TOKEN", help="Of the dashboard.", show_default="in the URL, else $TRACEKIT_TOKEN")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the run is analysed; end with 4 where that fails.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one document (run, url, state, left_out) to stdout, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Send the traces of one job to a dashboard.

    What was sent before a network cut, Ctrl-C or a restart of the server is not sent again: give the same command once
    more. Files in a folder that are no trace are left out, and named; where another file is not taken, such as for want
    of room, no run is made.

    \b
    Examples:
      tracekit upload runs/tp --to http://127.0.0.1:8900
      tracekit upload rank*.json.gz --to "http://gpu7:8900/?token=…" --name "tp=8, new kernels" --wait
    """
    from tracekit.cli.sending import Dashboard

    items = files(paths)
    server = Dashboard(to, token or os.environ.get("TRACEKIT_TOKEN"), say)
    try:
        ids, left_out = _sent(server, items)
        if not ids:
            raise InputError(
                left_out[0]["reason"] if len(items) == 1 else f"none of {len(items)} files was taken; the first: {left_out[0]['reason']}", paths[0]
            )
        body = text.dumps({"name": name or _name(paths), "uploads": ids}).encode()
        made = server.ask("POST", "/api/runs", body, {"Content-Type": "application/json"})
        if made.status not in (200, 201):
            raise InputError(made.error, paths[0])
        state = _followed(server, str(made.body["run"])) if wait else {"state": made.body.get("state", "queued"), "error": None}
    finally:
        server.close()
    url = server.address + str(made.body["url"])
    if json:
        known = {"run": made.body["run"], "url": url, "already": bool(made.body.get("already"))}
        typer.echo(text.dumps({**known, "state": state["state"], "error": state.get("error"), "left_out": left_out}, ensure_ascii=False))
    else:
        typer.echo(f"{url}{' (these files were there already)' if made.body.get('already') else ''}")
    if state["state"] in ("failed", "cancelled"):
        raise InputError(state.get("error") or f"the run was {state['state']}", paths[0])
    return 0


def files(paths: Sequence[Path]) -> list[Item]:
    """The files under some paths, hidden ones left out, each with the path it will be called by.

    Raises:
        InputError: a path does not exist, or there is no file.
    """
    from tracekit.cli.sending import Item

    found: list[Item] = []
    for path in paths:
        if path.is_file():
            found.append(Item(path, path.name))
        elif path.is_dir():
            top = path.absolute()
            inside = sorted(p for p in top.rglob("*") if p.is_file() and not any(part.startswith(".") for part in p.relative_to(top).parts))
            found += [Item(p, f"{top.name or 'run'}/{p.relative_to(top).as_posix()}") for p in inside]
        else:
            raise InputError("no such file or folder; check the path", path)
    if not found:
        raise InputError("there is no file in it", paths[0])
    return found


def _sent(server: Dashboard, items: Sequence[Item]) -> tuple[list[str], list[dict[str, str]]]:
    """Ids of the uploads, and the files that are no traces.

    Raises:
        InputError: one that may be a trace was not taken: no run is made without it. What has arrived stays there for the next try.
    """
    from tracekit.cli.sending import NotTaken

    known = server.uploads()
    whole = sum(item.path.stat().st_size for item in items)
    ids: list[str] = []
    left_out: list[dict[str, str]] = []
    before = 0
    with meter() as progress:
        for item in items:
            size = item.path.stat().st_size

            def arrived(count: int, before: int = before, item: Item = item) -> None:
                progress((before + count) // _MIB, max(1, whole // _MIB), f"{item.label} (MiB)")

            try:
                ids.append(server.send(item, known, arrived))
            except NotTaken as error:
                left_out.append({"file": item.label, "reason": error.reason})
                say(f"{item.label}: left out: {error.reason}")
            before += size
    return ids, left_out


def _followed(server: Dashboard, run: str) -> dict[str, Any]:
    """The state in which a run ends."""
    with meter() as progress:
        while True:
            told = server.ask("GET", f"/api/runs/{run}/progress")
            if told.status != 200:
                raise UsageError(f"{server.address}: {told.error}")
            if told.body["state"] in _ENDS:
                return told.body
            progress(int(told.body.get("done") or 0), max(1, int(told.body.get("total") or 1)), str(told.body["state"]))
            time.sleep(_LOOK_EVERY_S)


def _name(paths: Sequence[Path]) -> str:
    first = paths[0].absolute().name
    return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
