"""Who reads along is given every trace; a process that ends at once takes only its own file along."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tracekit import facts_file
from tracekit.errors import InputError
from tracekit.gather import Boiled
from tracekit.ingest import Place, ingest
from tracekit.reading import Doing, Reading
from tracekit.trace import RankFacts, RankTrace


def write(folder: Path, ranks: int) -> list[Path]:
    for rank in range(ranks):
        event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10 + rank, "dur": 5}
        (folder / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": [event]}))
    return sorted(folder.iterdir())


def end_the_process_of_rank_1(place: Place, trace: RankTrace, passed: RankTrace) -> None:
    if trace.meta.rank == 1:
        os._exit(9)


@dataclass(frozen=True)
class Told:
    """Writes down what is told, a short line at a time."""

    path: Path

    def __call__(self, number: int, name: str, doing: Doing) -> None:
        with self.path.open("a") as out:
            out.write(f"{number} {doing.stage} {doing.share}\n")


@dataclass(frozen=True)
class Remembering:
    """Facts of sources in a folder."""

    folder: Path

    def remember(self, number: int, label: str, facts: Sequence[RankFacts]) -> None:
        facts_file.save(facts, self.folder / f"{number}.facts", label)

    def known(self, number: int, label: str) -> list[RankFacts] | None:
        return facts_file.load(self.folder / f"{number}.facts", label)


def test_each_trace_is_handed_over_as_read_and_as_passed(tmp_path: Path) -> None:
    kept: list[tuple[Place, int | None, int, bool]] = []
    seen: list[tuple[list[Place], set[int]]] = []
    sizes: list[int] = []

    def keep(place: Place, trace: RankTrace, passed: RankTrace) -> None:
        kept.append((place, trace.meta.rank, len(trace.events), passed is trace))

    def early(boiled: Mapping[Place, Boiled], over: frozenset[int]) -> None:
        seen.append((list(boiled), set(over)))

    paths = write(tmp_path, 3)
    paths[1].write_text('{"traceEvents": 5}')
    found = ingest(paths, workers=1, keep=keep, early=early, sizes=sizes.extend, within=tmp_path, reading=Reading(keep_going=True))
    assert sizes == [path.stat().st_size for path in paths]
    assert kept == [((0, 0), 0, 1, False), ((2, 0), 2, 1, False)]
    assert seen == [([(0, 0)], {0}), ([(0, 0)], {0, 1}), ([(0, 0), (2, 0)], {0, 1, 2})]
    assert [facts.meta.files for facts in found.ranks.values()] == [("rank0.json",), ("rank2.json",)]


@pytest.mark.parametrize("workers", [1, 2])
def test_how_far_each_file_is_is_told_by_the_process_that_reads_it(tmp_path: Path, workers: int) -> None:
    (tmp_path / "job").mkdir()
    ingest(write(tmp_path / "job", 2), workers=workers, along=Told(tmp_path / "told"))
    told = [line.split(" ") for line in (tmp_path / "told").read_text().splitlines()]
    stages = {number: list(dict.fromkeys(stage for n, stage, _ in told if n == number)) for number in ("0", "1")}
    assert stages == {n: ["unpack", "decode", "tables", "passes", "facts"] for n in ("0", "1")}
    for number in stages:
        shares = [float(share) for n, _, share in told if n == number]
        assert shares == sorted(shares) and shares[-1] == 1.0


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_known_already_is_not_read(tmp_path: Path, workers: int) -> None:
    (tmp_path / "job").mkdir()
    paths, kept = write(tmp_path / "job", 3), Remembering(tmp_path)
    whole = ingest(paths, workers=workers, remember=kept.remember)
    assert sorted(p.name for p in tmp_path.glob("*.facts")) == ["0.facts", "1.facts", "2.facts"]
    (tmp_path / "1.facts").unlink()
    for rank in (0, 2):
        paths[rank].write_text("no trace any more")
    done: list[tuple[int, str]] = []
    again = ingest(paths, workers=workers, known=kept.known, progress=lambda n, total, what: done.append((n, Path(what).name)))
    assert done == [(1, "rank0.json"), (2, "rank2.json"), (3, "rank1.json")]
    assert list(again.ranks) == list(whole.ranks) == [(0, 0), (1, 0), (2, 0)]
    assert [f["extent"]["start_ns"].tolist() for f in again.ranks.values()] == [f["extent"]["start_ns"].tolist() for f in whole.ranks.values()]


def test_a_process_that_ends_takes_only_its_own_file_along(tmp_path: Path) -> None:
    found = ingest(write(tmp_path, 3), workers=2, keep=end_the_process_of_rank_1, reading=Reading(keep_going=True), within=tmp_path)
    assert [rank for rank, _ in found.ranks] == [0, 2]
    (refused,) = [f for f in found.findings if f["code"] == "file_refused"]
    assert refused["file"] == "rank1.json" and "ended without an answer (exit 9)" in refused["message"]


def test_a_trace_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    def keep(place: Place, trace: RankTrace, passed: RankTrace) -> None:
        if trace.meta.rank == 0:
            raise MemoryError

    paths = write(tmp_path, 2)
    found = ingest(paths, workers=1, keep=keep, reading=Reading(keep_going=True))
    assert [rank for rank, _ in found.ranks] == [1]
    with pytest.raises(InputError, match="needs more memory to read than there is for it"):
        ingest(paths, workers=1, keep=keep)
