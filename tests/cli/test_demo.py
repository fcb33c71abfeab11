"""The demo: what it would train is possible, it never removes what is not its own, and it works without torch."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import pytest

from instrumentation.config import configure
from tests.report.builder import pipeline, tp
from tracekit import analysis as analysis_module
from tracekit.cli import COMMANDS, main

demo = importlib.import_module("tracekit.cli.demo")


def test_every_run_of_the_study_is_possible_and_the_study_holds_the_main_job():
    configs = {name: configure(out=name, **settings) for name, settings in demo.STUDY.items()}
    assert {c.recipe for c in configs.values()} == {"tp", "tp-sp", "dense", "pp", "3d"}
    assert {c.recompute for c in configs.values()} == {"none", "selective:core_attention", "full"}
    assert len({c.schedule for c in configs.values() if c.recipe == "pp"}) == 2
    assert all(c.emulate_compute_ns for c in configs.values() if c.ranks > 2)


@pytest.fixture
def without_torch(monkeypatch, tmp_path):
    """No torch, two sample traces, analyses made by hand."""
    samples = tmp_path / "samples"
    for name in ("tp", "pp"):
        (samples / name).mkdir(parents=True)
        (samples / name / "trace.json.gz").write_bytes(b"")
    monkeypatch.setattr(demo, "can_train", lambda: False)
    monkeypatch.setattr(demo, "sample_folder", lambda: samples)
    monkeypatch.setattr(analysis_module, "analyze", lambda path, **_: tp() if Path(path).name == "tp" else pipeline())
    return samples


def test_without_torch_the_sample_traces_are_analysed_and_it_says_so(without_torch, tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out)]) == 0
    text, err = capsys.readouterr()
    assert "torch is not installed" in err
    assert "27.3 %" in text and "emulated" in text and "2 forward + 2 backward" in text
    assert f"Open {out / 'report.html'}" in text and "tracekit analyze" in text
    assert (out / "report.html").is_file() and (out / "tp" / "report.html").is_file() and (out / "pp" / "report.html").is_file()


def test_without_torch_and_without_samples_it_says_what_to_do(without_torch, tmp_path, capsys):
    shutil.rmtree(without_torch)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 4
    err = capsys.readouterr().err.splitlines()
    assert "install torch" in err[-1]


def test_a_folder_that_holds_something_else_is_refused_untouched(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_second_demo_removes_the_runs_of_the_first_and_nothing_else(without_torch, tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out)]) == 0
    (out / "tp" / "old.txt").write_text("from the first")
    (out / "notes.txt").write_text("mine")
    (out / "demo.json").write_text(json.dumps({"runs": ["tp", "../samples"]}))
    assert main(["demo", "--out", str(out)]) == 0
    assert not (out / "tp" / "old.txt").exists() and (out / "notes.txt").exists() and without_torch.is_dir()


def test_every_command_has_its_file_and_every_file_its_command():
    helpers = {"__init__", "comparing", "endings", "model", "flags", "outputs", "reading", "screen", "sending"}
    files = {p.stem for p in Path(demo.__file__).parent.glob("*.py")} - helpers
    assert files == {c.__name__ for c in COMMANDS}
    assert all(c.__module__ == f"tracekit.cli.{c.__name__}" for c in COMMANDS)
