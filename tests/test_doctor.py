"""The doctor names what files hold, what they lack for which figure, and the smallest capture to make next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import document, kernel, launch, op, span, write
from tests.cases.case import shell
from tracekit.doctor import examine
from tracekit.metrics import METRICS
from tracekit.needs import NEEDS

STEP = [span("ProfilerStep#1", 0, 20), op("aten::mm", 1, 5), launch(1, 2, 1), kernel("gemm", 3, 9, 1)]
REDUCE = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float", "Group size": 2, "Process Group Name": "1"}


def presence(diagnosis: dict[str, Any]) -> dict[str, str]:
    return {n["need"]: n["presence"] for n in diagnosis["needs"]}


def test_every_metric_that_is_lost_by_something_exists() -> None:
    assert {metric for need in NEEDS for metric in need.loses} <= {m.name for m in METRICS}


def test_what_is_here_and_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", STEP)
    got = examine(tmp_path).to_dict()
    want = {"ranks": "all", "device_work": "all", "steps": "all", "launches": "all", "groups": "not applicable", "memory_events": "none"}
    assert {k: presence(got)[k] for k in want} == want
    assert got["figures"]["memory"]["available"] is False
    assert {"need": "memory_events", "loses": "everything"} in got["figures"]["memory"]["lacks"]
    assert any("profile_memory=True" in line for line in got["next_capture"]["lines"])


def test_a_lone_rank_of_a_pipeline_is_asked_for_its_pipeline(tmp_path: Path) -> None:
    groups = [
        {"pg_name": "1", "pg_desc": "mesh_tp", "ranks": [0, 1], "pg_size": 2},
        {"pg_name": "2", "pg_desc": "mesh_pp", "ranks": [0, 2, 4, 6], "pg_size": 4},
    ]
    events = [*STEP, launch(9, 10, 2), kernel("ncclDevKernel_AllReduce", 10, 12, 2, Seq=1, **{**REDUCE, "Process Group Ranks": "[0, 1]"})]
    text = document(events, rank=0, world=8)
    text["distributedInfo"]["pg_config"] = groups
    (tmp_path / "trace.json").write_text(json.dumps(text))
    got = examine(tmp_path).to_dict()
    assert got["next_capture"]["ranks"] == [0, 2, 4, 6]
    assert "if torch.distributed.get_rank() in (0, 2, 4, 6): start the profiler" in got["next_capture"]["lines"]
    assert presence(got)["links"] == "none"


def test_a_refused_file_is_named_and_stops_nothing(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", STEP)
    (tmp_path / "rank1.json").write_text(json.dumps(document(STEP, rank=1))[:-9])
    code, out, err = shell("doctor", tmp_path)
    assert (code, err) == (4, "")
    assert "Health: unusable" in out and "rank1.json" in out and "truncated" in out and "1 file of Kineto trace" in out


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_what_is_no_trace_is_told_and_ends_with_four(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    code, out, _ = shell("doctor", tmp_path / "notes.txt", *arguments)
    assert code == 4 and "not a trace I know" in out
    if arguments:
        assert json.loads(out)["health"]["verdict"] == "unusable"


def test_a_sound_run_lacks_nothing_that_its_ranks_could_give() -> None:
    got = examine(Path(__file__).parent.parent / "sample_traces" / "tp").to_dict()
    assert set(presence(got).values()) <= {"all", "not applicable"}
    assert got["next_capture"] == {"ranks": None, "why": None, "lines": []}
