"""Do kernels, copies and calls of a rocprofiler-sdk JSON come with the right device, name and time?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tracekit import analyze
from tracekit.errors import InputError
from tracekit.passes import run_passes
from tracekit.readers import rocprof
from tracekit.reading import Reading
from tracekit.trace import RankTrace

AGENTS = [
    {"id": {"handle": 40}, "type": 1, "name": "EPYC", "logical_node_type_id": 0},
    {"id": {"handle": 41}, "type": 2, "name": "gfx950", "product_name": "MI350", "logical_node_type_id": 0},
    {"id": {"handle": 42}, "type": 2, "name": "gfx950", "logical_node_type_id": 1},
]
SYMBOLS = [
    {"kernel_id": 8, "formatted_kernel_name": "gemm(float*)", "kernel_name": "gemm.kd"},
    {"kernel_id": 9, "formatted_kernel_name": "ncclDevKernel_Generic_1()"},
]
STRINGS = {"buffer_records": [{"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API", "operations": ["NONE", "hipLaunchKernel"]}]}


def kernel(number: int, start: int, end: int, *, agent: int = 41, stream: int = 0, queue: int = 16, correlation: int = 1) -> dict[str, Any]:
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": queue}, "kernel_id": number}
    times = {"start_timestamp": start, "end_timestamp": end}
    return {
        "kind": 11,
        "operation": 2,
        "thread_id": 5,
        "correlation_id": {"internal": correlation},
        **times,
        "dispatch_info": info,
        "stream_id": {"handle": stream},
    }


def read(records: dict[str, list[dict[str, Any]]], reading: Reading = Reading()) -> RankTrace:  # noqa: B008
    section = {
        "metadata": {"pid": 9, "node": {"hostname": "smci"}},
        "agents": AGENTS,
        "kernel_symbols": SYMBOLS,
        "strings": STRINGS,
        "buffer_records": records,
    }
    text = json.dumps({"rocprofiler-sdk-tool": [section]}).encode()
    assert rocprof.sniff(text)
    (trace,) = rocprof.read(text, Path("results.json"), reading)
    return trace


def rows(trace: RankTrace, *columns: str) -> list[list[Any]]:
    values = trace.events.sort_values("ts")[list(columns)].astype(object)
    return [list(row) for row in values.where(values.notna(), None).itertuples(index=False)]


def test_kernels_have_the_name_of_their_symbol_and_the_number_of_their_gpu() -> None:
    trace = read({"kernel_dispatch": [kernel(8, 100, 110), kernel(9, 105, 120, agent=42)]})
    assert rows(trace, "name", "device", "stream", "ts", "dur") == [["gemm(float*)", 0, 16, 100, 10], ["ncclDevKernel_Generic_1()", 1, 16, 105, 15]]
    assert (trace.meta.host, trace.meta.device_names, trace.meta.rank, trace.findings) == ("smci", ("MI350", "gfx950"), None, ())
    assert rows(run_passes(trace), "kind") == [["compute"], ["communication"]]


def test_streams_tell_more_than_queues_where_they_are_recorded() -> None:
    trace = read({"kernel_dispatch": [kernel(8, 100, 110, stream=3), kernel(8, 105, 120, stream=0)]})
    assert rows(trace, "stream") == [[3], [0]]


def test_a_call_launches_by_its_correlation_and_copies_are_no_kernels() -> None:
    call = {"kind": 1, "operation": 1, "thread_id": 5, "correlation_id": {"internal": 7}, "start_timestamp": 90, "end_timestamp": 95}
    copy = {
        "kind": 10,
        "operation": 2,
        "start_timestamp": 130,
        "end_timestamp": 140,
        "src_agent_id": {"handle": 40},
        "dst_agent_id": {"handle": 42},
        "bytes": 64,
    }
    trace = run_passes(read({"hip_api": [call], "kernel_dispatch": [kernel(8, 100, 110, correlation=7)], "memory_copy": [copy]}))
    assert rows(trace, "name", "kind", "device", "nbytes") == [
        ["hipLaunchKernel", "launch", None, None],
        ["gemm(float*)", "compute", 0, None],
        ["memory copy", "memcpy", 1, 64],
    ]
    by_name = trace.events.set_index(trace.events["name"].astype(str))
    assert trace.events["name"].iloc[by_name.loc["gemm(float*)", "launch"]] == "hipLaunchKernel"


def test_what_is_unknown_is_said() -> None:
    trace = read(
        {"kernel_dispatch": [kernel(77, 100, 110, agent=99), kernel(8, 120, 110), {**kernel(8, 1, 2), "end_timestamp": "x"}], "rccl_api": [kernel(8, 1, 2)]}
    )
    assert rows(trace, "name", "device") == [["kernel 77", 2]]
    found = {f["code"]: (f["severity"], f["count"]) for f in trace.findings}
    assert found == {"records_dropped": ("warning", 2), "kernels_unnamed": ("warning", 1), "devices_unlisted": ("warning", 1), "records_not_read": ("info", 1)}


def test_nothing_to_read_and_too_much_of_it_are_refused() -> None:
    with pytest.raises(InputError, match="no kernel and no copy"):
        read({"kernel_dispatch": []})
    with pytest.raises(InputError, match="--max-events"):
        read({"kernel_dispatch": [kernel(8, 1, 2)] * 3}, Reading(max_events=2))
    with pytest.raises(InputError, match="truncated"):
        rocprof.read(b'{"rocprofiler-sdk-tool": [{"agents": [', Path("results.json"))


def test_a_public_file_equals_a_plain_reading(shared: Path) -> None:
    name = "tracelens/rocprof__908_results.json.gz"
    ((_, want),) = json.loads((shared / "traces" / "reference.json").read_text())[name]["sections"][0]["by_agent_handle"].items()
    (row,) = (r for r in analyze(shared / "traces" / name, workers=1).result("breakdown").tables["devices"].to_dict("records"))
    assert {
        "busy_ns": row["busy_ns"], "comm_ns": row["comm_ns"], "compute_ns": row["compute_ns"], "overlap_ns": row["overlap_ns"],
        "exposed_comm_ns": row["exposed_comm_ns"], "span_ns": row["span_ns"], "idle_ns": row["idle_ns"], "kernels": row["kernels"],
    } == {
        "busy_ns": want["union_all_gpu_ns"], "comm_ns": want["union_comm_ns"], "compute_ns": want["union_compute_ns"],
        "overlap_ns": want["overlap_comm_compute_ns"], "exposed_comm_ns": want["exposed_comm_ns"], "span_ns": want["span_ns"],
        "idle_ns": want["idle_ns"], "kernels": want["n_kernels"],
    }  # fmt: skip
