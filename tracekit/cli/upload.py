"""How do traces get to a dashboard from a shell? ``tracekit upload PATH… --to URL``"""

from __future__ import annotations

import json as text
import os
import time
import unicodedata
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
#: What was forgotten by the server while the rest was sent is sent again so often.
_ROUNDS = 3
#: So many last parts of a path tell which rank and run a file is of.
_TELLING = 3


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
    server = Dashboard(to, token, say)
    server.token = server.token or os.environ.get("TRACEKIT_TOKEN")  # one in the address is of this server, that of the environment may be of another
    left_out: list[dict[str, str]] = []
    try:
        wanted = list(items)
        for _ in range(_ROUNDS):
            ids = _sent(server, wanted, left_out)
            if not ids:
                raise InputError(
                    left_out[0]["reason"] if len(items) == 1 else f"none of {len(items)} files was taken; the first: {left_out[0]['reason']}", paths[0]
                )
            body = text.dumps({"name": name or _name(paths), "uploads": ids}).encode()
            made = server.ask("POST", "/api/runs", body, {"Content-Type": "application/json"})
            if made.status != 404:  # else what arrived first was forgotten there while the rest was sent: that is sent again
                break
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
    for path, label in zip(paths, _labels(paths), strict=True):
        if path.is_file():
            found.append(Item(path, _as_there(label)))
        elif path.is_dir():
            top = path.absolute()
            inside = sorted(p for p in top.rglob("*") if p.is_file() and not any(part.startswith(".") for part in p.relative_to(top).parts))
            found += [Item(p, _as_there(f"{label}/{p.relative_to(top).as_posix()}")) for p in inside]
        elif path.exists():
            raise InputError("is no file or folder but a pipe or a device; write what comes from it to a file, and send that", path)
        else:
            raise InputError("no such file or folder; check the path", path)
    if not found:
        raise InputError("there is no file in it", paths[0])
    return found


def _as_there(label: str) -> str:
    """A label as the server writes it down, by which an upload that was broken off is found again."""
    return unicodedata.normalize("NFC", label).replace("\\", "/")


def _labels(paths: Sequence[Path]) -> list[str]:
    """What each path is called: its name, and of the folders below the one that all share those that may tell its rank.

    >>> _labels([Path("/data/job/rank0/trace.json"), Path("/data/job/rank1/trace.json")])
    ['rank0/trace.json', 'rank1/trace.json']
    >>> _labels([Path("/data/job")])
    ['job']
    """
    places = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 a link keeps its own name
    above = Path(os.path.commonpath([place.parent for place in places])) if len({place.anchor for place in places}) == 1 else None
    out = []
    for place in places:
        inner = [part for part in place.relative_to(above).parts[:-1] if not part.startswith(".")] if above is not None else []
        out.append("/".join([*inner, place.name or "run"][-_TELLING:]))
    return out


def _sent(server: Dashboard, items: list[Item], left_out: list[dict[str, str]]) -> list[str]:
    """Ids of the uploads; files that are no traces go from ``items`` to ``left_out``.

    Raises:
        InputError: one that may be a trace was not taken: no run is made without it. What has arrived stays there for the next try.
    """
    from tracekit.cli.sending import NotTaken

    known = server.uploads()
    whole = sum(item.size for item in items)
    ids: list[str] = []
    before = 0
    with meter() as progress:
        for item in list(items):
            size = item.size

            def arrived(count: int, before: int = before, item: Item = item) -> None:
                progress((before + count) // _MIB, max(1, whole // _MIB), f"{item.label} (MiB)")

            try:
                ids.append(server.send(item, [u for u in known if u.get("id") not in ids], arrived))  # an upload is of one file
            except NotTaken as error:
                left_out.append({"file": item.label, "reason": error.reason})
                items.remove(item)
                say(f"{item.label}: left out: {error.reason}")
            before += size
    return ids


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
