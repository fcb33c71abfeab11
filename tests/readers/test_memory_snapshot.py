"""Does a CUDA memory snapshot give every level, also where its records begin late?"""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import kernel, launch, memory, span, write
from tracekit import analyze, schema
from tracekit.errors import InputError
from tracekit.facts.memory import memory as memory_fact
from tracekit.readers import memory_snapshot
from tracekit.readers.memory_replay import replay
from tracekit.reading import Reading
from tracekit.trace import RankTrace

MIB = 1 << 20

FILES = (
    "memsnap_bcrafton/memory_snapshot.pickle.gz",
    "memsnap_nothanmin/memory_snapshot_forward.pickle.gz",
    "memsnap_silmont/mem_snapshot.pickle",
    "memsnap_wedsonlin/medium_128_training_memory_snapshot.pickle.gz",
    "memsnap_wedsonlin/medium_512_training_memory_snapshot.pickle.gz",
)


def segment(address: int, *blocks: tuple[int, str], device: int = 0, **more: Any) -> dict[str, Any]:
    """A segment with its blocks (size, state) one behind the other."""
    rows, at = [], address
    for size, state in blocks:
        rows.append({"address": at, "size": size, "requested_size": size, "state": state, "frames": []})
        at += size
    held = sum(size for size, state in blocks if state == "active_allocated")
    return {"device": device, "address": address, "total_size": at - address, "allocated_size": held, "active_size": held, "blocks": rows, **more}


def record(action: str, addr: int, size: int, at: int | None = None, **more: Any) -> dict[str, Any]:
    """A record; its time in µs."""
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": [], **({} if at is None else {"time_us": at}), **more}


def freed(addr: int, size: int, at: int) -> list[dict[str, Any]]:
    return [record("free_requested", addr, size, at), record("free_completed", addr, size, at)]


def read(*traces: list[dict[str, Any]], segments: list[dict[str, Any]] | None = None, as_json: bool = False, **more: Any) -> RankTrace:
    whole = {**({} if segments is None else {"segments": segments}), "device_traces": list(traces), **more}
    data = json.dumps(whole).encode() if as_json else pickle.dumps(whole)
    assert memory_snapshot.sniff(data[: 64 << 10])
    (trace,) = memory_snapshot.read(data, Path("snapshot"), Reading())
    schema.validate(trace.samples, schema.SAMPLES)
    schema.validate(trace.events, schema.EVENTS)
    return trace


def device(trace: RankTrace, number: int = 0) -> dict[str, Any]:
    table = trace.stated["memory_snapshots"]
    schema.validate(table, schema.MEMORY_SNAPSHOTS)
    row = table[table["device"].eq(number)].iloc[0]
    return {k: None if pd.isna(v) else v for k, v in row.items()}


def codes(trace: RankTrace) -> dict[str, int | None]:
    return {f["code"]: f["count"] for f in trace.findings if f["severity"] != "info"}


@pytest.mark.parametrize("as_json", [False, True])
def test_levels_start_from_what_stood_before(as_json: bool) -> None:
    """64 are freed without ever having been allocated, 100 stand throughout, 32 come and go."""
    trace = read(
        [*freed(9000, 64, 100), record("alloc", 8000, 32, 200), *freed(8000, 32, 300)],
        segments=[segment(4096, (100, "active_allocated")), segment(9000, (64, "inactive")), segment(8000, (32, "inactive"))],
        as_json=as_json,
    )
    got = device(trace)
    assert (got["allocated_before_bytes"], got["allocated_untouched_bytes"], got["allocated_peak_bytes"]) == (164, 100, 164)
    assert (got["allocated_peak_record"], got["allocated_end_bytes"], got["frees_without_alloc"]) == (None, 100, 1)
    assert trace.samples["allocated"].tolist() == [100, 132, 100]
    assert trace.samples["ts"].tolist() == [100_000, 200_000, 300_000]
    assert trace.samples["thread"].isna().all()
    assert codes(trace) == {"memory_freed_before_record": 1}


def test_a_whole_record_is_clean() -> None:
    trace = read(
        [record("segment_alloc", 4096, 2 * MIB, 10), record("alloc", 4096, 512, 11), *freed(4096, 512, 12)],
        segments=[segment(4096, (2 * MIB, "inactive"))],
    )
    got = device(trace)
    assert trace.findings == ()
    assert (got["allocated_before_bytes"], got["allocated_peak_bytes"], got["allocated_peak_record"], got["allocated_peak_ts_ns"]) == (0, 512, 1, 11_000)
    assert (got["reserved_before_bytes"], got["reserved_peak_bytes"], got["reserved_peak_record"]) == (0, 2 * MIB, 0)
    assert trace.samples[["nbytes", "reserved"]].values.tolist() == [[0, 2 * MIB], [512, 2 * MIB], [-512, 2 * MIB]]


