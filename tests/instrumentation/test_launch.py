"""How does a launch end: well, with a failing rank, or not at all?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from instrumentation.config import configure
from instrumentation.launch import launch
from instrumentation.worker import gone
from tracekit.cli import main
from tracekit.errors import RunFailed, UsageError

TINY = {"layers": 2, "hidden": 16, "heads": 2, "sequence": 8, "vocabulary": 32, "microbatch_size": 1, "microbatches": 1}


def test_a_failing_rank_ends_the_run_with_its_error_and_keeps_the_output(tmp_path: Path) -> None:
    good = configure("ddp", 2, out=str(tmp_path / "good"), **TINY, steps=2, record=False)
    bad = configure("ddp", 2, out=str(tmp_path / "bad"), **TINY, fail_at=(1, 3))
    seen: list[tuple[int, int]] = []
    with pytest.raises(RunFailed, match=r"^ddp: rank 1 failed: RuntimeError: rank 1 was told to fail at step 3 \(output of all ranks: .*bad/logs\)$"):
        launch([good, bad], lambda run, step: seen.append((run, step)))
    assert seen[-1] == (1, 3), "rank 0 waits for rank 1 in step 3"
    assert json.loads((tmp_path / "good" / "result.json").read_text())["losses"]
    assert "told to fail" in (tmp_path / "bad" / "logs" / "rank00001.stderr").read_text()


def test_a_directory_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="exists already; name another directory"):
        launch([configure("dense", 1, out=str(tmp_path))])
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="device cuda needs a GPU that torch can see"):
        launch([configure("tp", 2, out=str(tmp_path / "run"), device="cuda")])


def test_the_command_trains_and_says_where_and_what_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    sizes = [text for name, value in TINY.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    settings = ["--ranks", "2", *sizes, "--microbatches", "2", "--emulate-compute", "2ms", "--steps", "4", "--active", "2"]
    assert main(["run", "pp", *settings, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out}: 4 steps in ")
    assert "emulated compute: the layers slept" in said
    assert said.endswith(f"Next: tracekit analyze {out}\n")
    run = json.loads((out / "run.json").read_text())
    assert run["pipeline"] == {"schedule": "1f1b", "stages": 2, "virtual": 1}
    assert run["emulate_compute_ns"] == 2_000_000
    # No flight_recorder.json: on gloo the Flight Recorder leaves out sends and receives, and a pipeline has nothing else.
    assert sorted(path.name for path in (out / "rank00001" / "capture000").iterdir()) == ["memory.json", "trace.json.gz"]


def test_the_command_puts_one_document_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "dense", "--layers", "1", "--hidden", "16", "--out", str(tmp_path / "run"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["schema"], result["directory"], len(result["losses"])) == ("tracekit.result/1", str(tmp_path / "run"), 10)
    assert result["losses"][-1] < result["losses"][0]


def test_a_process_that_vanished_without_an_error_is_noticed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True).stdout
    for rank, pid in enumerate([str(os.getpid()), ended, ended]):
        (tmp_path / f"pid.{rank}").write_text(pid.strip())
    (tmp_path / "failed.2").write_text("{}")
    assert gone(tmp_path) == [1]
