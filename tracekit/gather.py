"""Which rank and capture do these facts belong to? Every file gets its place, or a finding that says why it has none.

Two files that claim the same rank and time are both left out, as is a file without a rank among others: one of them
would stand for the other, and which one would be a guess.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit import schema
from tracekit.errors import InputError, UsageError
from tracekit.findings import finding
from tracekit.group_ranks import MOST_RANKS
from tracekit.join import together
from tracekit.names import capture_of, worker_of
from tracekit.trace import RankFacts
from tracekit.vocabulary import Severity

Key = tuple[int, int]
Finding = Mapping[str, Any]


@dataclass(frozen=True)
class Boiled:
    """Facts, and the file on disk that they came from first."""

    facts: RankFacts
    path: Path

    @property
    def name(self) -> str:
        """The file as messages call it."""
        return self.facts.meta.files[0]

    @property
    def timeline(self) -> bool:
        """Whether it holds slices of time, or memory events."""
        return int(self.facts["extent"]["events"].iloc[0]) > 0 or len(self.facts["memory_peaks"]) > 0

    @property
    def start(self) -> int:
        """First time in it, ns."""
        return int(self.facts["extent"]["start_ns"].iloc[0])

    @property
    def end(self) -> int:
        """Last time in it, ns."""
        return int(self.facts["extent"]["end_ns"].iloc[0])


def gather(boiled: Sequence[Boiled], capture: int | None = None) -> tuple[dict[Key, RankFacts], list[Finding]]:
    """Facts by (rank, capture), and what could not be placed.

    Args:
        boiled: facts of every source, in any order.
        capture: keep only the captures of this number.

    Raises:
        InputError: jobs are mixed, or no file can be placed.
        UsageError: there is no capture of that number.
    """
    _one_job(boiled)
    findings: list[Finding] = []
    kept = _with_rank(_distinct(boiled, findings), findings)
    numbered = _numbered([b for b in kept if b.timeline], findings)
    if capture is not None:
        known = sorted({number for _, number in numbered})
        numbered = {key: b for key, b in numbered.items() if key[1] == capture}
        if not numbered:
            raise UsageError(f"no capture {capture}; there are {', '.join(map(str, known)) or 'none'}")
    facts = {key: replace(b.facts, meta=replace(b.facts.meta, rank=key[0], capture=key[1])) for key, b in numbered.items()}
    for b in _unrivalled([b for b in kept if not b.timeline], findings):
        rank = b.facts.meta.rank if b.facts.meta.rank is not None else min((r for r, _ in facts), default=0)
        key = min((k for k in facts if k[0] == rank), default=(rank, 0))
        facts[key] = _merged(facts[key], b.facts) if key in facts else replace(b.facts, meta=replace(b.facts.meta, rank=rank, capture=0))
    if not facts:
        raise InputError(*_refusal(findings))
    return dict(sorted(facts.items())), findings


def _one_job(boiled: Sequence[Boiled]) -> None:
    sizes = {b.facts.meta.world_size: b.name for b in boiled if b.facts.meta.world_size}
    if len(sizes) > 1:
        (size, path), (other, beyond) = list(sizes.items())[:2]
        raise InputError(f"records a job of {size} ranks, and {beyond} one of {other}; analyse one job at a time", path)


def _distinct(boiled: Sequence[Boiled], findings: list[Finding]) -> list[Boiled]:
    """The files without exact copies of one another."""
    kept: list[Boiled] = []
    seen: dict[tuple[Any, ...], Boiled] = {}
    for b in boiled:
        key = (b.facts.meta.rank, b.start, b.end, b.facts.meta.formats)
        first = seen.setdefault(key, b)
        if first is not b and first.path != b.path and _digest(first.path) == _digest(b.path):
            findings.append(_finding("file_twice", Severity.INFO, f"holds the same bytes as {first.name}: read once", b))
        elif first is not b and first.path != b.path and _says_the_same(first.facts, b.facts):
            findings.append(_finding("file_twice", Severity.INFO, f"says the same as {first.name}, in other bytes: read once", b))
        else:
            kept.append(b)
    return kept


def _says_the_same(first: RankFacts, second: RankFacts) -> bool:
    """Whether two files hold the same, as a snapshot saved as pickle and as JSON does: every table, but not none."""
    names = [name for name in schema.FACTS if name not in ("findings", "extent")]
    return any(len(first[name]) for name in names) and all(first[name].equals(second[name]) for name in names)


def _with_rank(boiled: list[Boiled], findings: list[Finding]) -> list[Boiled]:
    """Timelines and dumps of one rank with that rank: stated, or 0 where there is only one process."""
    nameless = [b for b in boiled if (b.timeline or len(b.facts["group_status"])) and b.facts.meta.rank is None]
    others = [b for b in boiled if b not in nameless]
    if not nameless:
        return boiled
    if any(b.timeline for b in others) or any(b.facts.meta.rank is not None for b in others):
        says = f"{len(nameless)} files have no rank in them or in their names and were left out: {_names(nameless)}; rename them like rank3.json"
        findings.append(_finding("rank_unknown", Severity.WARNING, says, nameless[0], len(nameless)))
        return others
    workers = {worker_of(Path(b.name)) or b.name for b in nameless}
    if len(workers) > 1:
        raise InputError(f"no rank in the file or its name, among {len(nameless)} files; rename them like rank3.json", nameless[0].name)
    return [*others, *(replace(b, facts=replace(b.facts, meta=replace(b.facts.meta, rank=0))) for b in nameless)]


def _numbered(timelines: list[Boiled], findings: list[Finding]) -> dict[Key, Boiled]:
    """Timelines by rank and capture; rivals for the same place are left out."""
    number = _captures(timelines)
    places: dict[Key, list[Boiled]] = {}
    for b, n in zip(timelines, number, strict=True):
        places.setdefault((b.facts.meta.rank or 0, n), []).append(b)
    findings += [_rivals(rivals, timelines) for rivals in places.values() if len(rivals) > 1]
    return {key: b for key, (b, *rest) in places.items() if not rest}


def _captures(timelines: list[Boiled]) -> list[int]:
    """Number of each timeline's capture: by the number in its name where every one has one, else by when it ran.

    Captures of a job are windows apart in time that all its ranks record together, so windows that meet, of whatever
    ranks, are one capture.
    """
    named = [capture_of(Path(b.name)) for b in timelines]
    if all(n is not None for n in named):
        order = {n: i for i, n in enumerate(sorted({n for n in named if n is not None}))}
        if _apart(timelines, named):
            return [order[n] for n in named if n is not None]
    ranks = [b.facts.meta.rank for b in timelines]
    if len(set(ranks)) == len(ranks):
        return [0] * len(timelines)
    number, until, out = -1, None, {}
    for b in sorted(timelines, key=lambda b: b.start):
        if until is None or b.start >= until:
            number, until = number + 1, b.end
        until = max(until, b.end)
        out[id(b)] = number
    return [out[id(b)] for b in timelines]


def _apart(timelines: list[Boiled], named: Sequence[int | None]) -> bool:
    """Whether the captures of each rank, by their names, do not overlap in time."""
    spans: dict[int, list[tuple[int | None, int, int]]] = {}
    for b, n in zip(timelines, named, strict=True):
        spans.setdefault(b.facts.meta.rank or 0, []).append((n, b.start, b.end))
    return all(a[0] == b[0] or a[2] <= b[1] or b[2] <= a[1] for mine in spans.values() for i, a in enumerate(mine) for b in mine[i + 1 :])


def _unrivalled(others: list[Boiled], findings: list[Finding]) -> list[Boiled]:
    """Records without a timeline; of two files of one rank and format neither stands."""
    places: dict[tuple[Any, ...], list[Boiled]] = {}
    for b in others:
        key = (b.facts.meta.rank, b.facts.meta.formats) if b.facts.meta.rank is not None else (b.name,)
        places.setdefault(key, []).append(b)
    findings += [_rivals(rivals, others) for rivals in places.values() if len(rivals) > 1]
    return [b for b, *rest in places.values() if not rest]


def _merged(first: RankFacts, second: RankFacts) -> RankFacts:
    """A rank's facts with what another file of it states."""
    stated = together({n: first[n] for n in schema.STATED}, {n: second[n] for n in schema.STATED if len(second[n])})
    both = [t for t in (first["findings"], second["findings"]) if len(t)]
    findings = pd.concat(both, ignore_index=True) if both else first["findings"]
    meta = replace(
        first.meta,
        files=(*first.meta.files, *second.meta.files),
        formats=(*first.meta.formats, *second.meta.formats),
        packings=(*first.meta.packings, *second.meta.packings),
        groups={**second.meta.groups, **first.meta.groups},
        world_size=first.meta.world_size or second.meta.world_size,
        backend=first.meta.backend or second.meta.backend,
    )
    return RankFacts(meta, {**first.tables, **stated, "findings": findings})


