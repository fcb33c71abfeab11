"""A library of runs in memory, with the surface of the stored one that the pages use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dashboard.store.rows import JobProgress, RunRow, State


def row(id: str, name: str, **known: Any) -> RunRow:
    """A run of which little is known."""
    unknown: dict[str, Any] = dict.fromkeys(("ranks", "steps", "step_ns", "peak_bytes", "bubble_ratio", "verdict", "headline", "error"))
    plain = {"owner": "", "state": State.READY, "created_at": datetime(2026, 11, 20, tzinfo=UTC), "nbytes": 0, "stored_bytes": 0, "tags": ()}
    return RunRow(**{**unknown, **plain, "partial": False, "fingerprint": "", "generation": 1, **known}, id=id, name=name)


@dataclass
class MemoryLibrary:
    held: dict[str, RunRow] = field(default_factory=dict)
    analyses: dict[str, Any] = field(default_factory=dict)
    told: dict[str, JobProgress] = field(default_factory=dict)

    def add(self, run: RunRow, analysis: Any = None) -> None:
        self.held[run.id] = run
        if analysis is not None:
            self.analyses[run.id] = analysis

    def runs(self, search: str = "", tag: str | None = None, state: str | None = None, limit: int = 100, offset: int = 0) -> list[RunRow]:
        words = search.lower().split()
        found = [r for r in self.held.values() if (tag is None or tag in r.tags) and all(w in " ".join([r.name, *r.tags]).lower() for w in words)]
        return sorted(found, key=lambda r: r.created_at, reverse=True)[offset : offset + limit]

    def count(self, search: str = "", tag: str | None = None, state: str | None = None) -> int:
        return len(self.runs(search, tag, state, len(self.held)))

    def tags(self) -> list[tuple[str, int]]:
        return Counter(t for r in self.held.values() for t in r.tags).most_common()

    def run(self, id: str) -> RunRow | None:
        return self.held.get(id)

    def analysis(self, id: str) -> Any:
        return self.analyses.get(id)

    def progress(self, id: str) -> JobProgress | None:
        return self.told.get(id)

    def set_tags(self, id: str, tags: Sequence[str]) -> None:
        self.held[id] = replace(self.held[id], tags=tuple(tags))

    def rename(self, id: str, name: str) -> None:
        self.held[id] = replace(self.held[id], name=name)

    def delete(self, id: str) -> None:
        self.held.pop(id)
        self.analyses.pop(id, None)
