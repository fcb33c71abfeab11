"""The study of pipelines: what is measured meets its simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the reference runs need torch")

from tracekit.cli import main


def test_measured_bubbles_meet_their_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--ranks", "2", "--times", "1", "--times", "2", "--schedule", "1f1b", "--schedule", "zbv", "--schedule", "dualpipev"]
    assert main(["study", "pipeline", *asked, "--emulate-compute", "60ms", "--out", str(tmp_path / "runs"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {(r["schedule"], r["microbatches"]): r for r in document["rows"]}
    assert document["schema"] == "tracekit.study/1" and document["emulated"] and len(rows) == 6
    assert "at least" in rows["dualpipev", 2]["reason"] or "microbatches" in rows["dualpipev", 2]["reason"]
    ran = [r for r in rows.values() if "reason" not in r]
    assert {r["recognised"] for r in ran} == {"1f1b", "zbv", "dualpipev"}
    assert all(abs(r["difference_ratio"]) < 0.04 for r in ran)
    assert rows["1f1b", 4]["closed_form_bubble_ratio"] == pytest.approx(1 / 5)


@pytest.mark.parametrize(("arguments", "says"), [(["tensor"], "no study of"), (["pipeline", "--emulate-compute", "soon"], "duration")])
def test_what_cannot_be_studied_is_refused(arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *arguments, "--out", str(tmp_path / "runs")]) == 2
    assert says in capsys.readouterr().err
