"""Who has the last word, and what is said of a configuration that makes no sense?"""

from __future__ import annotations

import json

import pytest

from tracekit.cli import main
from tracekit.errors import UsageError
from tracekit.settings import settings
from tracekit.thresholds import Severity

PROJECT = """
[tool.tracekit]
scenario = "tp2"
ignore = ["torch"]
limits = ["bubble_ratio <= 0.15"]
[tool.tracekit.metrics."comm_*"]
min_effect = 0.1
[[tool.tracekit.rules]]
metric = "layer_transfer_ns"
layer = "layers.1*"
rank = 0
severity = "warn"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "repo" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (tmp_path / "repo" / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "home" / "tracekit").mkdir(parents=True)
    (tmp_path / "home" / "tracekit" / "tracekit.toml").write_text('scenario = "mine"\nwindow = 5\n')
    return tmp_path


def test_environment_over_project_over_user(folder):
    found = settings(folder=folder / "repo" / "deep" / "er", variables={"XDG_CONFIG_HOME": str(folder / "home"), "TRACEKIT_IGNORE": "nccl, driver"})
    assert (found.values["scenario"], found.values["window"], found.values["ignore"]) == ("tp2", 5, ("nccl", "driver"))
    assert found.origins["scenario"].endswith("repo/pyproject.toml") and found.origins["window"].endswith("home/tracekit/tracekit.toml")
    assert (found.origins["ignore"], found.origins["resamples"]) == ("TRACEKIT_IGNORE", "default")
    assert [b.text for b in found.rules.budgets] == ["bubble_ratio <= 0.15"]
    assert found.rules.overrides[1].places == (("layer", "layers.1*"), ("rank", "0")) and found.rules.overrides[1].severity == Severity.WARN


@pytest.mark.parametrize("place", ["git:baselines", "s3://bucket/x", "~/x", "/srv/x"])
def test_only_a_relative_folder_is_taken_from_where_the_file_is(folder, place):
    def told(text):
        (folder / "repo" / "tracekit.toml").write_text(f'baseline = "{text}"\n')
        return settings(folder=folder / "repo" / "deep", variables={"HOME": str(folder)}).values["baseline"]

    assert told("store") == str(folder / "repo" / "store")
    assert told(place) == place


def test_tracekit_toml_stands_before_pyproject(folder):
    (folder / "repo" / "tracekit.toml").write_text('scenario = "own"\n')
    assert settings(folder=folder / "repo", variables={"HOME": str(folder)}).values["scenario"] == "own"


def test_nothing_is_looked_for_above_the_repository(folder):
    (folder / "repo" / "pyproject.toml").unlink()
    (folder / "tracekit.toml").write_text('scenario = "not mine"\n')
    assert settings(folder=folder / "repo" / "deep", variables={"HOME": str(folder)}).values["scenario"] == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scenari = 'x'", "scenari: there is no such key"),
        ("window = true", "window: a whole number from 1 to 1,000"),
        ("window = 0", "window: a whole number"),
        ("false_alarm = nan", "false_alarm: a number from 0.0001 to 0.5"),
        ("false_alarm = inf", "false_alarm: a number"),
        (f"false_alarm = 1{'0' * 400}", "false_alarm: a number"),
        ("ignore = 'torch'", "ignore: a list of texts"),
        ("inconclusive = 'maybe'", "inconclusive: one of pass, fail"),
        ("limits = ['bubble_ratio <= __import__(1)']", "limits: "),
        ("metrics = 3", "metrics: a table"),
        ("[metrics.step_tiem_ns]\nmin_effect = 1", "metrics.step_tiem_ns: no metric is called"),
        ("[metrics.step_time_ns]\nmin_effect = -1", "metrics.step_time_ns: min_effect: a number"),
        ("[metrics.step_time_ns]\nlayer = 'x'", "metrics.step_time_ns: no key 'layer'"),
        ("[metrics.step_time_ns]\nbetter = 'up'", "metrics.step_time_ns: better: one of"),
        ("rules = [1]", "rules: a list of tables"),
        ("[[rules]]\nrank = [1]", "rules[0]: rank: a text or a number"),
        ("a = " + "[" * 5000, "this is no TOML"),
        ("a = 1\na = 2", "this is no TOML"),
        ("\x00", "this is no TOML"),
    ],
)
def test_nonsense_is_named_with_its_file_and_key(tmp_path, text, said):
    (tmp_path / "tracekit.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        settings(folder=tmp_path, variables={"HOME": str(tmp_path)})
    assert str(tmp_path / "tracekit.toml") in str(error.value) and said in str(error.value) and len(str(error.value)) < 1500


def test_a_variable_that_makes_no_sense_is_named(tmp_path):
    with pytest.raises(UsageError, match="TRACEKIT_WINDOW: a whole number"):
        settings(folder=tmp_path, variables={"HOME": str(tmp_path), "TRACEKIT_WINDOW": "many"})


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a = 1\n" * 300_000])
def test_a_file_that_is_no_text_or_endless_is_refused(tmp_path, data):
    (tmp_path / "tracekit.toml").write_bytes(data)
    with pytest.raises(UsageError, match=r"tracekit\.toml"):
        settings(folder=tmp_path, variables={"HOME": str(tmp_path)})


def test_config_show_says_where_each_value_comes_from(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder / "repo")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "home"))
    monkeypatch.setenv("TRACEKIT_RESAMPLES", "500")
    assert main(["config", "show", "--origin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("scenario ") and "tp2" in line and "repo/pyproject.toml)" in line for line in lines)
    assert any(line.startswith("resamples ") and "500" in line and "(TRACEKIT_RESAMPLES)" in line for line in lines)
    assert any(line.startswith("rule ") and "comm_*: min_effect 0.1" in line for line in lines)
    assert main(["config", "show", "--json"]) == 0
    assert {s["key"]: s["value"] for s in json.loads(capsys.readouterr().out)["settings"]}["window"] == 5
    assert main(["config", "hide"]) == 2
