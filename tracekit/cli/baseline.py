"""Which runs are the baseline? ``tracekit baseline add|list|accept|prune``"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.comparing import BaselinePlace, ConfigFile, Scenario, scenario_of, snapshots, store_of, write_json
from tracekit.cli.reading import Workers, reads
from tracekit.cli.screen import say
from tracekit.errors import UsageError
from tracekit.reading import DEFAULT, Reading
from tracekit.wording import clean, plural

if TYPE_CHECKING:
    from tracekit.baselines import Entry, Store

ACTIONS = ("add", "list", "accept", "prune")


@reads
def baseline(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="add, list, accept or prune.", show_default=False)],
    paths: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="add, accept: runs, reports or snapshots.", show_default=False)] = None,
    store: BaselinePlace = None,
    scenario: Scenario = None,
    commit: Annotated[
        str | None, typer.Option("--commit", metavar="SHA", help="add, accept: commit of the code that ran.", show_default="the run's own, else git HEAD")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="accept: why this is the new normal.", show_default=False)] = None,
    keep: Annotated[int, typer.Option("--keep", min=1, help="prune: commits to keep of each scenario and setup.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Write the entries (tracekit.baselines/1) to stdout, and nothing else.")] = False,
    config: ConfigFile = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Keep runs to compare with.

    add keeps runs. accept keeps them as the new normal, with a reason that stays in the store: what was before no longer
    counts. list shows what is kept, prune forgets old commits. Any number of jobs may do this at once.

    \b
    Examples:
      tracekit baseline add runs/main-1 runs/main-2 --baseline baselines/ --scenario tp2
      tracekit baseline accept runs/head --reason "larger microbatches on purpose"
      tracekit baseline list --baseline git:tracekit-baselines
      tracekit baseline prune --keep 20
    """
    from tracekit.baselines.commits import commit_of
    from tracekit.settings import settings

    if action not in ACTIONS:
        raise UsageError(f"there is no action {action!r}: write one of {', '.join(ACTIONS)}")
    found = settings(config)
    place = store_of(store, found)
    if action in ("list", "prune") and paths:
        raise UsageError(f"{action} takes no runs")
    if action == "list":
        entries, wrong = place.entries(scenario)
        for line in wrong:
            say(f"left out: {line}")
        _show(entries, place, json)
    elif action == "prune":
        old, objects = place.prune(keep, scenario)
        say(f"forgot {plural(len(old), 'run')}, deleted {plural(objects, 'snapshot')} in {place.files}")
        if json:
            _show(old, place, json)
    else:
        if not paths:
            raise UsageError(f"name the runs to {action}")
        if action == "accept" and not (reason and reason.strip()):
            raise UsageError("say why this is the new normal: --reason TEXT")
        if action == "add" and reason:
            raise UsageError("add takes no reason; accept does, and makes the runs the new normal")
        runs = snapshots(paths, reading, workers)
        told = commit or commit_of(runs)
        kept = place.add(runs, scenario_of(scenario, found), clean(told), reason=None if reason is None else clean(reason, 2000))
        say(f"kept {plural(len(kept), 'run')} of {kept[0].scenario} at {clean(told, 12)} in {place.files}")
        if json:
            _show(kept, place, json)


def _show(entries: list[Entry], place: Store, as_json: bool) -> None:
    if as_json:
        rows = [
            {"snapshot": e.snapshot, "scenario": e.scenario, "scope": e.scope, "commit": e.commit, "created_ns": e.created, "reason": e.reason, "name": e.name}
            for e in entries
        ]
        write_json({"schema": "tracekit.baselines/1", "store": str(place.files), "entries": rows})
        return
    if not entries:
        typer.echo(f"no runs are kept in {place.files}")
    for e in entries:
        when = datetime.fromtimestamp(e.created / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        accepted = f"   accepted: {clean(e.reason, 200)}" if e.reason else ""
        typer.echo(f"{when}  {clean(e.commit, 12):<12}  {clean(e.scenario, 40)}  {e.scope}  {e.snapshot[:12]}{accepted}")