def test_a_block_is_in_use_until_its_free_completes() -> None:
    trace = read(
        [record("alloc", 16, 8, 1), record("free_requested", 16, 8, 2), record("alloc", 32, 8, 3), record("free_completed", 16, 8, 4)],
        segments=[segment(16, (16, "inactive"), (8, "active_allocated"))],
    )
    got = device(trace)
    assert (got["allocated_peak_bytes"], got["active_peak_bytes"], got["active_peak_record"]) == (8, 16, 2)
    assert codes(trace) == {}


def test_a_block_that_awaits_its_free_at_the_end_is_in_use_and_not_allocated() -> None:
    trace = read([record("alloc", 16, 8, 1), record("free_requested", 16, 8, 2)], segments=[segment(16, (8, "active_awaiting_free"))])
    assert (device(trace)["allocated_end_bytes"], device(trace)["active_peak_bytes"], codes(trace)) == (0, 8, {})


def test_expandable_segments_grow_and_shrink_by_pages() -> None:
    trace = read(
        [record("segment_map", 0, 4 * MIB, 1), record("segment_map", 4 * MIB, 2 * MIB, 2), record("segment_unmap", 0, 4 * MIB, 3)],
        segments=[segment(4 * MIB, (2 * MIB, "inactive"), is_expandable=True)],
    )
    assert trace.samples["reserved"].tolist() == [4 * MIB, 6 * MIB, 2 * MIB]
    assert (device(trace)["reserved_peak_bytes"], device(trace)["inactive_end_bytes"]) == (6 * MIB, 2 * MIB)


def test_every_device_has_its_own_levels() -> None:
    trace = read(
        [],
        [record("alloc", 16, 8, 5)],
        [record("alloc", 16, 4, 4)],
        segments=[segment(16, (8, "active_allocated"), device=1), segment(16, (4, "active_allocated"), device=2)],
    )
    assert trace.samples[["ts", "device", "allocated"]].values.tolist() == [[4000, 2, 4], [5000, 1, 8]]
    assert (device(trace, 1)["allocated_peak_bytes"], device(trace, 2)["allocated_peak_bytes"]) == (8, 4)


def test_a_device_without_records_stands_with_its_segments() -> None:
    got = device(read([], segments=[segment(16, (8, "active_allocated"), (4, "inactive"))]))
    assert (got["records"], got["allocated_end_bytes"], got["reserved_end_bytes"], got["largest_inactive_end_bytes"]) == (0, 8, 12, 4)


def test_records_without_times_are_in_order_only() -> None:
    trace = read([record("alloc", 16, 8), record("alloc", 32, 4, 7)], segments=[segment(16, (16, "active_allocated"), (4, "active_allocated"))])
    assert (device(trace)["timed"], device(trace)["allocated_peak_ts_ns"], trace.samples["ts"].tolist()) == (False, None, [0, 1])
    assert codes(trace)["memory_records_untimed"] == 1


def test_a_clock_that_steps_back_leaves_the_order_alone() -> None:
    trace = read([record("alloc", 16, 8, 5), *freed(16, 8, 3)], segments=[])
    assert trace.samples[["ts", "allocated"]].values.tolist() == [[5000, 8], [5000, 0]]
    assert codes(trace) == {"memory_records_out_of_order": 2}


def test_what_is_not_understood_is_counted() -> None:
    trace = read(
        [record("alloc", 16, 8, 1), record("defragment", 1, 1, 2), {"action": "alloc", "time_us": 3}, record("oom", 0, 64, 4), record("snapshot", 0, 0, 5)],
        segments=[segment(16, (8, "active_allocated"))],
    )
    assert codes(trace) == {"memory_actions_unknown": 1, "records_dropped": 1}
    assert {f["code"]: f["count"] for f in trace.findings if f["severity"] == "info"} == {"out_of_memory": 1}
    assert (device(trace)["allocated_end_bytes"], device(trace)["failed_allocations"]) == (8, 1)


@pytest.mark.parametrize(
    ("records", "blocks", "says"),
    [
        ([record("alloc", 16, 8, 1), record("alloc", 16, 8, 2)], [(8, "active_allocated")], "1 blocks allocated where one stood"),
        ([record("alloc", 16, 8, 1)], [(8, "inactive")], "disagree by 8 bytes"),
    ],
)
def test_records_that_do_not_lead_to_the_end_are_told(records: list[dict[str, Any]], blocks: list[tuple[int, str]], says: str) -> None:
    trace = read(records, segments=[segment(16, *blocks)])
    assert any(says in f["message"] for f in trace.findings if f["code"] == "snapshot_inconsistent")


