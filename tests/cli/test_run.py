"""What does ``tracekit run`` accept and say, before anything is trained?"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from instrumentation.config import RECIPES, RECOMPUTE, SCHEDULES
from tracekit.cli import main
from tracekit.cli.run import _free, duration_ns
from tracekit.errors import UsageError


@pytest.mark.parametrize(("text", "ns"), [("20ms", 20_000_000), ("0.1s", 100_000_000), ("5us", 5_000), ("7ns", 7), (" 1.5ms ", 1_500_000)])
def test_durations_have_units(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize("text", ["20", "ms", "-1ms", "1h", "1e3ms", "", "20 ms"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration; write a number and ns, us, ms or s, such as 20ms"):
        duration_ns(text)


def test_help_names_every_recipe_schedule_and_recomputation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    words = capsys.readouterr().out.replace(",", " ").replace(". ", " ").split()
    assert {*RECIPES, *SCHEDULES, *RECOMPUTE} <= set(words)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tp", "--ranks", "3"], "4 heads do not divide over tp 3"),
        (["pp", "--schedule", "zbv", "--recompute", "full"], "zbv runs backward in two parts"),
        (["dense", "--emulate-compute", "20"], "'20' is no duration"),
        (["nonsense"], "no recipe 'nonsense'"),
    ],
)
def test_the_impossible_ends_with_one_line_and_code_2(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tracekit: ")
    assert captured.err.count("\n") == 1
    assert reason in captured.err


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    assert main(["run", "dense"]) == 2
    assert capsys.readouterr().err == "tracekit: training needs torch: pip install 'tracekit-train[recorder]'\n"


def test_the_default_directory_is_the_first_free_one(tmp_path: Path) -> None:
    assert _free(tmp_path / "tp") == tmp_path / "tp"
    (tmp_path / "tp").mkdir()
    (tmp_path / "tp-2").mkdir()
    assert _free(tmp_path / "tp") == tmp_path / "tp-3"
