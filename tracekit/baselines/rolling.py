"""Which kept runs is a run compared with? The last commits of its scenario and setup; where there are none, of the newest other setup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tracekit.baselines.entries import Entry
from tracekit.baselines.store import Store, window
from tracekit.compare.fingerprint import differences
from tracekit.compare.rules import Rules
from tracekit.compare.snapshot import Snapshot
from tracekit.errors import InputError


def rolling(store: Store, scenario: str, head: Snapshot, rules: Rules, commits: int, tell: Callable[[str], None]) -> list[tuple[str, list[Snapshot]]]:
    """The baseline's window: of the head's own setup where there is one, else of the newest other, which then is incomparable.

    Args:
        store: where runs are kept.
        scenario: what the head is a run of.
        head: one of its runs.
        rules: what may differ between setups.
        commits: how many commits count.
        tell: takes one line for each thing in the store that is damaged and was left out.

    Returns:
        The runs by commit, oldest first; empty where nothing is kept of this scenario.
    """
    entries, wrong = store.entries(scenario)
    for line in wrong[:3]:
        tell(f"left out: {line}")
    scopes: dict[str, list[Entry]] = {}
    for entry in entries:
        scopes.setdefault(entry.scope, []).append(entry)
    setups = {scope: _setup(store, of, tell) for scope, of in scopes.items() if scope != head.scope}
    kin = {scope for scope, setup in setups.items() if setup is not None and not differences(setup, head.fingerprint, rules.ignore)[0]}
    same = [e for scope, of in scopes.items() for e in of if scope == head.scope or scope in kin]
    if same:
        return [(commit, [store.snapshot(e) for e in of]) for commit, of in window(sorted(same, key=lambda e: (e.created, e.name)), commits)]
    newest = next((scopes[e.scope] for e in reversed(entries) if setups[e.scope] is not None), [])
    return [(commit, runs) for commit, of in window(newest, commits) if (runs := _readable(store, of, tell))]


def _readable(store: Store, entries: Iterable[Entry], tell: Callable[[str], None]) -> list[Snapshot]:
    runs = []
    for entry in entries:
        try:
            runs.append(store.snapshot(entry))
        except InputError as e:
            tell(f"left out: {e}")
    return runs


def _setup(store: Store, entries: list[Entry], tell: Callable[[str], None]) -> Mapping[str, Any] | None:
    """The fingerprint that some entries share, of the newest that can be read; None, and a line, where none can."""
    wrong: list[str] = []
    for entry in reversed(entries):
        try:
            return store.snapshot(entry).fingerprint
        except InputError as e:
            wrong.append(str(e))
    tell(f"left out: {wrong[0]}")
    return None
