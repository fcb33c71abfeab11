"""What does a recording leave behind, and what becomes of the training when something goes wrong?"""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import sys

import pytest
import torch

from tests.recorder.models import Decoder, train_step
from tests.recorder.traces import slices
from tracekit import analyze
from tracekit.recorder import Recorder, Window, environment
from tracekit.recorder.layers import LayerRanges
from tracekit.recorder.variables import missing
from tracekit.vocabulary import parse_module_span


def train(recorder_arguments: dict, steps: int, at_step=lambda i: None) -> Decoder:
    torch.manual_seed(0)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters())
    with Recorder(model=model, optimizer=optimizer, **recorder_arguments) as recorder:
        for i in range(steps):
            train_step(model, optimizer)
            at_step(i)
            recorder.step(loss=float(i))
    return model


def steps_in(path) -> list[str]:
    return [s.name for s in slices(path) if s.name.startswith("ProfilerStep")]


def test_two_captures(tmp_path):
    train({"directory": tmp_path, "window": (1, 1, 2, 2)}, steps=9)
    rank = tmp_path / "rank00000"
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()) == [
        "rank00000/capture000/memory.json",
        "rank00000/capture000/trace.json.gz",
        "rank00000/capture001/memory.json",
        "rank00000/capture001/trace.json.gz",
        "rank00000/spans.jsonl",
        "run.json",
    ]
    assert steps_in(rank / "capture000/trace.json.gz") == ["ProfilerStep#2", "ProfilerStep#3"]
    assert steps_in(rank / "capture001/trace.json.gz") == ["ProfilerStep#6", "ProfilerStep#7"]
    for capture in (0, 1):
        names = [s.name for s in slices(rank / f"capture00{capture}/trace.json.gz")]
        assert names.count("layers.0.forward") == names.count("layers.0.backward") == 2


def test_captures_without_a_pause_between_them(tmp_path):
    train({"directory": tmp_path, "window": Window(wait=0, warmup=0, active=1, repeat=2)}, steps=3)
    for capture in (0, 1):
        folder = tmp_path / f"rank00000/capture00{capture}"
        assert steps_in(folder / "trace.json.gz") == [f"ProfilerStep#{capture}"]
        assert {"blocks", "later", "seen"} <= set(json.loads((folder / "memory.json").read_text()))


def test_window_still_open_at_the_end_is_written(tmp_path):
    train({"directory": tmp_path, "window": (0, 1, 5, 1)}, steps=3)
    assert steps_in(tmp_path / "rank00000/capture000/trace.json.gz")[:2] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_what_follows_the_last_step_is_no_step(tmp_path):
    """The recorder cannot know that a step is the last, so it begins another, in which nothing is trained."""
    train({"directory": tmp_path, "window": (0, 0, 5, 1)}, steps=2)
    analysis = analyze(tmp_path)
    assert analysis.run()["steps"] == [0, 1]
    assert analysis.result("step_time").summary["steps"] == 2
    names = [s.name for s in slices(tmp_path / "rank00000/capture000/trace.json.gz")]
    assert "UnfinishedStep#2" in names and "ProfilerStep#2" not in names


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_run_that_ends_before_its_window_says_so(tmp_path, caplog, steps):
    train({"directory": tmp_path, "window": (2, 1, 1, 1)}, steps)
    said = f"no whole step was recorded: {steps} ended, and the recording begins after 2 + 1 steps (wait + warmup)"
    assert [r.getMessage().split(";")[0] for r in caplog.records] == [said]


def test_second_recording_into_the_same_directory_replaces_the_first(tmp_path):
    train({"directory": tmp_path, "window": (0, 1, 1, 2)}, steps=4)
    (tmp_path / "rank00000/capture001/note.txt").write_text("mine")
    (tmp_path / "rank00000/capture000/trace.json.gz").write_text("old")
    train({"directory": tmp_path, "window": (0, 1, 1, 1)}, steps=2)
    assert sorted(p.relative_to(tmp_path / "rank00000").as_posix() for p in (tmp_path / "rank00000").glob("*/*")) == [
        "capture000/memory.json",
        "capture000/trace.json.gz",
        "capture001/note.txt",
    ]
    assert steps_in(tmp_path / "rank00000/capture000/trace.json.gz") == ["ProfilerStep#1"]


def test_folders_of_ranks_that_do_not_exist_are_named(tmp_path, caplog):
    (tmp_path / "rank00001").mkdir()
    train({"directory": tmp_path, "window": (0, 0, 1, 1)}, steps=1)
    assert [r.getMessage().split(": ")[0] for r in caplog.records] == ["left over from a run with more ranks"]


def test_stacks_and_module_frames_on_request(tmp_path):
    train({"directory": tmp_path, "window": (0, 1, 1, 1), "with_stack": True}, steps=2)
    names = {s.name for s in slices(tmp_path / "rank00000/capture000/trace.json.gz") if s.category == "python_function"}
    assert {"nn.Module: Decoder_0", "nn.Module: Block_0"} <= names


