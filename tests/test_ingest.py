"""From paths to facts: what is found, what is refused, and that the number of workers changes nothing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.builders import kernel, launch, span, write
from tracekit.errors import InputError, UsageError
from tracekit.ingest import find, ingest

STEP = [span("ProfilerStep#1", 0, 20), launch(1, 2, 1), kernel("gemm", 3, 9, 1)]


def test_ranks_come_from_the_file_else_from_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a.json.gz", STEP, rank=2)
    write(tmp_path / "rank5.json", STEP, rank=None)
    assert list(ingest([tmp_path])) == [(2, 0), (5, 0)]


def test_captures_of_one_rank_are_numbered_in_time(tmp_path: Path) -> None:
    write(tmp_path / "iteration_20" / "rank0.json", STEP, base=1_000_000)
    write(tmp_path / "iteration_10" / "rank0.json", STEP)
    facts = ingest([tmp_path])
    assert list(facts) == [(0, 0), (0, 1)]
    assert [Path(f.meta.files[0]).parent.name for f in facts.values()] == ["iteration_10", "iteration_20"]


def test_two_files_of_one_rank_and_time_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=1)
    write(tmp_path / "b.json", STEP, rank=1)
    with pytest.raises(InputError, match=r"b\.json: claims rank 1 like .*a\.json"):
        ingest([tmp_path])


def test_several_files_without_a_rank_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=None)
    write(tmp_path / "b.json", STEP, rank=None)
    with pytest.raises(InputError, match="no rank in the file or its name"):
        ingest([tmp_path])


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: (p.mkdir(), (p / "notes.json").write_text("{}"))], ids=["missing", "empty", "no trace"]
)
def test_paths_without_traces_are_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "runs"
    make(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"no such file|holds no trace"):
        find([path])


def test_other_files_in_a_folder_stop_nothing(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", STEP)
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert [s.trace.name for s in find([tmp_path])] == ["rank0.json"]


def test_workers_change_nothing_and_progress_reaches_the_end(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / f"rank{rank}.json", STEP, rank=rank, world=3)
    seen: list[tuple[int, int]] = []
    alone, pooled = ingest([tmp_path], workers=1), ingest([tmp_path], workers=2, progress=lambda done, total, what: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)] and list(alone) == list(pooled)
    for key, facts in alone.items():
        for name, table in facts.tables.items():
            pd.testing.assert_frame_equal(table, pooled[key][name])


def test_several_runs_at_once_are_refused_and_named(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(tmp_path / name / "rank00000" / "capture000" / "trace.json", STEP)
        (tmp_path / name / "run.json").write_text('{"schema": "tracekit.run/1"}')
    with pytest.raises(UsageError, match=r"traces of 2 runs \(.*first, .*second\); analyse one at a time"):
        find([tmp_path])


def test_jobs_of_different_size_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=0, world=2)
    write(tmp_path / "b.json", STEP, rank=1, world=4)
    with pytest.raises(InputError, match=r"a\.json: records a job of 2 ranks, and .*b\.json one of 4"):
        ingest([tmp_path])
