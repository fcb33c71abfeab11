"""Bytes arrive in pieces, in order, once; and what cannot become a trace is told so at once."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from dashboard.uploads.room import MOST_FILES, Limits
from dashboard.uploads.spool import Refused, Spool, Underway
from tests.dashboard.server.conftest import BODY, OURS, TRACE, named, serving

Begin = Callable[..., TestResponse]


def patch(client: FlaskClient, url: str, offset: int, data: bytes) -> TestResponse:
    return client.patch(url, headers={**BODY, "Upload-Offset": str(offset)}, data=data)


def test_a_file_arrives_in_pieces(client: FlaskClient, begin: Begin, tmp_path: Path) -> None:
    url = begin().headers["Location"]
    assert [patch(client, url, 0, TRACE[:100_000]).status_code, patch(client, url, 100_000, TRACE[100_000:]).status_code] == [204, 204]
    head = client.head(url, headers=OURS)
    assert (head.headers["Upload-Offset"], head.headers["Upload-Length"], head.headers["Cache-Control"]) == (str(len(TRACE)), str(len(TRACE)), "no-store")
    spool, id = Spool(tmp_path / "incoming"), url.rsplit("/", 1)[1]
    assert spool.part(id).read_bytes() == TRACE
    assert spool.sha256(id) == hashlib.sha256(TRACE).hexdigest()


def test_the_first_bytes_come_along_with_the_announcement(client: FlaskClient) -> None:
    answer = client.post("/api/uploads", headers={**named("rank0.json", len(TRACE)), **BODY}, data=TRACE[:65_536])
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (201, "65536")


def test_a_wrong_offset_is_told_the_right_one(client: FlaskClient, begin: Begin) -> None:
    url = begin().headers["Location"]
    patch(client, url, 0, TRACE[:100])
    for wrong in (0, 99, 101):
        answer = patch(client, url, wrong, b"x")
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (409, "100")


def test_more_than_was_announced_is_refused_and_nothing_of_it_kept_past_the_end(client: FlaskClient, begin: Begin) -> None:
    url = begin(size=10).headers["Location"]
    assert patch(client, url, 0, TRACE[:11]).status_code == 413
    assert client.head(url, headers=OURS).headers["Upload-Offset"] == "0"


def test_a_cancelled_upload_is_gone(client: FlaskClient, begin: Begin, tmp_path: Path) -> None:
    url = begin().headers["Location"]
    assert client.delete(url, headers=OURS).status_code == 204
    assert [client.head(url, headers=OURS).status_code, patch(client, url, 0, b"x").status_code] == [404, 404]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_server_says_what_it_speaks(client: FlaskClient) -> None:
    answer = client.options("/api/uploads")
    assert (answer.status_code, answer.headers["Tus-Version"], answer.headers["Tus-Extension"]) == (204, "1.0.0", "creation,creation-with-upload,termination")
    other = client.head("/api/uploads/" + "0" * 32, headers={"Tus-Resumable": "0.2.2"})
    assert (other.status_code, other.headers["Tus-Version"]) == (412, "1.0.0")


def test_another_process_goes_on_where_the_first_was_killed(client: FlaskClient, begin: Begin, tmp_path: Path) -> None:
    url = begin().headers["Location"]
    patch(client, url, 0, TRACE[:70_000])
    later = serving(tmp_path / "incoming").test_client()
    assert later.head(url, headers=OURS).headers["Upload-Offset"] == "70000"
    assert patch(later, url, 70_000, TRACE[70_000:]).status_code == 204
    assert Spool(tmp_path / "incoming").sha256(url.rsplit("/", 1)[1]) == hashlib.sha256(TRACE).hexdigest()


def test_two_senders_of_one_upload_never_mix(spool: Spool) -> None:
    made = spool.create(10, "rank0.json", "local")
    with spool._alone(made.id), pytest.raises(Refused, match="another sender"):
        spool.append(made.id, 0, io.BytesIO(b"x"))


def test_what_nobody_finishes_is_cleared_away_when_the_next_one_begins(tmp_path: Path) -> None:
    old = Spool(tmp_path).create(10, "old.json", "local")
    os.utime(Spool(tmp_path).part(old.id), (0, 0))
    new = Spool(tmp_path, idle_s=3600).create(10, "new.json", "local")
    assert [a.announced.id for a in Spool(tmp_path).all()] == [new.id]
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".part"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.safetensors", b"\x40\0\0\0\0\0\0\0{" + b" " * 64, "safetensors checkpoint"),
        ("notes.txt", b"hello there\n", "a text file that begins"),
        ("weights.pkl", pickle.dumps({"a": [1]}), "it was not unpickled"),
        ("page.json", b"<!DOCTYPE html><html>", "an HTML page"),
        ("twice.json.gz", gzip.compress(b"MZ program", mtime=0), "a Windows program"),
    ],
)
def test_what_is_no_trace_is_refused_by_its_first_bytes(client: FlaskClient, tmp_path: Path, name: str, content: bytes, says: str) -> None:
    answer = client.post("/api/uploads", headers={**named(name, len(content)), **BODY}, data=content)
    assert answer.status_code == 415
    assert says in answer.json["error"] and name in answer.json["error"]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_an_empty_file_is_refused_by_its_size(begin: Begin) -> None:
    assert (begin(size=0).status_code, begin(size=0).json["error"]) == (415, "rank0.json: the file is empty (0 bytes); record or copy it again")


def test_files_of_a_run_directory_are_taken_by_name(client: FlaskClient) -> None:
    assert client.post("/api/uploads", headers={**named("run/run.json", 2), **BODY}, data=b"{}").status_code == 201


@pytest.mark.parametrize(
    ("limits", "stored", "status", "says"),
    [
        (Limits(file_bytes=100), 0, 413, "more than the 100 B that one file may have"),
        (Limits(user_bytes=1000), 600, 413, "400 B of 1,000 B are left"),
        (Limits(total_bytes=1000), 600, 413, "400 B of this server's 1,000 B are left"),
        (Limits(keep_free_bytes=1 << 60), 0, 507, "the server's disk has room for 0 B"),
        (Limits(open_uploads=0), 0, 429, "finish or cancel some"),
    ],
)
def test_there_must_be_room_before_a_byte_is_taken(tmp_path: Path, limits: Limits, stored: int, status: int, says: str) -> None:
    client = serving(tmp_path, limits=limits, stored=stored).test_client()
    answer = client.post("/api/uploads", headers=named("rank0.json", 500))
    assert answer.status_code == status
    assert says in answer.json["error"] and "\n" not in answer.json["error"]


def test_open_uploads_count_against_the_quota_as_if_they_were_here(tmp_path: Path) -> None:
    client = serving(tmp_path, limits=Limits(user_bytes=1000)).test_client()
    first, second = (client.post("/api/uploads", headers=named("rank0.json", 600)) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 413)
    assert "400 B of 1,000 B are left, 600 B are held by uploads on their way" in second.json["error"]


def test_a_disk_that_takes_nothing_is_said_and_nothing_is_left_of_it(client: FlaskClient, begin: Begin, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = begin()
    assert (answer.status_code, answer.json["error"]) == (507, "the disk does not take it (No space left on device); go on later")
    assert list(spool.folder.iterdir()) == []


def test_a_whole_run_may_be_on_its_way() -> None:
    assert Limits().open_uploads >= MOST_FILES >= 3 * 4096


def test_what_is_on_its_way_is_counted_without_a_look_at_the_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = spool.create(10, "a.json", "me")
    assert (spool.underway("me"), spool.underway("you")) == (Underway(1, 10, 0), Underway())
    monkeypatch.setattr(Spool, "all", lambda *_: pytest.fail("the folder was listed"))
    gone = spool.create(20, "b.json", "you")
    spool.append(kept.id, 0, io.BytesIO(b"1234"))
    assert (spool.underway(), spool.underway("you")) == (Underway(2, 30, 4), Underway(1, 20, 0))
    spool.delete(gone.id)
    assert (spool.underway(), spool.underway("you")) == (Underway(1, 10, 4), Underway())


def test_an_upload_that_is_cancelled_while_it_is_written_counts_no_more(spool: Spool) -> None:
    made = spool.create(10, "a.json", "me")

    class Cancelling(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            spool.delete(made.id)
            return super().read(size)

    spool.append(made.id, 0, Cancelling(b"1234"))
    assert spool.underway() == spool.underway("me") == Underway()


def test_nonsense_is_answered_in_words(client: FlaskClient) -> None:
    for headers in (
        {"Upload-Length": "-1"},
        {"Upload-Length": "٣"},
        {},
        {"Upload-Length": "9" * 30},
        {"Upload-Length": "5", "Upload-Metadata": "filename %%%"},
    ):
        answer = client.post("/api/uploads", headers={**OURS, **headers})
        assert (answer.status_code, bool(answer.json["error"])) == (400, True)