def test_without_segments_only_what_was_freed_is_known_to_have_stood() -> None:
    trace = read([*freed(16, 8, 1), record("alloc", 16, 4, 2)])
    assert trace.samples["allocated"].tolist() == [0, 4]
    assert device(trace)["allocated_peak_bytes"] is None and device(trace)["allocated_before_bytes"] is None
    assert set(codes(trace)) == {"snapshot_without_segments", "memory_freed_before_record"}


def test_ranges_that_torch_noted_are_read_once() -> None:
    marks = [{"device": d, "stage": stage, "name": "ProfilerStep#3", "time_us": at} for d in (0, 1) for stage, at in (("START", 10), ("END", 20))]
    trace = read([record("alloc", 16, 8, 12)], segments=[segment(16, (8, "active_allocated"))], external_annotations=marks)
    assert trace.events[["name", "ts", "dur"]].values.tolist() == [["ProfilerStep#3", 10_000, 10_000]]


@pytest.mark.parametrize(
    "data", [pickle.dumps({"segments": 3, "total_size": 1}), b'{"segments": 3, "total_size": 1}', pickle.dumps(["segments", "total_size"])]
)
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="holds no"):
        memory_snapshot.read(data, Path("x"), Reading())


def test_an_empty_snapshot_says_what_to_do() -> None:
    with pytest.raises(InputError, match="_record_memory_history"):
        read([], segments=[])


def test_a_cut_pickle_is_refused_or_read_in_part() -> None:
    records = [record("alloc", 4096 * i, 8, i) for i in range(1, 50)]
    data = pickle.dumps({"segments": [], "device_traces": [records]})
    with pytest.raises(InputError, match="cut"):
        memory_snapshot.read(data[:-400], Path("x"), Reading())
    (trace,) = memory_snapshot.read(data[:-400], Path("x"), Reading(salvage=True))
    assert 0 < len(trace.samples) < 49 and codes(trace)["snapshot_partial"] is None
    assert trace.samples["allocated"].tolist() == [8 * i for i in range(1, len(trace.samples) + 1)]


def test_more_records_than_allowed_are_refused() -> None:
    data = json.dumps({"segments": [], "device_traces": [[record("alloc", i, 8, i) for i in range(9)]]}).encode()
    with pytest.raises(InputError, match="--max-events"):
        memory_snapshot.read(data, Path("x"), Reading(max_events=8))


SMALL = pickle.dumps(
    {
        "segments": [segment(4096, (512, "active_allocated"), (512, "inactive"))],
        "device_traces": [[record("segment_alloc", 4096, 1024, 1), record("alloc", 4096, 512, 2), *freed(4608, 512, 3)]],
        "external_annotations": [{"device": 0, "stage": "START", "name": "x", "time_us": 1}, {"device": 0, "stage": "END", "name": "x", "time_us": 2}],
    }
)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8), st.booleans())
def test_changed_bytes_give_a_trace_or_a_refusal(changes: list[tuple[int, int]], salvage: bool) -> None:
    data = bytearray(SMALL)
    for at, byte in changes:
        data[at] = byte
    try:
        (trace,) = memory_snapshot.read(bytes(data), Path("x"), Reading(salvage=salvage))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        schema.validate(trace.samples, schema.SAMPLES)
        memory_fact(trace)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda c: st.lists(c, max_size=3),
)


@settings(max_examples=60)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(("action", "addr", "size", "time_us"), ANY)), max_size=4), ANY, ANY)
def test_values_of_other_types_are_no_error(records: list[dict[str, Any]], blocks: Any, marks: Any) -> None:
    fine = [record("alloc", 16, 8, 5), {"action": "free_completed", "addr": 1 << 62, "size": 1 << 62, "time_us": 1 << 62}]
    whole = {"device_traces": [fine + records], "segments": [{"device": 0, "total_size": 5, "blocks": blocks}], "external_annotations": marks}
    (trace,) = memory_snapshot.read(json.dumps(whole).encode(), Path("x"), Reading())
    assert len(trace.samples) >= 1
    memory_fact(trace)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2000)), max_size=60),
    st.integers(0, 60),
)
def test_replay_from_the_middle_is_that_of_the_whole(toggles: list[tuple[int, int]], dropped: int) -> None:
    """Each toggle allocates its address, or frees it; then the first records are dropped: the levels of the rest stay."""
    alive: dict[int, int] = {}
    changes, levels = [], []
    for addr, size in toggles:
        change = -alive.pop(addr) if addr in alive else size
        if change > 0:
            alive[addr] = change
        changes.append((addr, change))
        levels.append(sum(alive.values()))
    kept, n = changes[dropped:], min(dropped, len(changes))
    got = replay([a for a, _ in kept], [c for _, c in kept], list(alive), list(alive.values()))
    assert got.after.tolist() == levels[dropped:]
    assert got.before == (levels[n - 1] if n else 0)
    assert (got.repeated, got.vanished, got.unexplained_bytes) == (0, 0, 0)


