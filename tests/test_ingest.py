"""From paths to facts: what is found, what is refused, and that the number of workers changes nothing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.builders import kernel, launch, span, write
from tracekit.errors import InputError, UsageError
from tracekit.ingest import ingest

STEP = [span("ProfilerStep#1", 0, 20), launch(1, 2, 1), kernel("gemm", 3, 9, 1)]


def test_ranks_come_from_the_file_else_from_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a.json.gz", STEP, rank=2)
    write(tmp_path / "rank5.json", STEP, rank=None)
    assert list(ingest([tmp_path]).ranks) == [(2, 0), (5, 0)]


def test_captures_of_one_rank_are_numbered_in_time(tmp_path: Path) -> None:
    write(tmp_path / "iteration_20" / "rank0.json", STEP, base=1_000_000)
    write(tmp_path / "iteration_10" / "rank0.json", STEP)
    facts = ingest([tmp_path]).ranks
    assert list(facts) == [(0, 0), (0, 1)]
    assert [Path(f.meta.files[0]).parent.name for f in facts.values()] == ["iteration_10", "iteration_20"]


def test_two_files_of_one_rank_and_time_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=1, world=3)
    write(tmp_path / "b.json", STEP[:2], rank=1, world=3)
    with pytest.raises(InputError, match=r"2 files claim rank 1 at the same time, and none of them is used: .*a\.json, .*b\.json; .* rank 0, 2 of 3"):
        ingest([tmp_path])


def test_beside_other_ranks_rivals_become_a_finding_that_names_them(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", STEP, rank=0, world=2)
    write(tmp_path / "a.json", STEP, rank=1, world=2)
    write(tmp_path / "b.json", STEP[:2], rank=1, world=2)
    got = ingest([tmp_path])
    assert list(got.ranks) == [(0, 0)]
    assert [(f["code"], f["severity"], f["rank"]) for f in got.findings] == [("rank_claimed_twice", "warning", 1)]


def test_the_same_bytes_twice_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=1)
    write(tmp_path / "b.json", STEP, rank=1)
    got = ingest([tmp_path])
    assert list(got.ranks) == [(1, 0)] and [f["code"] for f in got.findings] == ["file_twice"]


def test_a_file_without_a_rank_among_others_is_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", STEP, rank=None)
    write(tmp_path / "trace.json", STEP[:2], rank=None)
    got = ingest([tmp_path])
    assert list(got.ranks) == [(0, 0)]
    assert [(f["code"], Path(f["file"]).name) for f in got.findings] == [("rank_unknown", "trace.json")]


def test_files_of_one_process_are_its_captures(tmp_path: Path) -> None:
    for base, stamp in ((0, "1752215573993"), (1_000_000, "1752215579993")):
        write(tmp_path / f"host_851.{stamp}.pt.trace.json", STEP, rank=None, base=base)
    assert list(ingest([tmp_path]).ranks) == [(0, 0), (0, 1)]


def test_captures_are_the_same_for_all_ranks_where_one_lacks_the_first(tmp_path: Path) -> None:
    for rank, base in ((0, 0), (0, 1_000_000), (1, 1_000_005)):
        write(tmp_path / f"{rank}-{base}.json", STEP, rank=rank, base=base)
    assert list(ingest([tmp_path]).ranks) == [(0, 0), (0, 1), (1, 1)]
    assert list(ingest([tmp_path], capture=0).ranks) == [(0, 0)]
    with pytest.raises(UsageError, match="no capture 2; there are 0, 1"):
        ingest([tmp_path], capture=2)


def test_several_files_without_a_rank_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=None)
    write(tmp_path / "b.json", STEP[:2], rank=None)
    with pytest.raises(InputError, match="no rank in the file or its name"):
        ingest([tmp_path])


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: (p.mkdir(), (p / "notes.json").write_text("{}"))], ids=["missing", "empty", "no trace"]
)
def test_paths_without_traces_are_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "runs"
    make(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"no such file|holds no trace"):
        ingest([path])


def test_other_files_in_a_folder_stop_nothing(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", STEP)
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "other.json").write_text('{"a": 1}')
    got = ingest([tmp_path])
    assert [Path(f.meta.files[0]).name for f in got.ranks.values()] == ["rank0.json"]
    assert [(f["code"], f["severity"], f["count"]) for f in got.findings] == [("files_ignored", "info", 1)]


def test_workers_change_nothing_and_progress_reaches_the_end(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / f"rank{rank}.json", STEP, rank=rank, world=3)
    seen: list[tuple[int, int]] = []
    alone, pooled = ingest([tmp_path], workers=1).ranks, ingest([tmp_path], workers=2, progress=lambda done, total, what: seen.append((done, total))).ranks
    assert seen == [(1, 3), (2, 3), (3, 3)] and list(alone) == list(pooled)
    for key, facts in alone.items():
        for name, table in facts.tables.items():
            pd.testing.assert_frame_equal(table, pooled[key][name])


def test_several_runs_at_once_are_refused_and_named(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(tmp_path / name / "rank00000" / "capture000" / "trace.json", STEP)
        (tmp_path / name / "run.json").write_text('{"schema": "tracekit.run/1"}')
    with pytest.raises(UsageError, match=r"traces of 2 runs \(.*first, .*second\); analyse one at a time"):
        ingest([tmp_path])


def test_jobs_of_different_size_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "a.json", STEP, rank=0, world=2)
    write(tmp_path / "b.json", STEP, rank=1, world=4)
    with pytest.raises(InputError, match=r"a\.json: records a job of 2 ranks, and .*b\.json one of 4"):
        ingest([tmp_path])
