"""Uploads become a run once, whatever is sent twice; and its job is told in words."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dashboard.library import Library
from dashboard.server import create_server
from dashboard.settings import Settings
from dashboard.uploads.spool import Spool
from tests.dashboard.server.conftest import BODY, OURS, named


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    made = Library(Settings(root=tmp_path, min_free_bytes=0))
    yield made
    made.close()


@pytest.fixture
def client(library: Library) -> FlaskClient:
    return create_server(library.settings, library).test_client()


def send(client: FlaskClient, label: str, content: bytes) -> str:
    answer = client.post("/api/uploads", headers={**named(label, len(content)), **BODY}, data=content)
    assert answer.status_code == 201, answer.json
    return answer.headers["Location"].rsplit("/", 1)[1]


def trace(rank: int) -> bytes:
    event = {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1000, "dur": 10, "args": {"device": 0, "stream": 7}}
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": [event]}).encode()


def test_files_of_several_ranks_become_one_run_in_their_folders(client: FlaskClient, library: Library) -> None:
    ids = [send(client, f"my run/rank0000{r}/trace.json", trace(r)) for r in (0, 1)] + [send(client, "my run/run.json", b"{}")]
    answer = client.post("/api/runs", json={"name": "two <b>ranks</b>", "uploads": ids}, headers=OURS)
    assert (answer.status_code, answer.json["already"], answer.json["state"]) == (201, False, "queued")
    run = answer.json["run"]
    assert answer.json["url"] == f"/job/{run}"
    assert [(f.place, f.label) for f in library.files(run)] == [
        ("my_run/rank00000/trace.json", "my run/rank00000/trace.json"),
        ("my_run/rank00001/trace.json", "my run/rank00001/trace.json"),
        ("my_run/run.json", "my run/run.json"),
    ]
    assert sorted(p.read_bytes() for p in library.folder(run).rglob("trace.json")) == [trace(0), trace(1)]
    assert [p.suffix for p in library.settings.uploads.iterdir()] == [".made"]


def test_the_same_file_again_is_answered_with_the_run_that_is_there(client: FlaskClient, library: Library, shared: Path) -> None:
    folder = shared / "cases" / "inputs" / "d01-same-file-again"
    content = [base64.b64decode(u["contents"].partition(",")[2]) for u in json.loads((folder / "uploads.json").read_text())["uploads"]]
    answers = [client.post("/api/runs", json={"uploads": [send(client, "rank0.json", c)]}, headers=OURS) for c in content]
    assert [a.status_code for a in answers] == [201, 200]
    assert [a.json["already"] for a in answers] == [False, True]
    assert answers[0].json["run"] == answers[1].json["run"]
    assert len(library.runs()) == 1 and len(library.files(answers[0].json["run"])) == 1


def test_a_request_whose_answer_was_lost_is_answered_again(client: FlaskClient, library: Library) -> None:
    ids = [send(client, f"rank{r}.json", trace(r)) for r in (0, 1)]
    first, again = (client.post("/api/runs", json={"uploads": uploads}, headers=OURS) for uploads in (ids, ids[::-1]))
    assert [(a.status_code, a.json["run"], a.json["already"]) for a in (first, again)] == [(201, first.json["run"], False), (200, first.json["run"], True)]
    assert client.post("/api/runs", json={"uploads": ids[:1]}, headers=OURS).status_code == 404
    Spool(library.settings.uploads).reap(-1)
    assert client.post("/api/runs", json={"uploads": ids}, headers=OURS).status_code == 404


def test_a_request_that_is_asked_again_while_it_is_answered_is_answered(client: FlaskClient, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"uploads": [send(client, "rank0.json", trace(0))]}
    other = client.application.test_client()
    make, first = library.create_run, list[str]()

    def slow(*asked: Any) -> str:
        monkeypatch.setattr(library, "create_run", make)
        first.append(other.post("/api/runs", json=wanted, headers=OURS).json["run"])
        return make(*asked)

    monkeypatch.setattr(library, "create_run", slow)
    again = client.post("/api/runs", json=wanted, headers=OURS)
    assert (again.status_code, again.json.get("run")) == (201, first[0])
    assert len(library.runs()) == 1


def test_what_failed_or_was_cancelled_is_read_again_when_asked(client: FlaskClient) -> None:
    run = client.post("/api/runs", json={"uploads": [send(client, "rank0.json", trace(0))]}, headers=OURS).json["run"]
    asked = f"/api/runs/{run}/retry"
    busy = client.post(asked, headers=OURS)
    assert (busy.status_code, busy.json["error"]) == (409, "this run is being read; cancel that first")
    client.post(f"/api/runs/{run}/cancel", headers=OURS)
    assert client.post(asked).status_code == 403
    assert (client.post(asked, headers=OURS).status_code, client.get(f"/api/runs/{run}/progress").json["state"]) == (204, "queued")
    assert client.post("/api/runs/unknown/retry", headers=OURS).status_code == 404


def test_one_file_twice_in_one_drop_is_one_file(client: FlaskClient, library: Library) -> None:
    ids = [send(client, "rank0.json", trace(0)) for _ in range(2)]
    run = client.post("/api/runs", json={"uploads": ids}, headers=OURS).json["run"]
    assert [f.place for f in library.files(run)] == ["rank0.json"]


def test_nothing_half_sent_becomes_a_run(client: FlaskClient, library: Library) -> None:
    half = client.post("/api/uploads", headers={**named("rank1.json", 100_000), **BODY}, data=trace(1)).headers["Location"].rsplit("/", 1)[1]
    answer = client.post("/api/runs", json={"uploads": [send(client, "rank0.json", trace(0)), half]}, headers=OURS)
    assert (answer.status_code, library.runs()) == (409, [])
    assert answer.json["error"].startswith(f"rank1.json: {len(trace(1))} of 100000 bytes have arrived")


@pytest.mark.parametrize("wanted", [{"uploads": []}, {"uploads": ["0" * 32]}, {"uploads": ["../../etc/passwd"]}, {"uploads": [1]}, {"nothing": 1}, []])
def test_a_run_of_nothing_is_refused_in_words(client: FlaskClient, wanted: object) -> None:
    answer = client.post("/api/runs", json=wanted, headers=OURS)
    assert answer.status_code in (400, 404)
    assert answer.json["error"]


def test_a_job_is_told_in_words_and_can_be_cancelled_once(client: FlaskClient) -> None:
    run = client.post("/api/runs", json={"uploads": [send(client, "rank0.json", trace(0))]}, headers=OURS).json["run"]
    told = client.get(f"/api/runs/{run}/progress").json
    assert (told["state"], told["says"], told["results"], told["events_per_s"]) == ("queued", "Waits for its turn", None, None)
    assert [client.post(f"/api/runs/{run}/cancel", headers=OURS).status_code for _ in range(2)] == [204, 409]
    ended = client.get(f"/api/runs/{run}/progress").json
    assert (ended["says"], ended["stage"]) == ("It was cancelled.", "queued"), "it never came to be read"
    assert client.get("/api/runs/unknown/progress").json == {"error": "there is no such run; it may have been deleted"}


def test_a_quota_counts_what_is_stored(library: Library, tmp_path: Path) -> None:
    library.settings = dataclasses.replace(library.settings, quota_bytes_total=len(trace(0)) + 10)
    client = create_server(library.settings, library).test_client()
    client.post("/api/runs", json={"uploads": [send(client, "rank0.json", trace(0))]}, headers=OURS)
    answer = client.post("/api/uploads", headers=named("rank1.json", 11))
    assert (answer.status_code, "10 B of this server's" in answer.json["error"]) == (413, True)


def test_errors_are_words_for_programs_too(client: FlaskClient) -> None:
    assert client.get("/api/nothing").json["error"]
    assert client.get("/healthz").json == {"status": "ok"}
    client.application.config["MAX_CONTENT_LENGTH"] = 10
    big = client.post("/api/runs", data=b"x" * 11, headers=OURS)
    assert (big.status_code, "16.0 MiB" in big.json["error"]) == (413, True)
