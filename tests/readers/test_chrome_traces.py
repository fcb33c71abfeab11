"""Every era and make of Chrome trace: Kineto's old and new categories, torch before Kineto, other accelerators, other writers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import kernel, op
from tracekit import readers
from tracekit.errors import InputError
from tracekit.readers import kineto
from tracekit.readers.chrome_kinds import kind_of
from tracekit.reading import Reading
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind
from tracekit.work import devices, work_masks


def read(events: Any, **top: Any) -> RankTrace:
    """The trace of a bare list of events, or of an object with more than that."""
    whole = {**top, "traceEvents": events} if top else events
    return kineto.read(json.dumps(whole).encode(), Path("rank0.json"))[0]


def codes(trace: RankTrace) -> list[tuple[str, int | None]]:
    return [(f["code"], f["count"]) for f in trace.findings]


def rows(trace: RankTrace, *columns: str) -> list[list[Any]]:
    """Rows of some columns, null as None."""
    frame = trace.events[list(columns)].astype(object)
    return [[None if v is None or v != v else v for v in row] for row in frame.where(frame.notna(), None).to_numpy().tolist()]


def slice_(**more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "a", "pid": 0, "tid": 7, "ts": 1, "dur": 2, **more}


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        *[(c, Kind.OPERATOR) for c in ("cpu_op", "Operator")],
        *[(c, Kind.LAUNCH) for c in ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "hpu_op")],
        *[(c, Kind.COMPUTE) for c in ("kernel", "Kernel", "mtia_ccp_events")],
        *[(c, Kind.MEMCPY) for c in ("gpu_memcpy", "Memcpy", "mlu_memcpy")],
        *[(c, Kind.MEMSET) for c in ("gpu_memset", "Memset", "GCU_MEMSET")],
        *[(c, Kind.OTHER) for c in ("cuda_sync", "xpu_sync", "overhead", "Trace", "cuda_event")],
        ("user_annotation", Kind.RANGE),
        ("gpu_user_annotation", Kind.DEVICE_RANGE),
        ("python_function", Kind.PYTHON),
        ("weather", None),
    ],
)
def test_categories_of_all_eras(category: str, kind: Kind | None) -> None:
    assert kind_of(category) is kind


def test_records_of_waiting_are_never_compute() -> None:
    trace = read([slice_(cat="cuda_sync", args={"device": 0, "stream": 7}), slice_(cat="overhead"), slice_(cat="kernel")])
    assert work_masks(trace)["compute"].sum() == 1 and codes(trace) == []


def test_an_unknown_category_is_named_and_counts_as_no_work() -> None:
    trace = read([slice_(cat="weather"), slice_(cat="kernel")])
    assert codes(trace) == [("categories_unknown", 1)] and "'weather' (1)" in trace.findings[0]["message"]


def test_kineto_of_2021_writes_threads_and_streams_as_text() -> None:
    events = [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 24572, "tid": "24572", "ts": 1621401187223197, "dur": 21, "args": {"External id": 2}},
        {
            "ph": "X",
            "cat": "Kernel",
            "name": "gemm",
            "pid": 0,
            "tid": "stream 7",
            "ts": 1621401187224556,
            "dur": 1,
            "args": {"correlation": 311, "external id": 2},
        },
        {"ph": "M", "name": "thread_name", "pid": 24572, "tid": 24572, "args": {"name": "main"}},
    ]
    trace = read(events, schemaVersion=1)
    assert rows(trace, "name", "kind", "device", "stream", "correlation", "external_id") == [
        ["aten::mm", Kind.OPERATOR, None, None, None, 2],
        ["gemm", Kind.COMPUTE, 0, 7, 311, 2],
    ]
    assert trace.meta.threads == {0: "main", 1: "0/stream 7"} and codes(trace) == []


def test_a_range_that_begins_and_ends_apart_pairs_within_its_thread_in_the_order_of_the_file() -> None:
    events = [
        {"ph": "B", "name": "outer", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": "1.001"},
        {"ph": "B", "name": "inner", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": 2},
        {"ph": "B", "name": "elsewhere", "cat": "user_annotation", "pid": 1, "tid": 2, "ts": 0},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 5.5},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 9},
        {"ph": "B", "name": "open", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": 10},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 4},
    ]
    trace = read(events)
    assert sorted(rows(trace, "name", "ts", "dur")) == [["elsewhere", 0, 4000], ["inner", 2000, 1000], ["outer", 1001, 4499]]
    assert codes(trace) == [("slices_without_end", 1), ("slices_without_begin", 1)]


@given(st.lists(st.sampled_from("BE"), max_size=14))
def test_pairs_are_those_of_a_stack(phases: list[str]) -> None:
    events = [{"ph": ph, "name": str(n), "cat": "user_annotation", "pid": 1, "tid": 1, "ts": n} for n, ph in enumerate(phases)]
    stack: list[int] = []
    pairs, lone = [], 0
    for n, ph in enumerate(phases):
        if ph == "B":
            stack.append(n)
        elif stack:
            pairs.append([str(stack[-1]), stack[-1] * 1000, (n - stack.pop()) * 1000])
        else:
            lone += 1
    trace = read([*events, op("always", 0, 1)])
    assert sorted(rows(trace, "name", "ts", "dur")) == sorted([*pairs, ["always", 0, 1000]])
    assert dict(codes(trace)) == {k: v for k, v in (("slices_without_end", len(stack)), ("slices_without_begin", lone)) if v}


def test_torch_before_kineto_draws_operators_and_kernels_in_processes_of_that_name() -> None:
    trace = read([slice_(name="aten::mm", pid="CPU functions", tid=1), slice_(name="my range", pid="CPU functions"), slice_(pid="CUDA functions", tid=3)])
    assert rows(trace, "name", "kind", "device") == [["aten::mm", Kind.OPERATOR, None], ["my range", Kind.RANGE, None], ["a", Kind.COMPUTE, 3]]


def test_slices_without_a_category_are_ranges_and_no_device_is_made_up() -> None:
    trace = read([slice_(name="F_0,0", pid="0", tid="0"), slice_(name="B_0,0", pid="0", tid="1")])
    assert rows(trace, "kind", "device") == [[Kind.RANGE, None]] * 2
    assert (trace.meta.device_type, devices(trace), codes(trace)) == (None, [], [("categories_missing", 2)])


def test_an_aiu_computes_and_copies_by_the_names_of_its_records() -> None:
    names = ("conv_1 Cmpt Exec", "conv_1 DmaI", "conv_1 Cmpt Prep", "conv_1 DmaO")
    trace = read(
        [
            mark
            for n, name in enumerate(names)
            for mark in ({"ph": "B", "name": name, "pid": 4, "tid": 9, "ts": n}, {"ph": "E", "pid": 4, "tid": 9, "ts": n + 1})
        ]
    )
    assert [(k, d) for k, d in rows(trace, "kind", "device")] == [(Kind.COMPUTE, 4), (Kind.MEMCPY, 4), (Kind.OTHER, None), (Kind.MEMCPY, 4)]


def test_an_mtia_works_per_process_and_waiting_for_an_event_is_no_work() -> None:
    names = ("pe_exe", "dma_request", "event_wait", "event_record")
    trace = read([slice_(cat="mtia_ccp_events", name=name, pid=17, ts=n) for n, name in enumerate(names)])
    assert rows(trace, "kind", "device") == [[Kind.COMPUTE, 17], [Kind.MEMCPY, 17], [Kind.OTHER, None], [Kind.OTHER, None]]


@pytest.mark.parametrize("ts", ["1.5", 1.5, '"1.5"', "15e-1", " 1.5 "], ids=repr)
def test_a_time_may_be_written_in_any_form(ts: Any) -> None:
    text = f'[{{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 1, "ts": {ts}, "dur": {ts}}}]'
    assert rows(kineto.read(text.encode(), Path("t.json"))[0], "ts", "dur") == [[1500, 1500]]


@pytest.mark.parametrize("unit", ["ns", "ms", "us"])
def test_the_unit_of_display_changes_nothing(unit: str) -> None:
    assert rows(read([slice_(cat="kernel")], displayTimeUnit=unit), "ts", "dur") == [[1000, 2000]]


def test_slices_that_end_before_they_begin_are_left_out_and_those_without_length_stay() -> None:
    pair = [{"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 9}, {"ph": "E", "pid": 1, "tid": 1, "ts": 4}]
    trace = read([slice_(cat="kernel", dur=-2), *pair, slice_(cat="kernel", dur=0)])
    assert rows(trace, "ts", "dur") == [[1000, 0]] and codes(trace) == [("negative_durations", 2)]


@pytest.mark.parametrize(
    ("odd", "finding"),
    [
        (None, "records_no_objects"),
        ([1], "records_no_objects"),
        ("text", "records_no_objects"),
        (slice_(cat="kernel", args="none"), "arguments_no_objects"),
        (slice_(cat="kernel", args=[1]), "arguments_no_objects"),
        (slice_(cat="kernel", name=None), "records_dropped"),
        (slice_(cat="kernel", ts=[1]), "records_dropped"),
        (slice_(cat="kernel", dur={"us": 1}), "records_dropped"),
        (slice_(cat="kernel", dur=2**64), "records_dropped"),
        (slice_(cat="kernel", pid="?", tid="?"), "device_unknown"),
        (slice_(cat="kernel", args={"correlation": 2**64}), "numbers_too_large"),
        (slice_(cat="kernel", args={"device": 2**40}), "numbers_too_large"),
    ],
)
def test_one_odd_record_stops_no_other_and_is_counted(odd: Any, finding: str) -> None:
    trace = read([odd, kernel("sound", 3, 9)])
    assert "sound" in set(trace.events["name"]) and (finding, 1) in codes(trace)


@pytest.mark.parametrize("args", [None, {}])
def test_arguments_may_be_absent(args: Any) -> None:
    assert codes(read([slice_(cat="kernel", args=args)])) == []


@pytest.mark.parametrize("end", [b"", b",", b"\n", b" ,\n\n"])
def test_a_list_of_events_may_lack_its_end_and_says_so(end: bytes) -> None:
    text = json.dumps([kernel("a", 0, 1), kernel("b", 2, 3)]).encode()
    assert codes(kineto.read(text, Path("t.json"))[0]) == []
    (trace,) = kineto.read(text.removesuffix(b"]") + end, Path("t.json"))
    assert len(trace.events) == 2 and [f["code"] for f in trace.findings] == ["list_not_closed"]
    with pytest.raises(InputError, match="truncated"):
        kineto.read(text.removesuffix(b"}]"), Path("t.json"))


@pytest.mark.parametrize("events", [[], [{"ph": "M", "name": "process_name"}], [slice_(cat="Trace")], [slice_(cat="kernel", dur="NaN")]])
def test_a_trace_in_which_nothing_ran_is_refused(events: list[Any]) -> None:
    with pytest.raises(InputError, match="0 events"):
        read(events, schemaVersion=1)


def test_more_events_than_allowed_are_refused_with_the_flag_that_raises_it() -> None:
    text = json.dumps([kernel("a", 0, 1)] * 5).encode()
    assert len(kineto.read(text, Path("t.json"), Reading(max_events=5))[0].events) == 5
    for too_many in (text, b"[" + b"{}," * 100 + b"{}]"):
        with pytest.raises(InputError, match="more than 4 events; raise --max-events"):
            kineto.read(too_many, Path("t.json"), Reading(max_events=4))


@pytest.mark.parametrize(
    ("text", "key", "at"),
    [
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 2, "dur": 3}]}', "dur", 78),
        (b'[{"ph": "X", "cat": "kernel", "name": "a", "name": "b", "ts": 1, "dur": 2}]', "name", 43),
        (b'[{"ph": "X", "cat": "kernel", "name": "a", "name": "b", "ts": 1, "dur": 2},', "name", 43),
        (b'\xef\xbb\xbf[{"ph": "X", "cat": "kernel", "name": "a", "name": "b", "ts": 1, "dur": 2}]', "name", 46),
        (b'[{"ph": "X", "cat": "kernel", "name": "a\x01", "name": "b", "ts": 1, "dur": 2}]', "name", 44),
        (b'{"baseTimeNanoseconds": 1, "baseTimeNanoseconds": 2, "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}', "baseTimeNanoseconds", 27),
        (b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}], "traceEvents": [{"ph": "X", "name": "b", "ts": 1, "dur": 2}]}', "traceEvents", 63),
    ],
)
def test_an_object_that_contradicts_itself_is_refused_at_its_byte(text: bytes, key: str, at: int) -> None:
    with pytest.raises(InputError, match=f"'{key}' stands twice in one object with different values, the second time at byte {at}"):
        kineto.read(text, Path("t.json"))


def test_saying_the_same_twice_is_no_contradiction() -> None:
    text = b'[{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 1, "ts": 1, "ts": 1, "dur": 2, "dur": 2}]'
    assert codes(kineto.read(text, Path("t.json"))[0]) == []


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        (b'{"schemaVersion": 1,', True),
        (b'  {"displayTimeUnit": "ms", "traceEvents": [', True),
        (b'[\n{"name": "a", "ph": "B"', True),
        ('{"traceEvents": []}'.encode("utf-16"), True),
        (b'\xef\xbb\xbf{"traceEvents": []}', True),
        (b'[[1, 2, "ph"]]', False),
        (b'{"schema": "1.0.2", "nodes": []}', False),
        (b'["ph"]', False),
        (b"", False),
    ],
)
def test_a_chrome_trace_is_known_by_its_beginning(head: bytes, is_one: bool) -> None:
    assert kineto.sniff(head) is is_one


def test_a_file_that_a_windows_shell_saved_again_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(json.dumps([kernel("caf\u00e9", 0, 1)], ensure_ascii=False).encode("utf-16"))
    assert readers.read(path)[0].events["name"].tolist() == ["caf\u00e9"]


def test_the_waits_of_a_public_mtia_trace_are_all_that_its_work_lacks(shared: Path) -> None:
    path = shared / "traces" / "hta" / "mtia_inference_trace__mtia_inference_rank_0.json.gz"
    records = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("cat") == "mtia_ccp_events"]
    waits = sum(e["name"] in ("event_wait", "event_record") for e in records)
    (trace,) = readers.read(path)
    assert trace.events["device"].eq(17).sum() == len(records) - waits
