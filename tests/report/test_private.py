"""What a trace says of the machine that recorded it stays in the trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import document, kernel, launch, span
from tracekit import analyze
from tracekit.report import render


@pytest.mark.parametrize("format", ["json", "html", "markdown"])
def test_environment_and_tokens_never_reach_a_report(tmp_path: Path, format: str) -> None:
    events = [span("ProfilerStep#1", 0, 20), launch(1, 2, 1), kernel("gemm", 3, 9, 1, note="hf_secret")]
    whole = document(events, environment={"HF_TOKEN": "hf_secret"}, traceName="/home/alice/hf_secret.json", user="hf_secret")
    (tmp_path / "rank0.json").write_text(json.dumps(whole))
    assert "hf_secret" not in render(format, analyze(tmp_path / "rank0.json", workers=1))
