"""A run is made without what is no trace, and never without what there was no room for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tracekit.cli import main
from tracekit.cli.sending import Answer, Dashboard


@pytest.mark.parametrize(
    ("status", "code", "made"),
    [(415, 0, ["0"]), (400, 0, ["0"]), (413, 4, None), (507, 4, None), (403, 4, None)],
)
def test_only_what_is_no_trace_is_left_out(
    status: int, code: int, made: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("rank0.json", "rank1.json"):
        (tmp_path / name).write_text("{}")
    asked: list[tuple[str, str]] = []
    runs: list[list[str]] = []

    def ask(self: Dashboard, method: str, path: str, body: bytes | None = None, headers: Any = None) -> Answer:
        asked.append((method, path))
        if path == "/api/runs":
            runs.append(json.loads(body or b"")["uploads"])
            return Answer(201, {}, {"run": "r", "url": "/job/r"})
        if method == "POST" and len(runs) == 0 and asked.count(("POST", path)) == 2:
            return Answer(status, {}, {"error": "the reason"})
        return Answer(201, {"location": "/api/uploads/0", "upload-offset": "2"}, {})

    monkeypatch.setattr(Dashboard, "ask", ask)
    assert main(["upload", str(tmp_path / "rank0.json"), str(tmp_path / "rank1.json"), "--to", "http://here", "--json"]) == code
    assert runs == ([] if made is None else [made])
    assert not [path for method, path in asked if method == "DELETE"], "what has arrived is kept"
    said = capsys.readouterr()
    assert "rank1.json: " in said.err and said.err.strip().endswith("the reason")
    if made is not None:
        assert [entry["file"] for entry in json.loads(said.out)["left_out"]] == ["rank1.json"]
