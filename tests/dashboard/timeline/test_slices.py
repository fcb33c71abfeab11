"""A window as a file: tracekit reads it back as it was, and Perfetto's protobuf opens and closes every slice on its own track."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.dashboard.timeline.drawn import BASE, clock, rank, stored
from tracekit import pyramid, readers
from tracekit.cli import main
from tracekit.errors import UsageError
from tracekit.passes import run_passes
from tracekit.timeline import export as exports
from tracekit.timeline import selection
from tracekit.timeline.asked import ranks_in, window_in
from tracekit.timeline.export import export
from tracekit.timeline.files import RankTimeline
from tracekit.timeline.run import Run, open_run
from tracekit.timeline.selection import select

KEPT = ["ts", "dur", "kind", "name", "device", "stream", "correlation", "external_id", "sequence", "collective", "group", "group_ranks", "seq", "dtype"]
KEPT += ["layer", "phase", "step", "recompute"]


def rows(events: pd.DataFrame) -> list[tuple[str, ...]]:
    texts = events[KEPT].astype(object).where(events[KEPT].notna(), None).astype(str)
    return sorted(texts.itertuples(index=False, name=None))


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field, value) of a protobuf message."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        number, at = varint(at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + number]
            at += number
        else:
            yield key >> 3, number


def protobuf(data: bytes) -> tuple[dict[int, str], list[tuple[int, int, int, str]]]:
    """(name of each track, (time, type, track, name) of each begin and end) as Perfetto's own message definitions name the fields."""
    tracks, names, out = {}, {}, []
    for _, packet in fields(data):
        parts = dict(fields(packet))
        if 60 in parts:
            about = dict(fields(parts[60]))
            tracks[about[1]] = (about.get(2) or dict(fields(about[3]))[6]).decode()
        for which, interned in fields(parts.get(12, b"")):
            if which == 2:
                entry = dict(fields(interned))
                names[parts[10], entry[1]] = entry[2].decode()
        if 11 in parts:
            event = dict(fields(parts[11]))
            out.append((parts[8], event[9], event[11], names[parts[10], event[10]] if 10 in event else ""))
    return tracks, out


@pytest.mark.parametrize("sample", ["3d/rank00001/capture000/trace.json.gz", "recompute-full/rank00000/capture000/trace.json.gz"])
def test_a_whole_rank_comes_back_as_it_was(sample: str, samples: Path, tmp_path: Path) -> None:
    trace = run_passes(readers.read(samples / sample)[0])
    run = stored(tmp_path, trace)
    file = tmp_path / "slice.json.gz"
    file.write_bytes(export(run, 0, run.extent_ns + 1))
    back = run_passes(readers.read(file)[0])
    assert rows(back.events) == rows(trace.events)
    assert back.meta.rank == trace.meta.rank and not [f for f in back.findings if f["severity"] == "error"]


def test_a_forged_gpu_rank_comes_back_as_it_was(shared: Path, tmp_path: Path) -> None:
    trace = run_passes(readers.read(shared / "forged" / "tp4" / "rank1.json.gz")[0])
    run = stored(tmp_path, trace)
    file = tmp_path / "slice.json.gz"
    file.write_bytes(export(run, 0, run.extent_ns + 1))
    assert rows(run_passes(readers.read(file)[0]).events) == rows(trace.events)


@pytest.fixture
def skewed(tmp_path: Path) -> Run:
    """Overlapping kernels on one stream, and a rank whose clock is 500 ns ahead."""
    mine = [("a", 0, 100, 7), ("b", 50, 150, 7), ("c", 150, 160, 7), ("outer", 0, 90, "cpu"), ("inner", 10, 90, "cpu"), ("instant", 90, 90, "cpu")]
    return stored(tmp_path / "run", rank(mine), rank([("d", 600, 700, 7)], 1), clocks=clock({0: 0, 1: 500}))


def test_a_window_takes_whole_slices_of_the_ranks_on_one_clock(skewed: Run) -> None:
    parts = select(skewed, 100, 151)
    assert {p.member.rank: dict(zip(p.events["name"], (p.start_ns - BASE).tolist(), strict=True)) for p in parts} == {0: {"b": 50, "c": 150}, 1: {"d": 100}}
    assert [p.member.rank for p in select(skewed, 0, 50, [0, 9])] == [0]


