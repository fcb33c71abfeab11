"""The sample traces give the figures that were reviewed."""

from __future__ import annotations

import copy
import json

import pytest

from tests import golden


def test_every_sample_has_a_golden_report_and_none_is_left_over() -> None:
    assert golden.samples() and golden.samples() == sorted(p.stem for p in golden.GOLDEN.glob("*.json"))


@pytest.mark.parametrize("name", golden.samples())
def test_report_of_sample(name: str) -> None:
    assert golden.digest(name) == json.loads((golden.GOLDEN / f"{name}.json").read_text())


def test_samples_stay_small() -> None:
    assert sum(p.stat().st_size for p in golden.SAMPLES.rglob("*") if p.is_file()) < 8_000_000


def test_nobody_writes_into_a_report_that_other_tests_look_at() -> None:
    report = golden.report_of("tp")
    with pytest.raises(TypeError, match="change a deep copy"):
        report["metrics"]["budget"]["notes"].append("mine")
    with pytest.raises(TypeError, match="change a deep copy"):
        report["run"]["mesh"]["tp"] = 3
    own = copy.deepcopy(report)
    own["metrics"]["budget"]["notes"].append("mine")
    assert own != report and json.loads(json.dumps(report)) == report
