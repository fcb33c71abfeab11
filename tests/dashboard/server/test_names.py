"""A sender's path is a label; where the file stands is ours to say."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from dashboard.uploads.names import label_of, places
from dashboard.uploads.spool import Spool
from tests.dashboard.server.conftest import named
from tracekit.errors import InputError


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../../etc/cron.d/x",
        "a/../../x",
        "a/.. /x",
        "..\\..\\x",
        "C:\\x",
        "C:x",
        "\\\\host\\x",
        "a\0.json",
        "a\nb.json",
        ".ssh/authorized_keys",
        "rank0\u202egnp.json",
        "\u200b..\u200b/x",
        "x" * 300,
        "/".join("abcdefghijklmnop"),
        "folder/",
    ],
)
def test_paths_that_climb_hide_or_deceive_are_refused(client: FlaskClient, path: str) -> None:
    answer = client.post("/api/uploads", headers=named(path, 5))
    assert (answer.status_code, bool(answer.json["error"].isprintable())) == (400, True)


def test_the_server_names_the_file_itself(client: FlaskClient, tmp_path: Path) -> None:
    assert client.post("/api/uploads", headers=named("run/rank00000/trace.json", 5)).status_code == 201
    assert all(len(p.stem) == 32 and p.suffix in (".json", ".part") for p in (tmp_path / "incoming").iterdir())


@pytest.mark.parametrize("id", ["..%2f..%2fetc%2fpasswd", "../../x", "0" * 31, "G" * 32, "0" * 32 + ".part"])
def test_an_id_is_a_number_and_never_a_path(client: FlaskClient, id: str) -> None:
    assert client.patch(f"/api/uploads/{id}", headers={"X-Tracekit": "1", "Tus-Resumable": "1.0.0"}).status_code in (404, 405, 415)


def test_a_link_in_place_of_an_upload_is_not_followed(spool: Spool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("keep out")
    made = spool.create(100, "rank0.json", "local")
    spool.part(made.id).unlink()
    spool.part(made.id).symlink_to(secret)
    with pytest.raises(Exception, match="no such upload"):
        spool.append(made.id, 8, io.BytesIO(b"x"))
    assert secret.read_text() == "keep out"


def test_ranks_and_captures_keep_their_folders() -> None:
    labels = ["run/run.json", "run/rank00000/capture000/trace.json.gz", "run/rank00001/capture000/trace.json.gz"]
    assert [str(p) for p in places(map(PurePosixPath, labels))] == labels


def test_a_name_that_grows_when_it_is_made_harmless_fits_a_folder_still(tmp_path: Path) -> None:
    label = label_of("\ufdfa" * 60 + ".rank3.json.gz")
    place = places([label, label_of("x/" + "\ufdfa" * 60 + ".json")])[0]
    assert (len(place.name), place.name.endswith(".rank3.json.gz")) == (200, True)
    (tmp_path / place).write_text("")


@given(st.lists(st.text(min_size=1, max_size=20), max_size=8))
def test_every_place_is_within_the_folder_and_no_two_are_one(paths: list[str]) -> None:
    labels = []
    for path in paths:
        try:
            labels.append(label_of(path))
        except InputError:
            continue
    made = places(labels)
    assert len({str(p).lower() for p in made}) == len(labels)
    for place in made:
        assert not place.is_absolute() and str(place).isascii()
        assert all(part not in ("", ".", "..") and not part.startswith((".", "-")) for part in place.parts)


def test_thousands_of_names_that_are_one_when_harmless_are_told_apart_at_once() -> None:
    made = places(PurePosixPath(f"{chr(0x4E00 + n)}.json") for n in range(20_000))  # with a search from the start for each, minutes
    assert [str(made[n]) for n in (0, 1, 19_999)] == ["_.json", "_-2.json", "_-20000.json"]