def beside_a_trace(folder: Path, *events: dict[str, Any]) -> dict[str, Any]:
    """Memory tables of a rank with a trace of two steps and a snapshot of the same time."""
    steps = [span(f"ProfilerStep#{n}", 1000 * n, 1000 * n + 900) for n in (1, 2)]
    work = [launch(1100, 1110, 1), kernel("gemm", 1120, 1200, 1)]
    write(folder / "iteration_5" / "rank0_trace.json", [*steps, *work, *events])
    records = [record("alloc", 16, 64, 900), record("alloc", 32, 8, 1500), *freed(32, 8, 1600), record("alloc", 32, 4, 2950)]
    whole = {"segments": [segment(16, (64, "active_allocated")), segment(32, (4, "active_allocated"), (28, "inactive"))], "device_traces": [records]}
    (folder / "memory_snapshot" / "step_5").mkdir(parents=True)
    (folder / "memory_snapshot" / "step_5" / "0_step_5.pickle").write_bytes(pickle.dumps(whole))
    return analyze(folder, workers=1).to_dict()["metrics"]["memory"]["tables"]


def test_a_snapshot_beside_a_trace_gives_its_memory_step_by_step(tmp_path: Path) -> None:
    tables = beside_a_trace(tmp_path)
    assert [(r["step"], r["allocated_peak_bytes"], r["baseline_source"]) for r in tables["peaks"]] == [
        (None, 72, "snapshot"),
        (1, 72, "snapshot"),
        (2, 64, "snapshot"),
    ]
    assert tables["snapshots"][0]["reserved_end_bytes"] == 96


def test_where_the_trace_has_memory_events_the_snapshot_stands_beside_them(tmp_path: Path) -> None:
    tables = beside_a_trace(tmp_path, memory(1300, 512, 2048, 64, device_type=1))
    whole = [r for r in tables["peaks"] if r["step"] is None]
    assert [(r["allocated_peak_bytes"], r["baseline_source"]) for r in whole] == [(2048, "totals")]
    assert (tables["snapshots"][0]["allocated_peak_bytes"], tables["snapshots"][0]["inactive_end_bytes"]) == (72, 28)


@pytest.mark.parametrize("name", FILES)
def test_real_snapshots_give_the_reference_figures(shared: Path, name: str) -> None:
    path = shared / "traces" / name
    want = json.loads((shared / "traces" / "reference.json").read_text())[name]["devices"]["0"]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert memory_snapshot.sniff(data[: 64 << 10])
    (trace,) = memory_snapshot.read(data, path, Reading())
    got, allocated, active = device(trace), want["allocated_replay_free_requested"], want["active_replay_free_completed"]
    assert (got["records"], got["allocations"], got["frees"]) == (want["n_trace_events"], want["actions"]["alloc"], want["actions"]["free_requested"])
    assert (got["segments"], got["reserved_end_bytes"], got["blocks_end_bytes"]) == (
        want["n_segments"],
        want["final_reserved_bytes"],
        want["final_allocated_bytes_segments"],
    )
    assert got["allocated_end_bytes"] == allocated["end_level_bytes"] == want["final_requested_bytes_segments"]
    assert (got["allocated_before_bytes"], got["allocated_untouched_bytes"]) == (allocated["bytes_alive_before_trace"], allocated["of_which_never_touched"])
    assert (got["allocated_peak_bytes"], got["rounded_peak_bytes"]) == (allocated["peak_bytes"], allocated["peak_if_each_rounded_up_to_512_bytes"])
    assert (got["allocated_peak_record"], got["allocated_peak_ts_ns"]) == (allocated["peak_event_index"], allocated["peak_time_us"] * 1000)
    assert (got["active_peak_bytes"], got["active_peak_record"]) == (active["peak_bytes"], active["peak_event_index"])
    assert (got["reserved_before_bytes"], got["reserved_peak_bytes"]) == (want["reserved_before_trace_bytes"], want["peak_reserved_bytes"])
    assert (-1 if got["reserved_peak_record"] is None else got["reserved_peak_record"]) == want["peak_reserved_event_index"]
    assert (got["first_ts_ns"], got["last_ts_ns"]) == (want["first_time_us"] * 1000, want["last_time_us"] * 1000)
    assert trace.samples["allocated"].max() == allocated["peak_bytes"]
    # from 0 instead of from what stood before: what a tool shows that knows the records only
    assert np.cumsum(trace.samples["nbytes"]).max() <= allocated["peak_counting_only_allocations_in_trace_bytes"]
    assert "snapshot_inconsistent" not in codes(trace)
    freed_before = [f["message"] for f in trace.findings if f["code"] == "memory_freed_before_record"]
    assert bool(freed_before) == bool(allocated["of_which_freed_in_trace"])
    assert all(f"({allocated['of_which_freed_in_trace']} bytes)" in says for says in freed_before)
