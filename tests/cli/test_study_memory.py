"""The study of memory: what is measured meets its closed form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the reference runs need torch")

from tracekit.cli import main


def test_measured_activations_meet_their_closed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--depth", "4", "--depth", "9", "--tensor", "1"]
    assert main(["study", "memory", *asked, "--out", str(tmp_path / "runs"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == 8 and all(abs(r["difference_ratio"]) < 0.15 for r in document["rows"])
    growth = {r["recompute"]: r["measured_exponent"] for r in document["fits"]}
    assert growth["none"] == pytest.approx(1, abs=0.05) and growth["sqrt"] == pytest.approx(0.5, abs=0.1) and growth["full"] < growth["sqrt"]