def _rivals(rivals: list[Boiled], among: list[Boiled]) -> Finding:
    rank = rivals[0].facts.meta.rank or 0
    world = next((b.facts.meta.world_size for b in among if b.facts.meta.world_size), None)
    missing = sorted(set(range(world)) - {b.facts.meta.rank for b in among}) if world and world <= MOST_RANKS else []
    also = f"; no file is of rank {', '.join(map(str, missing[:8]))}{', …' if len(missing) > 8 else ''} of {world}" if missing else ""
    says = f"{len(rivals)} files claim rank {rank} at the same time, and none of them is used: {_names(rivals)}; keep the right one{also}"
    return {**_finding("rank_claimed_twice", Severity.WARNING, says, rivals[0], len(rivals)), "rank": rank}


def _refusal(findings: list[Finding]) -> tuple[str, str | None]:
    first = next((f for f in findings if f["severity"] != Severity.INFO), None)
    return (str(first["message"]), None) if first else ("holds nothing that can be placed", None)


def _finding(code: str, severity: Severity, says: str, b: Boiled, count: int | None = None) -> dict[str, Any]:
    return finding(code, severity, says, file=b.name, rank=b.facts.meta.rank, count=count)


def _names(files: Sequence[Boiled]) -> str:
    return ", ".join(b.name for b in files[:4]) + (", …" if len(files) > 4 else "")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
