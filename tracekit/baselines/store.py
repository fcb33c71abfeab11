"""Which runs are a new run's baseline? Kept by content, found by scenario and setup, a rolling window of commits.

Layout: ``objects/ab/<sha256>.json`` is a snapshot, ``entries/<scenario>/<scope>/<time>-<commit>-<sha256>.json`` says what it is of.
There is no index: nothing has to be changed when a run is kept, so jobs that do it at once cannot harm one another, and
what a killed job leaves is an object without an entry, which nobody sees and ``prune`` takes away.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.baselines.branch import Branch
from tracekit.baselines.entries import Entry, entry_of, slug
from tracekit.baselines.files import Files, Folder
from tracekit.baselines.remote import Remote
from tracekit.compare.inputs import parsed
from tracekit.compare.snapshot import Snapshot, from_dict
from tracekit.errors import InputError, UsageError

#: An object without an entry is left alone for this long after it was written: a job may be about to write the entry.
GRACE_NS = 3600 * 10**9


@dataclass(frozen=True)
class Store:
    """The baselines of one place.

    Attributes:
        files: where they are.
    """

    files: Files

    def add(self, snapshots: Sequence[Snapshot], scenario: str, commit: str, *, reason: str | None = None, now: int | None = None) -> list[Entry]:
        """Keep runs, as one change.

        Args:
            snapshots: the runs.
            scenario: what they are runs of.
            commit: of the code that ran.
            reason: why they are the new normal; the history before them then no longer counts.
            now: Unix-epoch ns; the clock's where None.
        """
        created = time.time_ns() if now is None else now
        files: list[tuple[str, bytes]] = []
        entries = []
        for number, one in enumerate(snapshots):
            data = one.to_json().encode()
            digest = hashlib.sha256(data).hexdigest()
            entry = Entry(digest, scenario, one.scope, commit, created + number, reason)
            name = f"entries/{slug(scenario)}/{one.scope}/{created + number:020d}-{slug(commit)[:12]}-{digest[:12]}.json"
            # the object first: an entry never points to nothing
            files += [(_object(digest), data), (name, entry.to_json().encode())]
            entries.append(replace(entry, name=name))
        self.files.write(files, f"{'Accept' if reason else 'Add'} {len(entries)} run(s) of {scenario} at {commit[:12]}" + (f": {reason}" if reason else ""))
        return entries

    def entries(self, scenario: str | None = None) -> tuple[list[Entry], list[str]]:
        """Entries, oldest first, and what is wrong with files that are none.

        Args:
            scenario: only of this one.
        """
        found, wrong = [], []
        for name in self.files.names("entries" if scenario is None else f"entries/{slug(scenario)}"):
            try:
                entry = entry_of(parsed(self.files.read(name), name), name)
            except InputError as e:
                wrong.append(str(e))
                continue
            if scenario is None or entry.scenario == scenario:
                found.append(entry)
        return sorted(found, key=lambda e: (e.created, e.name)), wrong

    def snapshot(self, entry: Entry) -> Snapshot:
        """An entry's snapshot.

        Raises:
            InputError: it is gone, or its content is not what its name says.
        """
        name = _object(entry.snapshot)
        data = self.files.read(name)
        if hashlib.sha256(data).hexdigest() != entry.snapshot:
            raise InputError("damaged: its content is not what its name says; add the run again, or let tracekit baseline prune forget it", name)
        return from_dict(parsed(data, name), f"{entry.scenario}@{entry.commit[:12]}")

    def prune(self, keep: int, scenario: str | None = None, *, now: int | None = None) -> tuple[list[Entry], int]:
        """Forget all but the last commits of each scenario and setup; what a person accepted last stays with what came after it.

        Runs whose snapshot is damaged or gone are forgotten as well. A snapshot that nothing points to is deleted when it is old enough.

        Args:
            keep: commits to keep.
            scenario: only of this one.
            now: Unix-epoch ns; the clock's where None.

        Returns:
            The entries that were deleted, and how many objects were.
        """
        every, _ = self.entries()
        old: list[Entry] = []
        groups: dict[tuple[str, str], list[Entry]] = {}
        for e in every:
            groups.setdefault((e.scenario, e.scope), []).append(e)
        for (name, _), members in groups.items():
            if scenario is None or name == scenario:
                kept = {e.name for _, of in window(members, keep) for e in of}
                old += [e for e in members if e.name not in kept]
        gone = {e.name for e in old}
        there = set(self.files.names("objects"))
        left = [e for e in every if e.name not in gone and (scenario is None or e.scenario == scenario)]
        broken = {digest for digest in {e.snapshot for e in left} if not self._whole(digest, there)}
        old += [e for e in left if e.snapshot in broken]
        self.files.delete([e.name for e in old], f"Prune {len(old)} run(s)")
        gone = {e.name for e in old}
        used = {e.snapshot for e in every if e.name not in gone}
        freed = {_object(e.snapshot) for e in old}
        # beside those that were just freed: what killed jobs left, and what jobs are about to point to
        names = [n for n in sorted(there - {_object(d) for d in used}) if self._old(n, n in freed, time.time_ns() if now is None else now)]
        # another job may have added an entry for an object in the meantime
        again = {_object(e.snapshot) for e in self.entries()[0]}
        unused = [n for n in names if n not in again]
        if unused:
            self.files.delete(unused, f"Delete {len(unused)} snapshot(s) that nothing points to")
        return old, len(unused)

    def _whole(self, digest: str, there: Container[str]) -> bool:
        """Whether an object holds what its name says; one that cannot be read just now is taken to."""
        name = _object(digest)
        if name not in there:
            return False
        try:
            return hashlib.sha256(self.files.read(name)).hexdigest() == digest
        except InputError:
            return True

    def _old(self, name: str, freed: bool, now: int) -> bool:
        """Whether an object that nothing points to can go; where nobody knows its age, only if its entries were just deleted."""
        written = self.files.modified(name)
        return freed if written is None else now - written > GRACE_NS


def window(entries: Sequence[Entry], commits: int) -> list[tuple[str, list[Entry]]]:
    """The last commits with their runs, oldest first, from the last accepted one on.

    Args:
        entries: of one scenario and setup, oldest first.
        commits: how many at most; the accepted one is kept besides, so that what it was accepted for is not forgotten.
    """
    accepted = max((n for n, e in enumerate(entries) if e.reason is not None), default=None)
    counted = list(entries) if accepted is None else list(entries[_first_of(entries, accepted) :])
    # by snapshot: a run that was added twice is one run
    groups: dict[str, dict[str, Entry]] = {}
    for e in counted:
        groups.setdefault(e.commit, {}).setdefault(e.snapshot, e)
    last = [(commit, list(runs.values())) for commit, runs in groups.items()]
    return last[-commits:] if accepted is None or len(last) <= commits else [last[0], *last[-(commits - 1) :]] if commits > 1 else last[-1:]


def _first_of(entries: Sequence[Entry], at: int) -> int:
    """The first entry that was accepted together with this one."""
    while at > 0 and entries[at - 1].reason == entries[at].reason and entries[at - 1].commit == entries[at].commit:
        at -= 1
    return at


def open_store(place: str, folder: Path | None = None) -> Store:
    """The store at a place.

    Args:
        place: a folder, ``git:BRANCH`` (of the repository of ``folder``), or a URL.
        folder: the current one where None.

    Raises:
        UsageError: it makes no sense.
    """
    here = folder or Path.cwd()
    if place.startswith("git:"):
        return Store(Branch(place.removeprefix("git:"), here))
    if place.startswith("file://"):
        return Store(Folder(Path(place.removeprefix("file://"))))
    if "://" in place:
        return Store(Remote(place))
    if not place:
        raise UsageError("no baseline store: name one with --baseline FOLDER, git:BRANCH or a URL, or set baseline in tracekit.toml")
    try:
        return Store(Folder(here / Path(place).expanduser()))
    except RuntimeError as e:
        raise UsageError(f"{place[:100]}: {e}; name the folder as a whole") from e


def _object(digest: str) -> str:
    return f"objects/{digest[:2]}/{digest}.json"
