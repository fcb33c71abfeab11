"""The samples' README says what each is, by which command it was recorded, and figures that its report gives."""

from __future__ import annotations

import json
import re

import pytest

from tests.analyses import analysis_of
from tests.golden import SAMPLES, samples
from tracekit import wording

README = (SAMPLES / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([\w-]+)` \| (.*)$", README, re.MULTILINE))


def test_every_sample_has_its_row_and_its_command_and_no_other_is_listed() -> None:
    commands = [json.loads((SAMPLES / name / "run.json").read_text(encoding="utf-8"))["command"] for name in samples()]
    assert sorted(ROWS) == samples()
    assert sorted(re.findall(r"^    (tracekit run .*)$", README, re.MULTILINE)) == sorted(commands)


def test_the_script_records_each_sample_by_its_command() -> None:
    script = (SAMPLES / "record.sh").read_text(encoding="utf-8")
    sizes = dict(re.findall(r'^(\w+)="(.*)"$', script, re.MULTILINE))
    lines = re.findall(r"^record ([\w-]+) (.*)$", script, re.MULTILINE)
    made = {name: re.sub(r"[$](\w+)", lambda m: sizes[m[1]], f"tracekit run {rest} --out sample_traces/{name}") for name, rest in lines}
    assert made == {name: json.loads((SAMPLES / name / "run.json").read_text(encoding="utf-8"))["command"] for name in samples()}


@pytest.mark.parametrize("name", ["pp-1f1b", "pp-interleaved-zb", "3d"])
def test_bubbles_in_the_readme_are_those_of_the_reports(name: str) -> None:
    s = analysis_of(SAMPLES / name).result("pipeline").summary
    assert f"bubble {wording.percent(s['bubble_ratio'])}" in ROWS[name]
    assert s["closed_form_bubble_ratio"] is None or f"closed form {wording.percent(s['closed_form_bubble_ratio'])}" in ROWS[name]


@pytest.mark.parametrize("name", ["recompute-none", "recompute-full", "recompute-selective"])
def test_activations_in_the_readme_are_those_of_the_reports(name: str) -> None:
    s = analysis_of(SAMPLES / name).result("memory").summary
    theory = wording.size(s["activation_theory_bytes"]).split()[0]
    assert f"activations {wording.size(s['activation_bytes'])} (closed form {theory})" in ROWS[name]
