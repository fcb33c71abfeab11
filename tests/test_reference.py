"""Figures of public traces of many makes and ages equal a plain exact reading of the same files.

Not compared, for the reason given: the union of an MTIA's ``other_device_events`` (the reference counts its waiting as well,
see ``tests/readers/test_chrome_traces.py``), and what an AIU computes, of which the reference only pairs begins with ends.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.analyses import analysis_of, unchanging
from tests.conftest import REPOSITORY
from tracekit import readers
from tracekit.facts.busy import busy
from tracekit.passes.classify import classify
from tracekit.readers import kineto
from tracekit.trace import RankTrace
from tracekit.vocabulary import STEP, Kind

TRACES = REPOSITORY.parent / "shared" / "traces"
EQUAL = {
    "busy_ns": "union_all_gpu_ns",
    "compute_ns": "union_compute_ns",
    "comm_ns": "union_comm_ns",
    "overlap_ns": "overlap_comm_compute_ns",
    "exposed_comm_ns": "exposed_comm_ns",
    "memcpy_ns": "union_memcpy_memset_ns",
    "span_ns": "span_ns",
    "idle_ns": "idle_ns",
}
#: Packed bytes up to which a file goes the whole way to the report as well.
_WHOLE_WAY = 60_000


def references() -> dict[str, Any]:
    path = TRACES / "reference.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return {name: entry for name, entry in known.items() if entry.get("kind") == "chrome_trace"}


ALL = references()
#: Those that tests of single figures read through to the report.
REFERENCES = {name: entry for name, entry in ALL.items() if "!" not in name and (TRACES / name).stat().st_size < 800_000}
SMALL = [name for name in REFERENCES if (TRACES / name).stat().st_size < _WHOLE_WAY]


@cache
def report_of(name: str) -> dict[str, Any]:
    """The report of one file, read once however many tests look at it; it cannot be changed."""
    report: dict[str, Any] = unchanging(analysis_of(TRACES / name).to_dict())
    return report


def content(name: str) -> bytes:
    """The text of a reference, also of one inside an archive."""
    path, _, member = name.partition("!")
    if member:
        with tarfile.open(TRACES / path) as archive:
            stream = archive.extractfile(member)
            assert stream is not None
            return stream.read()
    data = (TRACES / path).read_bytes()
    return gzip.decompress(data) if path.endswith(".gz") else data


def on_devices(trace: RankTrace) -> RankTrace:
    """The device work alone: what the figures of a whole trace are made of."""
    return replace(trace, events=trace.events[trace.events["device"].notna()].reset_index(drop=True))


def steps(trace: RankTrace, base: int) -> list[dict[str, int]]:
    """The ProfilerStep ranges of the host in order of start, on the trace's own clock."""
    events = trace.events[
        trace.events["kind"].isin([Kind.RANGE, Kind.OPERATOR]) & trace.events["name"].isin([c for c in trace.events["name"].cat.categories if STEP.match(c)])
    ]
    events = events.sort_values("ts")
    return [
        {"id": int(STEP.match(name)["step"]), "start_ns": int(ts) - base, "dur_ns": int(dur)}  # type: ignore[index]
        for name, ts, dur in zip(events["name"].astype(str), events["ts"], events["dur"], strict=True)
    ]


def test_references_are_here(shared: Path) -> None:
    assert len(ALL) > 45 and len(SMALL) > 20, shared


@pytest.mark.parametrize("name", ALL)
def test_what_is_read_of_public_traces(name: str) -> None:
    want, data = ALL[name], content(name)
    reader = readers.reader_for(data[: 64 << 10])
    assert reader is not None and reader.read is kineto.read
    (trace,) = reader.read(data, Path(name), readers.DEFAULT)
    trace = classify(trace)
    events, base = trace.events, want["baseTimeNanoseconds"] or 0
    pairs = want.get("BE", {}).get("stack_pairs_in_file_order", 0)
    assert len(events) == want["n_X"] + pairs
    if not want["n_X"]:
        assert events["dur"].sum() == want["BE"]["sum_dur_ns"]
    assert (trace.meta.rank, trace.meta.world_size) == (want["rank"], want["world_size"])
    assert steps(trace, base) == [{key: step[key] for key in ("id", "start_ns", "dur_ns")} for step in want["profiler_steps"]]
    of_kind = {kind: int((events["device"].notna() & events["kind"].eq(kind)).sum()) for kind in Kind}
    if want["n_gpu_work"]:
        assert of_kind[Kind.COMPUTE] + of_kind[Kind.COMMUNICATION] == want["n_kernels"] and of_kind[Kind.COMMUNICATION] == want["n_comm_kernels"]
        assert (of_kind[Kind.MEMCPY], of_kind[Kind.MEMSET]) == (want["n_memcpy"], want["n_memset"])
    frame = busy(on_devices(trace))["busy"]
    rows = {row["device"]: row for row in frame[frame["step"].isna()].to_dict("records")}
    for device, figures in want["devices"].items():
        if figures["n_kernels"] + figures["n_memcpy"] + figures["n_memset"]:
            row = rows[int(device)]
            assert {mine: row[mine] for mine in EQUAL} == {mine: figures[theirs] for mine, theirs in EQUAL.items()}


@pytest.mark.parametrize("name", SMALL)
def test_busy_time_of_public_traces(name: str) -> None:
    rows = {r["device"]: r for r in report_of(name)["metrics"]["breakdown"]["tables"].get("devices", []) if r["step"] is None}
    for device, want in REFERENCES[name]["devices"].items():
        if want["n_kernels"] + want["n_memcpy"] + want["n_memset"]:
            assert {mine: rows[int(device)][mine] for mine in EQUAL} == {mine: want[theirs] for mine, theirs in EQUAL.items()}