def test_slices_that_overlap_have_threads_of_their_own_in_json(skewed: Run) -> None:
    document = json.loads(gzip.decompress(export(skewed, 0, 1_000)))
    threads: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
    for e in document["traceEvents"]:
        if e["ph"] == "X":
            threads[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
    assert sorted([name for *_, name in spans] for spans in threads.values()) == [["a", "c"], ["b"], ["d"], ["outer", "inner", "instant"]]


@pytest.mark.parametrize("ranks", [2, 1_001])
def test_no_two_ranks_or_captures_share_a_process(ranks: int, tmp_path: Path) -> None:
    folders = {(r, c): pyramid.build(rank([(f"r{r}c{c}", 10 * c, 10 * c + 5, 7)], r), tmp_path / f"{r}-{c}") for r in (0, ranks - 1) for c in (0, 1)}
    events = json.loads(gzip.decompress(export(open_run(folders), 0, 1_000)))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    slices = [(names[e["pid"]], e["name"]) for e in events if e["ph"] == "X"]
    last = ranks - 1
    assert sorted(slices) == [
        ("rank 0", "r0c0"), ("rank 0, capture 1", "r0c1"), (f"rank {last}", f"r{last}c0"), (f"rank {last}, capture 1", f"r{last}c1"),
    ]  # fmt: skip


def test_every_slice_opens_and_closes_like_brackets_in_protobuf(skewed: Run) -> None:
    tracks, events = protobuf(export(skewed, 0, 1_000, form="pftrace"))
    assert sorted(tracks.values()) == ["GPU 0 · stream 7", "GPU 0 · stream 7", "GPU 0 · stream 7 (2)", "main", "rank 0", "rank 1"]
    open_ones: dict[int, list[tuple[int, str]]] = defaultdict(list)
    closed = []
    for at, kind, track, name in events:
        if kind == 1:
            open_ones[track].append((at, name))
        else:
            begun, what = open_ones[track].pop()
            closed.append((what, begun - BASE, at - BASE))
    assert not any(open_ones.values())
    wanted = [("a", 0, 100), ("b", 50, 150), ("c", 150, 160), ("d", 100, 200), ("inner", 10, 90), ("instant", 90, 90), ("outer", 0, 90)]
    assert sorted(closed) == wanted


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    names = ['"}],"x":[{"', "\x00\x1b[31m", "</script>", "\u202e", "ﬀ\U0001f600"]
    run = stored(tmp_path, rank([(name, 10 * i, 10 * i + 5, 7) for i, name in enumerate(names)]))
    document = json.loads(gzip.decompress(export(run, 0, 1_000)))
    shown = [name.replace("\0", "\0") for name in names]
    assert [e["name"] for e in document["traceEvents"] if e["ph"] == "X"] == shown
    assert [name for _, kind, _, name in protobuf(export(run, 0, 1_000, form="pftrace"))[1] if kind == 1] == shown


def test_an_export_that_would_be_too_large_says_what_to_do(skewed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no slice reaches"):
        export(skewed, 5_000, 6_000)
    with pytest.raises(UsageError, match="cannot be written"):
        export(skewed, 0, 10, form="exe")
    monkeypatch.setattr(exports, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="zoom in, or choose fewer ranks"):
        export(skewed, 0, 1_000, form="pftrace")
    monkeypatch.setattr(RankTimeline, "events", None)  # nothing is read of what is too much
    with pytest.raises(UsageError, match="more than 3 slices"):
        selection.select(skewed, 0, 1_000, most=3)


@pytest.mark.parametrize("text", ["1.2s", "5ms:1ms", "a:b", "1:2", "-1s:2s", "1e3s:2s", ""])
def test_a_window_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        window_in(text)


@pytest.mark.parametrize("text", ["x", "3-1", "0-999999999", "1,,2", "1;2", "0" * 20, ",".join(f"{n}00000-{n}99998" for n in range(1, 8))])
def test_ranks_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 0-3,8"):
        ranks_in(text)
    assert ranks_in(" 0-2, 8 ") == {0, 1, 2, 8} and ranks_in("") is None


def test_the_command_writes_what_the_page_downloads(samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "step.json.gz"
    assert main(["export", str(samples / "tp"), "--step", "2", "--ranks", "1", "--out", str(out), "--workers", "1"]) == 0
    trace = readers.read(out)[0]
    assert trace.meta.rank == 1 and "ProfilerStep#2" in set(trace.events["name"])
    assert main(["export", str(samples / "tp"), "--window", "0s:1s", "--ranks", "7", "--out", str(out), "--workers", "1"]) == 2
    assert "there is none of these ranks; there are 0, 1" in capsys.readouterr().err
    assert main(["export", str(samples / "tp"), "--out", str(tmp_path / "slice.txt")]) == 2
    assert "end it with .json.gz or .pftrace" in capsys.readouterr().err
