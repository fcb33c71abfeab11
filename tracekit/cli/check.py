"""Is a run as good as its baseline? ``tracekit check HEAD… --baseline STORE``"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.comparing import (
    AllowIncomparable,
    BaselinePlace,
    ConfigFile,
    Ignore,
    Inconclusive,
    Limit,
    Scenario,
    asked_inconclusive,
    ended_with,
    rules_of,
    scenario_of,
    snapshots,
    store_of,
    write_json,
)
from tracekit.cli.reading import Workers, reads
from tracekit.cli.screen import say
from tracekit.errors import InputError, NoBaseline, UsageError
from tracekit.reading import DEFAULT, Reading

if TYPE_CHECKING:
    from tracekit.baselines import Entry, Store
    from tracekit.compare import Rules, Snapshot


@reads
def check(
    paths: Annotated[list[Path], typer.Argument(metavar="HEAD", help="Runs, reports or snapshots of what is to be checked.", show_default=False)],
    baseline: BaselinePlace = None,
    scenario: Scenario = None,
    json: Annotated[bool, typer.Option("--json", help="Write the comparison (tracekit.comparison/1) to stdout, and nothing else.")] = False,
    ignore: Ignore = None,
    allow_incomparable: AllowIncomparable = False,
    limit: Limit = None,
    inconclusive: Inconclusive = None,
    missing_baseline: Annotated[
        str | None, typer.Option("--missing-baseline", metavar="pass|fail", help="What to end with where there is no baseline yet.", show_default="exit code 5")
    ] = None,
    config: ConfigFile = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Hold runs against the rolling baseline of their scenario and setup.

    The base is every run of the last commits that were kept for the same scenario and setup. Beside the comparison, the
    history is searched for metrics that creep: ten times one percent is found although no single step is.

    \b
    Examples:
      tracekit check runs/head --baseline baselines/ --scenario tp2
      tracekit check head.json --baseline git:tracekit-baselines
      tracekit check runs/head-* --baseline s3://bucket/baselines --json

    \b
    Exit codes: 0 unchanged or improved, 1 regressed or a limit broken,
    3 cannot tell, 4 an input is unreadable, 5 no baseline.
    """
    from tracekit.compare import compare
    from tracekit.settings import settings

    found = settings(config)
    if (missing := missing_baseline or found.values["missing_baseline"]) not in ("pass", "fail"):
        raise UsageError(f"--missing-baseline is pass or fail, not {missing!r}")
    rules, store, name = rules_of(found, ignore, allow_incomparable, limit), store_of(baseline, found), scenario_of(scenario, found)
    chosen = asked_inconclusive(inconclusive, found)
    head = snapshots(paths, reading, workers)
    history = _history(store, name, head[0], rules, found.values["window"])
    if not history:
        if missing == "fail":
            raise NoBaseline(f"no baseline of scenario {name!r} in {store.files}: keep one with tracekit baseline add RUN --scenario {name}")
        say(f"no baseline of scenario {name!r} in {store.files}: nothing to compare with")
        if json:
            write_json({"schema": "tracekit.comparison/1", "verdict": None, "sentence": "no baseline yet", "exit_code": 0})
        return 0
    base = [run for _, runs in history for run in runs]
    made = compare(base, head, rules, history=history, scenario=name)
    return ended_with(made, as_json=json, inconclusive=chosen)


def _history(store: Store, scenario: str, head: Snapshot, rules: Rules, commits: int) -> list[tuple[str, list[Snapshot]]]:
    """The baseline's window: of the head's own setup where there is one, else of the newest other, which then is incomparable."""
    from tracekit.baselines.store import window
    from tracekit.compare.fingerprint import differences

    entries, wrong = store.entries(scenario)
    for line in wrong[:3]:
        say(f"left out: {line}")
    scopes: dict[str, list[Entry]] = {}
    for entry in entries:
        scopes.setdefault(entry.scope, []).append(entry)
    setups = {scope: _setup(store, of) for scope, of in scopes.items() if scope != head.scope}
    kin = {scope for scope, setup in setups.items() if setup is not None and not differences(setup, head.fingerprint, rules.ignore)[0]}
    same = [e for scope, of in scopes.items() for e in of if scope == head.scope or scope in kin]
    if same:
        return [(commit, [store.snapshot(e) for e in of]) for commit, of in window(sorted(same, key=lambda e: (e.created, e.name)), commits)]
    newest = next((scopes[e.scope] for e in reversed(entries) if setups[e.scope] is not None), [])
    return [(commit, runs) for commit, of in window(newest, commits) if (runs := _readable(store, of))]


def _readable(store: Store, entries: Iterable[Entry]) -> list[Snapshot]:
    runs = []
    for entry in entries:
        try:
            runs.append(store.snapshot(entry))
        except InputError as e:
            say(f"left out: {e}")
    return runs


def _setup(store: Store, entries: list[Entry]) -> Mapping[str, Any] | None:
    """The fingerprint that some entries share, of the newest that can be read; None, and a line, where none can."""
    wrong: list[str] = []
    for entry in reversed(entries):
        try:
            return store.snapshot(entry).fingerprint
        except InputError as e:
            wrong.append(str(e))
    say(f"left out: {wrong[0]}")
    return None
