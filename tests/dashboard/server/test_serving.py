"""The whole server as a process: killed in mid-upload, fed by the command line, given what is hostile."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import signal
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dashboard.library import Library
from dashboard.settings import Settings
from tests.dashboard.server.conftest import BODY, OURS, TOKEN, named
from tests.dashboard.server.processes import Running, running
from tracekit.cli import main
from tracekit.cli.sending import Dashboard

EVENT = {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1000, "dur": 10, "args": {"device": 0, "stream": 7}}
HEAD = b'{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served") / "store") as made:
        yield made


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_a_server_killed_in_mid_upload_loses_nothing_and_one_that_is_told_to_end_ends(tmp_path: Path) -> None:
    content = HEAD + json.dumps(EVENT).encode() + b" " * 3_000_000 + b"]}"
    pieces = [content[:65_536], content[65_536:1_500_000], content[1_500_000:]]
    with running(tmp_path / "store", "--workers", "0") as first:
        asking = Dashboard(first.url, None, print)
        made = asking.ask("POST", "/api/uploads", pieces[0], {**named("rank0.json", len(content)), **BODY})
        path = made.headers["location"]
        assert asking.ask("PATCH", path, pieces[1], {**BODY, "Upload-Offset": "65536"}).status == 204
        asking.close()
        first.kill()
    with running(tmp_path / "store", "--workers", "0", "--token", TOKEN) as second:
        assert second.url.endswith(f"/?token={TOKEN}")
        line = HTTPConnection(urlsplit(second.url).netloc)
        line.request("GET", f"/?token={TOKEN}", headers={"X-Forwarded-Proto": "https"})
        assert "; Secure;" in line.getresponse().headers["Set-Cookie"]
        line.close()
        asking = Dashboard(second.url, None, print)
        assert asking.ask("HEAD", path, headers=OURS).headers["upload-offset"] == "1500000"
        assert asking.ask("PATCH", path, pieces[2], {**BODY, "Upload-Offset": "1500000"}).status == 204
        run = asking.ask("POST", "/api/runs", json.dumps({"uploads": [path.rsplit("/", 1)[1]]}).encode(), {"Content-Type": "application/json"})
        asking.close()
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(timeout=60) == 0
    library = Library(Settings(root=tmp_path / "store"))
    assert [f.sha256 for f in library.files(str(run.body["run"]))] == [hashlib.sha256(content).hexdigest()]
    library.close()


def test_a_run_directory_is_sent_from_a_shell_and_answered_again(served: Running, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["upload", str(samples / "recompute-none"), "--to", served.url, "--name", "from a shell", "--wait", "--json"]
    assert main(command) == 0
    first = told(capsys)
    assert (first["state"], first["already"], first["url"]) == ("ready", False, f"{served.url}/job/{first['run']}")
    assert main(command) == 0
    again = told(capsys)
    assert (again["run"], again["already"], again["url"]) == (first["run"], True, f"{served.url}/runs/{first['run']}/overview")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("rank0.json.gz", gzip.compress(HEAD, mtime=0) + gzip.compress(b" " * (80 << 20), mtime=0) * 2, "decompression bomb"),
        ("dump_0", pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [print]}, protocol=2), "pickle"),
        ("rank0.json", HEAD + b'{"ph": "X"', "byte"),
    ],
    ids=["bomb", "pickle", "cut"],
)
def test_hostile_files_end_in_one_clear_line(served: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["upload", str(tmp_path / name), "--to", served.url, "--wait"]) == 4
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("tracekit: ") and says in last


def test_what_is_no_trace_is_left_out_and_named(served: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "rank0.json").write_bytes(HEAD + json.dumps({**EVENT, "name": "left out test"}).encode() + b"]}")
    (folder / "README.txt").write_text("hello\n")
    (folder / ".hidden").write_text("x")
    assert main(["upload", str(folder), "--to", served.url, "--json"]) == 0
    assert [entry["file"] for entry in told(capsys)["left_out"]] == ["job/README.txt"]  # type: ignore[attr-defined]
    assert main(["upload", str(folder / "README.txt"), "--to", served.url]) == 4


def test_sending_is_taken_up_where_it_was_broken_off(served: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(HEAD + json.dumps({**EVENT, "name": "resumed"}).encode() + b" " * 500_000 + b"]}")
    from tracekit.cli.sending import Item

    asking = Dashboard(served.url, None, print)
    id, _ = asking._announce(Item(path, "rank0.json"), path.stat().st_size, Item(path, "rank0.json").mark, path.read_bytes()[:65_536], ())
    assert asking.send(Item(path, "rank0.json"), asking.uploads(), lambda _: None) == id
    assert [u["offset_bytes"] for u in asking.uploads() if u["id"] == id] == [path.stat().st_size]
    asking.ask("DELETE", f"/api/uploads/{id}")
    asking.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--host", "0.0.0.0", "--port", "0"], "add --token auto"),
        (["serve", "--token", "short"], "it can be guessed"),
        (["serve", "--host", "0.0.0.0", "--token", ""], "it can be guessed"),  # of a variable that is not set
        (["serve", "--quota", "lots"], "is no size"),
        (["serve", "--database", "mysql://x"], "SQLite or Postgres"),
        (["upload", "README.md", "--to", "ftp://x"], "is no address of a dashboard"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.delenv("TRACEKIT_TOKEN", raising=False)
    store = ["--root", str(tmp_path)] if arguments[0] == "serve" else []
    assert main([*arguments, *store]) == 2
    assert says in capsys.readouterr().err


def test_a_server_that_is_not_there_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank0.json").write_bytes(HEAD)
    assert main(["upload", str(tmp_path / "rank0.json"), "--to", "http://127.0.0.1:9"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_a_large_file_takes_no_memory_of_the_server(served: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rank0.json"
    line = json.dumps(EVENT).encode() + b",\n"
    with path.open("wb") as out:
        out.write(HEAD)
        for _ in range(100):
            out.write(line + b" " * (1 << 20))
        out.write(line.rstrip(b",\n") + b"]}")
    assert main(["upload", str(path), "--to", served.url, "--json"]) == 0
    assert told(capsys)["left_out"] == []
    assert served.most_memory() < 300 << 20