@pytest.mark.parametrize("layer_ranges", [True, False])
def test_layers_have_ranges_unless_they_are_not_wanted(tmp_path, layer_ranges):
    train({"directory": tmp_path, "window": (0, 1, 1, 1), "layer_ranges": layer_ranges}, steps=2)
    trace = tmp_path / "rank00000/capture000/trace.json.gz"
    assert ("layers.0.mlp.forward" in {s.name for s in slices(trace)}) is layer_ranges
    assert any(parse_module_span(s.name) for s in slices(trace)) is layer_ranges
    assert steps_in(trace) == ["ProfilerStep#1"]
    assert json.loads((tmp_path / "run.json").read_text())["layer_ranges"] is layer_ranges


def test_spans_have_one_line_per_step_without_gaps(tmp_path):
    train({"directory": tmp_path, "window": (5, 0, 1, 1)}, steps=3)
    spans = [json.loads(line) for line in (tmp_path / "rank00000/spans.jsonl").read_text().splitlines()]
    assert [(s["step"], s["loss"]) for s in spans] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert all(a["start_ns"] < a["end_ns"] == b["start_ns"] for a, b in itertools.pairwise(spans))


def test_run_json_holds_what_was_found_under_what_was_given(tmp_path):
    config = {"recipe": "mine", "model": {"layers": 2}, "mesh": {"tp": 1}, "host": "here"}
    model = train({"directory": tmp_path, "config": config}, steps=1)
    run = json.loads((tmp_path / "run.json").read_text())
    assert {k: run[k] for k in ("schema", "recipe", "device", "backend", "world_size", "mesh", "host")} == {
        "schema": "tracekit.run/1",
        "recipe": "mine",
        "device": "cpu",
        "backend": None,
        "world_size": 1,
        "mesh": {"tp": 1},
        "host": "here",
    }
    assert run["model"] == {"dtype": "float32", "dtype_bytes": 4, "parameters": sum(p.numel() for p in model.parameters()), "layers": 2}
    assert run["training"] == {"optimizer": "adamw", "learning_rate": 0.001}
    assert run["versions"]["torch"] == torch.__version__


def test_recording_changes_no_number(tmp_path):
    recorded = train({"directory": tmp_path, "window": (0, 1, 2, 1)}, steps=4)
    torch.manual_seed(0)
    plain = Decoder()
    optimizer = torch.optim.AdamW(plain.parameters())
    for _ in range(4):
        train_step(plain, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(recorded.parameters(), plain.parameters(), strict=True))


def test_unwritable_directory_stops_the_recorder_only(tmp_path, caplog):
    (tmp_path / "file").write_text("a file stands where the run directory should be")
    done = []
    train({"directory": tmp_path / "file" / "run"}, steps=6, at_step=done.append)
    assert done == [0, 1, 2, 3, 4, 5]
    assert [r.getMessage().split(": ")[:2] for r in caplog.records] == [["recording stopped, training goes on", "NotADirectoryError"]]


def test_failing_hook_is_reported_once_and_the_hooks_go(tmp_path, caplog, monkeypatch):
    def broken(_self):
        raise ValueError("from a hook")

    monkeypatch.setattr(LayerRanges, "_stack", broken)
    counts, model = [], Decoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(tmp_path, model=model, optimizer=optimizer, window=(0, 1, 3, 1)) as recorder:
        for _ in range(5):
            train_step(model, optimizer)
            counts.append(len(model.layers["0"]._forward_hooks))
            recorder.step()
    assert counts == [0, 0, 0, 0, 0]  # the second step attached them, and its first hook took them away
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == ["recording stopped, training goes on: ValueError: from a hook"]
    assert steps_in(tmp_path / "rank00000/capture000/trace.json.gz") == ["ProfilerStep#1"]  # what there was is written


def test_profiler_of_the_user_comes_first(tmp_path, caplog):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        done = []
        train({"directory": tmp_path, "window": (0, 1, 1, 1)}, steps=3, at_step=done.append)
    assert done == [0, 1, 2]
    assert len(own.events()) > 0
    assert len(caplog.records) == 1


def test_error_of_the_training_passes_and_the_trace_so_far_is_kept(tmp_path, caplog):
    def at_step(i):
        if i == 2:
            raise KeyError("from the training")

    with pytest.raises(KeyError, match="from the training"):
        train({"directory": tmp_path, "window": (0, 1, 5, 1)}, steps=5, at_step=at_step)
    # The step in which it was raised was cut short: its length is no step's time.
    assert steps_in(tmp_path / "rank00000/capture000/trace.json.gz") == ["ProfilerStep#1"]
    assert "UnfinishedStep#2" in [s.name for s in slices(tmp_path / "rank00000/capture000/trace.json.gz")]
    assert not caplog.records


def test_importing_tracekit_does_not_import_torch():
    code = "import sys, tracekit, tracekit.vocabulary; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_environment(tmp_path):
    assert environment() == {"TORCH_FR_BUFFER_SIZE": "20000"}
    cuda = environment(tmp_path, 3, device="cuda")
    assert cuda["NCCL_DEBUG"] == "INFO"
    assert cuda["NCCL_DEBUG_FILE"] == str(tmp_path / "rank00003/nccl.log")
    assert missing({}, None) == missing(cuda, "nccl") == missing(environment(), "gloo") == ()
    assert len(missing({}, "gloo")) == 1 and "the last 2000 collectives" in missing({}, "gloo")[0]
    assert missing({"TORCH_FR_BUFFER_SIZE": "0"}, "gloo")[0].startswith("no flight_recorder.json will be written")
    assert len(missing({}, "nccl")) == 2
