"""However traces are packed they open alike; what is packed to do harm is refused in one line."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.builders import document, kernel, launch, span
from tracekit import readers
from tracekit.errors import InputError
from tracekit.ingest import ingest
from tracekit.reading import Reading

STEP = [span("ProfilerStep#1", 0, 20), launch(1, 2, 1), kernel("gemm", 3, 9, 1)]


def text(rank: int = 0) -> bytes:
    return json.dumps(document(STEP, rank=rank, world=2)).encode()


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def placed(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_packing_is_found_by_content_and_not_by_name(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    assert readers.read(placed(tmp_path, "trace", pack(text())))[0].events["name"].tolist()[-1] == "gemm"


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_several_packed_members_are_one_file(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = text()
    assert len(readers.read(placed(tmp_path, "trace", pack(data[:100]) + pack(data[100:])))[0].events) == 3


@pytest.mark.parametrize("pack", [zipped, tarred, lambda m: tarred(m, "w"), lambda m: zstd(tarred(m, "w"))], ids=["zip", "tar.gz", "tar", "tar.zst"])
def test_an_archive_of_ranks_is_a_folder_of_ranks(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    members = {"job/rank0.json": text(0), "job/rank1.json.gz": gzip.compress(text(1)), "job/readme.txt": b"hello", "__MACOSX/._rank0.json": b"x"}
    got = ingest([placed(tmp_path, "job", pack(members))])
    assert list(got.ranks) == [(0, 0), (1, 0)]
    assert [f["count"] for f in got.findings] == [2]
    assert str(got.ranks[1, 0].meta.files[0]).endswith("job!/job/rank1.json.gz")


def test_a_run_directory_in_an_archive_keeps_what_its_run_json_says(tmp_path: Path) -> None:
    members = {"run/run.json": b'{"mesh": {"tp": 2}}', "run/rank00000/capture000/trace.json": text(0)}
    assert ingest([placed(tmp_path, "run.tgz", tarred(members))]).ranks[0, 0].meta.run == {"mesh": {"tp": 2}}


BOMB = bytes(80 << 20)


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lambda d: zipped({"a.json": d}), lambda d: tarred({"a.json": d})], ids=["gzip", "zstd", "zip", "tar"])
def test_bombs_are_stopped_by_their_ratio(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InputError, match=r"more than 100 times its .* raise --max-ratio"):
        ingest([placed(tmp_path, "bomb", pack(BOMB))])


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd, lambda d: zipped({"a.json": d})], ids=["plain", "gzip", "zstd", "zip"])
def test_no_file_is_larger_than_the_cap(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InputError, match=r"more than 100 bytes; raise --max-bytes"):
        ingest([placed(tmp_path, "trace", pack(text()))], reading=Reading(max_bytes=100))


def test_an_archive_has_at_most_so_many_members(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than 2 entries; raise --max-members"):
        ingest([placed(tmp_path, "a.zip", zipped({f"{i}.json": b"{}" for i in range(3)}))], reading=Reading(max_members=2))


@pytest.mark.parametrize("name", ["../../evil.json", "/etc/evil.json", "a/../../evil.json", "..\\evil.json"])
@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
def test_names_that_climb_out_are_refused(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes], name: str) -> None:
    with pytest.raises(InputError, match="climbs out of the archive"):
        ingest([placed(tmp_path, "a", pack({name: text()}))])
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_unpacks_all_at_once_is_not_unpacked(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("rank0.json", text())
    with pytest.raises(InputError, match=f"'rank0.json' is packed by method {method}, which unpacks without a limit; .* zip it with deflate"):
        ingest([tmp_path / "a.zip"])


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_name_as_large_as_a_file_is_not_read(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("long")
    info.type, info.size = kind, 1 << 20
    with pytest.raises(InputError, match=r"1048576 bytes tell of one member"):
        ingest([placed(tmp_path, "a.tgz", gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))])


def test_the_map_of_a_members_holes_is_not_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("rank0.json")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "rank0.json", "GNU.sparse.realsize": "9"}
        body = b"1\n0\n1\n".ljust(512, b"\0")
        info.size = len(body)
        archive.addfile(info, io.BytesIO(body))
    with pytest.raises(InputError, match="stored with holes"):
        ingest([placed(tmp_path, "a.tgz", out.getvalue())])


def test_what_is_passed_over_in_a_tar_counts_as_well(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"more than 100 times its .* raise --max-ratio"):
        ingest([placed(tmp_path, "a.tgz", tarred({"__MACOSX/x": BOMB, "rank0.json": text()}))])
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for n in range(3):
            folder = tarfile.TarInfo(f"{n}")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
    with pytest.raises(InputError, match="more than 2 entries; raise --max-members"):
        ingest([placed(tmp_path, "b.tar", out.getvalue())], reading=Reading(max_members=2))


def test_links_in_a_tar_are_never_followed(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        link = tarfile.TarInfo("rank0.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(InputError, match=r"this archive holds no trace, only .*rank0\.json"):
        ingest([placed(tmp_path, "a.tar", out.getvalue())])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(text())[:-20], "the gzip stream ends early"),
        (zstd(text())[:-20], "the zstd stream ends early"),
        (zstd(text())[:30] + b"rubbish" + zstd(text())[37:], "the zstd stream is damaged"),
        (gzip.compress(gzip.compress(text())), "compressed twice"),
        (zipped({"rank0.json": text()})[:-60], "cut or damaged"),
        (zipped({"ü.json": text()}).replace("ü".encode(), b"\xff\xff"), "cut or damaged"),
        (tarred({"rank0.json": text() * 9})[:-60], "cut or damaged"),
    ],
)
def test_damaged_packing_is_named(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        ingest([placed(tmp_path, "rank0", data)])
    assert "\n" not in str(refusal.value)


def test_a_child_process_keeps_to_its_memory(tmp_path: Path) -> None:
    path = placed(tmp_path, "rank0.json", text())
    assert list(ingest([path], reading=Reading(max_memory=4 << 30)).ranks) == [(0, 0)]
    large = placed(tmp_path, "large.json", b'{"traceEvents": [' + b",".join([json.dumps(e).encode() for e in STEP] * 400_000) + b"]}")
    with pytest.raises(InputError, match=r"large\.json: .* raise --max-memory"):
        ingest([large], reading=Reading(max_memory=700 << 20))


def test_one_refused_file_leaves_the_others_where_that_is_asked_for(tmp_path: Path) -> None:
    placed(tmp_path, "rank0.json", text())
    placed(tmp_path, "rank1.json", text(1)[:-30])
    with pytest.raises(InputError, match=r"rank1\.json: truncated"):
        ingest([tmp_path])
    got = ingest([tmp_path], reading=Reading(keep_going=True))
    assert list(got.ranks) == [(0, 0)]
    assert [(f["code"], f["severity"], Path(f["file"]).name) for f in got.findings] == [("file_refused", "error", "rank1.json")]
