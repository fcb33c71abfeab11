"""A run is made without what is no trace, and never without what there was no room for."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tracekit.cli import main
from tracekit.cli.sending import Answer, Dashboard
from tracekit.cli.upload import files
from tracekit.errors import UsageError


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

    def ask(self: Dashboard, method: str, path: str, body: bytes | None = None, headers: Any = None, _: Any = None) -> Answer:
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


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        (["--to", "http://here/?token=of-the-address", "--token", "as-given"], "as-given"),
        (["--to", "http://here/?token=of-the-address"], "of-the-address"),
        (["--to", "http://here/"], "of-the-environment"),
    ],
)
def test_the_token_of_the_environment_goes_to_no_server_that_has_one_of_its_own(
    arguments: list[str], known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    sent: set[str | None] = set()

    def once(self: Dashboard, *_: Any) -> Answer:
        sent.add(self.token)
        return Answer(401, {}, {})

    monkeypatch.setenv("TRACEKIT_TOKEN", "of-the-environment")
    monkeypatch.setattr(Dashboard, "_once", once)
    assert main(["upload", str(tmp_path / "rank0.json"), *arguments]) == 2
    assert sent == {known}


def test_what_was_forgotten_while_the_rest_was_sent_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}").mkdir()
        (tmp_path / f"rank{rank}" / "trace.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("hello")
    there: dict[str, str] = {}
    runs: list[list[str]] = []
    announced: list[str] = []

    def ask(self: Dashboard, method: str, path: str, body: bytes | None = None, headers: Any = None, _: Any = None) -> Answer:
        if path == "/api/runs":
            runs.append(json.loads(body or b"")["uploads"])
            if len(runs) == 1:
                del there["rank0/trace.json"]
                return Answer(404, {}, {"error": "there is no such upload"})
            return Answer(201, {}, {"run": "r", "url": "/job/r"})
        if method == "GET":
            marks = {label: str((tmp_path / label).stat().st_mtime_ns) for label in there}
            return Answer(200, {}, {"uploads": [{"id": id, "label": n, "size_bytes": 2, "mark": marks[n], "offset_bytes": 2} for n, id in there.items()]})
        told = dict(pair.split(" ") for pair in headers["Upload-Metadata"].split(","))
        label = base64.b64decode(told["relativePath"]).decode()
        announced.append(label)
        if label == "notes.txt":
            return Answer(415, {}, {"error": "no trace"})
        there[label] = f"id{len(announced)}"
        return Answer(201, {"location": f"/api/uploads/{there[label]}", "upload-offset": "2"}, {})

    monkeypatch.setattr(Dashboard, "ask", ask)
    named = [str(tmp_path / name) for name in ("rank0/trace.json", "rank1/trace.json", "notes.txt")]
    assert main(["upload", *named, "--to", "http://here", "--json"]) == 0
    assert announced == ["rank0/trace.json", "rank1/trace.json", "notes.txt", "rank0/trace.json"]
    assert runs == [["id1", "id2"], ["id4", "id2"]]
    assert [entry["file"] for entry in json.loads(capsys.readouterr().out)["left_out"]] == ["notes.txt"]


def test_a_file_that_cannot_be_read_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    monkeypatch.setattr(Dashboard, "uploads", lambda self: (tmp_path / "rank0.json").rename(tmp_path / "elsewhere") and [])
    assert main(["upload", str(tmp_path / "rank0.json"), "--to", "http://here"]) == 4
    assert "rank0.json: cannot be read (No such file or directory)" in capsys.readouterr().err


def test_an_announcement_whose_answer_was_lost_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "o\u0308.json").write_text("{}")
    (item,) = files([tmp_path / "o\u0308.json"])
    asked: list[str] = []
    listed = {"id": "one", "label": "\xf6.json", "size_bytes": 2, "mark": item.mark, "offset_bytes": 2}

    def once(self: Dashboard, method: str, path: str, *_: Any) -> Answer:
        asked.append(method)
        if method == "POST":
            raise ConnectionResetError
        return Answer(200, {}, {"uploads": [listed]})

    monkeypatch.setattr(Dashboard, "_once", once)
    assert Dashboard("http://here", None, print, lambda _: None).send(item, [], lambda _: None) == "one"
    assert asked == ["POST", "GET"]


def test_a_server_that_answers_is_not_called_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dashboard, "_once", lambda *_: Answer(429, {}, {"error": "too many uploads are on their way"}))
    with pytest.raises(UsageError, match=r"^http://here: too many uploads are on their way$"):
        Dashboard("http://here", None, lambda _: None, lambda _: None).ask("POST", "/api/uploads")
