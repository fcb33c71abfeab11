"""Is an Nsight Systems export read whole, whatever tables and columns its version and options gave it?"""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import column
from tracekit import schema
from tracekit.errors import InputError
from tracekit.facts import boil_down
from tracekit.passes import run_passes
from tracekit.readers import nsys, nvtx
from tracekit.readers.sqlite_tables import Tables
from tracekit.reading import Reading
from tracekit.trace import RankTrace

Table = list[dict[str, Any]]
K = "CUPTI_ACTIVITY_KIND_"


def process(pid: int) -> int:
    return 1 << 48 | pid << 24


def thread(pid: int, tid: int) -> int:
    return process(pid) | tid


def kernel(
    start: int, end: int, name: int, *, device: int = 0, stream: int = 7, correlation: int | None = None, pid: int | None = 1, **more: Any
) -> dict[str, Any]:
    """A kernel; its name by the number of the text."""
    place = {"deviceId": device, "streamId": stream, "correlationId": correlation, "globalPid": None if pid is None else process(pid)}
    return {"start": start, "end": end, **place, "shortName": name, "demangledName": name, **more}


def call(start: int, end: int, correlation: int, *, pid: int = 1, tid: int = 1, name: int = 1) -> dict[str, Any]:
    """A CUDA call."""
    return {"start": start, "end": end, "globalTid": thread(pid, tid), "correlationId": correlation, "nameId": name}


def ranged(
    text: str | int | None, start: int, end: int | None, *, pid: int = 1, tid: int = 1, kind: int = 59, domain: int = 0, end_tid: int | None = None
) -> dict[str, Any]:
    """An NVTX range; its text as such or by number."""
    said = {"text": text if isinstance(text, str) else None, "textId": text if isinstance(text, int) else None}
    ended = None if end_tid is None else thread(pid, end_tid)
    return {"start": start, "end": end, "eventType": kind, "globalTid": thread(pid, tid), "endGlobalTid": ended, "domainId": domain, **said}


STRINGS = [{"id": i, "value": v} for i, v in enumerate(["", "cudaLaunchKernel", "gemm", "ncclDevKernel_AllReduce_Sum_bf16", "cudaGraphLaunch", "PP:1F0"])]


def database(**tables: Table) -> bytes:
    """An export with these tables; columns are those of the first row."""
    connection = sqlite3.connect(":memory:")
    for name, rows in {"StringIds": STRINGS, **tables}.items():
        columns = list(rows[0]) if rows else ["start", "end"]
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', [tuple(r[c] for c in columns) for r in rows])
    connection.commit()
    return connection.serialize()


def read(reading: Reading | None = None, **tables: Table) -> tuple[RankTrace, ...]:
    data = database(**tables)
    assert nsys.sniff(data[:64])
    traces = nsys.read(data, Path("report.sqlite"), reading or Reading())
    for trace in traces:
        schema.validate(trace.events, schema.EVENTS)
    return traces


def busy(trace: RankTrace, step: int | None = None) -> dict[str, Any]:
    table = boil_down(run_passes(trace))["busy"]
    row = table[table["step"].isna() if step is None else table["step"].eq(step).fillna(False)].iloc[0]
    return {k: None if pd.isna(v) else v for k, v in row.items()}


def codes(trace: RankTrace) -> list[str]:
    return [f["code"] for f in trace.findings if f["severity"] != "info"]


STEP = [ranged("ProfilerStep#3", 0, 900), ranged("layers.0.forward", 100, 300), ranged("aten::mm, seq = 5, op_id = 9, sizes = [[2, 3]]", 110, 200)]


def test_kernels_calls_and_ranges_go_through_the_same_passes() -> None:
    (trace,) = read(
        **{
            K + "KERNEL": [kernel(400, 500, 2, correlation=7), kernel(450, 600, 3, correlation=8, stream=9)],
            K + "RUNTIME": [call(120, 130, 7), call(310, 320, 8)],
            "NVTX_EVENTS": STEP,
        }
    )
    assert (trace.meta.rank, trace.meta.device_type, codes(trace)) == (None, "gpu", [])
    done = run_passes(trace)
    assert column(done, "step")["gemm"] == 3
    assert column(done, "layer")["gemm"] == "layers.0"
    assert column(done, "kind")["ncclDevKernel_AllReduce_Sum_bf16"] == "communication"
    assert (column(done, "sequence")["aten::mm"], column(done, "fwd_thread")["aten::mm"], column(done, "kind")["aten::mm"]) == (5, 0, "operator")
    got = busy(trace, 3)
    assert (got["busy_ns"], got["compute_ns"], got["comm_ns"], got["overlap_ns"]) == (200, 100, 150, 50)


def test_a_whole_graph_is_busy_time_that_nobody_divides() -> None:
    graph = {"start": 100, "end": 300, "deviceId": 0, "streamId": 7, "correlationId": 5, "globalPid": process(1), "graphId": 2}
    (trace,) = read(
        **{
            K + "GRAPH_TRACE": [graph],
            K + "KERNEL": [kernel(250, 400, 2, correlation=6)],
            K + "RUNTIME": [call(10, 20, 5, name=4), call(30, 40, 6)],
            "NVTX_EVENTS": [ranged("ProfilerStep#1", 0, 25), ranged("ProfilerStep#2", 25, 500)],
        }
    )
    assert codes(trace) == ["graphs_whole"]
    whole, first, second = busy(trace), busy(trace, 1), busy(trace, 2)
    assert (whole["busy_ns"], whole["graph_ns"], whole["idle_ns"]) == (300, 200, 0)
    assert [whole[k] for k in ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "memcpy_ns", "kernels")] == [None] * 6
    assert (first["busy_ns"], first["compute_ns"]) == (200, None)
    assert (second["busy_ns"], second["compute_ns"], second["graph_ns"]) == (150, 150, 0)  # no graph in this step: it divides


def test_kernels_of_a_graph_take_the_place_of_the_whole() -> None:
    graph = {"start": 100, "end": 300, "deviceId": 0, "streamId": 7, "correlationId": 5, "globalPid": process(1), "graphId": 2}
    nodes = [kernel(110, 150, 2, correlation=5, graphNodeId=1), kernel(200, 290, 3, correlation=5, graphNodeId=2)]
    (trace,) = read(**{K + "GRAPH_TRACE": [graph], K + "KERNEL": nodes, K + "RUNTIME": [call(10, 20, 5, name=4)]})
    assert codes(trace) == []
    got = busy(trace)
    assert (got["busy_ns"], got["compute_ns"], got["comm_ns"], got["graph_ns"]) == (130, 40, 90, 0)
    assert run_passes(trace).events["launch"].notna().sum() == 2


def test_copies_and_memsets_are_copies() -> None:
    place = {"deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": process(1)}
    (trace,) = read(**{K + "MEMCPY": [{"start": 0, "end": 10, "copyKind": 1, **place}], K + "MEMSET": [{"start": 5, "end": 20, **place}]})
    assert trace.events["name"].tolist() == ["Memcpy HtoD", "Memset"]
    assert (busy(trace)["memcpy_ns"], busy(trace)["compute_ns"]) == (20, 0)


def test_every_process_with_gpu_work_is_a_rank_in_order_of_its_gpu() -> None:
    """Correlation ids are counted in each process: the same id is two launches."""
    traces = read(
        **{
            K + "KERNEL": [kernel(100, 200, 2, device=1, correlation=7, pid=5), kernel(110, 190, 2, device=0, correlation=7, pid=9)],
            K + "RUNTIME": [call(10, 20, 7, pid=5), call(30, 40, 7, pid=9), call(50, 60, 8, pid=4)],
            "NVTX_EVENTS": [ranged("torchrun", 0, 900, pid=4)],
        }
    )
    assert [(t.meta.rank, int(t.events["device"].dropna().iloc[0])) for t in traces] == [(0, 0), (1, 1)]
    starts = [done.events.loc[done.events["launch"].dropna(), "ts"].tolist() for done in map(run_passes, traces)]
    assert starts == [[30], [10]]
    assert [[f["code"] for f in t.findings if f["code"] == "rank_inferred"] for t in traces] == [["rank_inferred"], []]


def test_one_process_with_several_gpus_is_one_rank() -> None:
    (trace,) = read(**{K + "KERNEL": [kernel(0, 10, 2, device=0), kernel(0, 20, 2, device=1)]})
    table = boil_down(run_passes(trace))["busy"]
    assert (trace.meta.rank, table["device"].tolist(), table["busy_ns"].tolist()) == (None, [0, 1], [10, 20])


@pytest.mark.parametrize("callers", [{7: 5, 8: 9}, {7: 5}])
def test_work_of_old_exports_belongs_to_the_process_of_its_call(callers: dict[int, int]) -> None:
    """Without globalPid the correlation id tells; work without one, or without a call, goes to the first process."""
    rows = [kernel(100, 200, 2, device=d, correlation=c) for d, c in ((0, 7), (1, 8))]
    rows = [{k: v for k, v in row.items() if k != "globalPid"} for row in rows]
    traces = read(**{K + "KERNEL": rows, K + "RUNTIME": [call(10, 20, c, pid=pid) for c, pid in callers.items()]})
    assert [sorted(t.events["device"].dropna().tolist()) for t in traces] == ([[0], [1]] if len(callers) == 2 else [[0, 1]])


def test_a_start_end_range_that_crosses_the_calls_is_no_parent() -> None:
    (trace,) = read(
        **{
            K + "KERNEL": [kernel(500, 600, 2)],
            "NVTX_EVENTS": [
                ranged("ProfilerStep#1", 0, 100, kind=60),
                ranged("aten::mm", 50, 90),
                ranged("prefetch", 80, 150, kind=60),
                ranged("overlapping", 120, 130, kind=60, tid=2, end_tid=3),
                ranged("a mark", 1, None, kind=34),
            ],
        }
    )
    kinds = column(trace, "kind")
    assert (kinds["ProfilerStep#1"], kinds["prefetch"], kinds["overlapping"]) == ("range", "async_range", "async_range")
    assert "a mark" not in kinds


@settings(max_examples=100)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4))
def test_crossing_is_what_a_comparison_of_all_pairs_says(walk: list[int], loose: list[tuple[int, int]]) -> None:
    stack: list[int] = []
    calls: list[tuple[int, int]] = []
    for at, step in enumerate(walk):  # a walk down and up the stack: properly nested ranges
        if step % 3 and stack:
            calls.append((stack.pop(), at))
        else:
            stack.append(at)
    calls += [(begun, len(walk)) for begun in stack]
    ranges = [(min(pair), max(pair)) for pair in loose]
    start, end = (np.array(v, np.int64) for v in zip(*calls, strict=True))
    of_start, of_end = (np.array(v, np.int64) for v in zip(*ranges, strict=True))
    got = nvtx.crosses(np.zeros_like(start), start, end, np.zeros_like(of_start), of_start, of_end)
    assert got.tolist() == [any(a < x < b < y or x < a < y < b for a, b in calls) for x, y in ranges]


@pytest.mark.parametrize(
    ("text", "name", "sequence", "fwd_thread", "operator"),
    [
        ("aten::mm, seq = 12, op_id = 7, sizes = [[2, 3], [3, 4]], input_op_ids = [(1,0)]", "aten::mm", 12, 0, True),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 3", "autograd::engine::evaluate_function: MmBackward0", None, None, True),
        ("MmBackward0, seq = 12", "MmBackward0", 12, 1, True),
        ("torch::autograd::AccumulateGrad, seq = 4", "torch::autograd::AccumulateGrad", 4, 1, True),
        ("FSDP::all_gather (layers.3)", "FSDP::all_gather (layers.3)", None, None, False),
        ("PP:(0F3;7B1)OVERLAP_F_B, op_id = 2", "PP:(0F3;7B1)OVERLAP_F_B", None, None, False),
        ("nccl:all_to_all, op_id = 990772", "nccl:all_to_all", None, None, False),
        ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step", None, None, False),
    ],
)
def test_names_lose_what_torch_wrote_around_them(text: str, name: str, sequence: int | None, fwd_thread: int | None, operator: bool) -> None:
    row = nvtx.named(np.array([text], object)).astype(object).iloc[0]
    assert [None if str(v) == "<NA>" else v for v in row] == [name, sequence, fwd_thread, operator]


def test_registered_texts_and_domains() -> None:
    (trace,) = read(**{K + "KERNEL": [kernel(0, 1, 2)], "NVTX_EVENTS": [ranged(5, 0, 9), ranged("cub::DeviceReduce", 1, 2, domain=3)]})
    assert column(trace, "kind") == {"PP:1F0": "range", "cub::DeviceReduce": "range", "gemm": "compute"}


@pytest.mark.parametrize(("first", "base"), [(400, 1_700_000_000_000_000_000), (1_700_000_000_000_000_400, 0)])
def test_times_are_those_of_the_epoch(first: int, base: int) -> None:
    """Relative to the session's start, or written as epoch by the export itself."""
    (trace,) = read(**{K + "KERNEL": [kernel(first, first + 5, 2)], "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}]})
    assert trace.events["ts"].tolist() == [first + base]


def test_names_of_gpus_threads_and_the_version_and_nothing_of_the_environment() -> None:
    (trace,) = read(
        **{
            K + "KERNEL": [kernel(0, 5, 2, correlation=1)],
            K + "RUNTIME": [call(0, 1, 1)],
            "TARGET_INFO_GPU": [{"id": 1, "name": "H200"}, {"id": 0, "name": "H100"}],
            "ThreadNames": [{"nameId": 2, "globalTid": thread(1, 1)}],
            "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2026.2"}],
            "META_DATA_CAPTURE": [{"name": "PROCESS_0:ENVIRONMENT", "value": "TOKEN=secret"}],
        }
    )
    assert (trace.meta.device_names, trace.meta.versions) == (("H100", "H200"), {"nsight_systems": "2026.2"})
    assert sorted(trace.meta.threads.values()) == ["GPU 0 stream 7", "gemm"]
    assert "secret" not in repr(trace)


def test_kernels_without_names_are_busy_and_not_divided() -> None:
    (trace,) = read(**{K + "KERNEL": [kernel(0, 10, 99)]})
    assert codes(trace) == ["kernels_nameless"]
    assert (busy(trace)["busy_ns"], busy(trace)["compute_ns"]) == (10, None)


def test_what_is_missing_is_named_where_a_figure_needs_it() -> None:
    (trace,) = read(**{K + "KERNEL": [kernel(0, 10, 2)], "NVTX_EVENTS": STEP})
    assert codes(trace) == ["launches_missing"]
    (trace,) = read(NVTX_EVENTS=STEP)
    assert (codes(trace), trace.meta.device_type) == (["no_device_work"], None)
    (trace,) = read(**{K + "KERNEL": [kernel(0, 10, 2)]})
    assert (codes(trace), [f["code"] for f in trace.findings]) == ([], ["ranges_missing"])


def test_records_without_a_usable_time_are_counted() -> None:
    bad = [
        kernel(0, 10, 2),
        kernel(10, 5, 2),
        {**kernel(1, 2, 2), "start": None},
        {**kernel(1, 2, 2), "end": "late"},
        kernel(1, 1 << 62, 2),
        kernel(1, 2, 2, device=1 << 40),
    ]
    (trace,) = read(**{K + "KERNEL": bad, "NVTX_EVENTS": [ranged("open", 5, None)]})
    assert (codes(trace), len(trace.events)) == (["records_dropped"], 1)
    assert [f["count"] for f in trace.findings if f["code"] == "records_dropped"] == [6]


@pytest.mark.parametrize(
    ("tables", "says"),
    [({"users": [{"name": "x"}]}, "no Nsight Systems export .its tables: StringIds, users"), ({K + "KERNEL": []}, "holds no kernel, no CUDA call and no NVTX")],
)
def test_what_is_no_export_is_refused(tables: dict[str, Table], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(**tables)


def test_views_triggers_and_computed_columns_are_never_run() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE VIEW {K}KERNEL AS SELECT 1 AS start, 2 AS end")
    connection.execute(f"CREATE TABLE {K}MEMSET (start, end, deviceId AS (zeroblob(900000000)), streamId)")
    connection.execute(f"INSERT INTO {K}MEMSET VALUES (1, 2, 3)")
    connection.commit()
    tables = Tables(connection.serialize(), Path("x"), Reading())
    assert tables.columns == {f"{K}MEMSET": frozenset({"start", "end", "streamId"})}
    assert tables.read(f"{K}KERNEL", ("start",)).empty
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        tables._connection.execute("SELECT load_extension('x')")


def test_a_name_with_quotes_is_a_name() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "a""b" ("c""d")')
    connection.execute('INSERT INTO "a""b" VALUES (1)')
    connection.commit()
    assert Tables(connection.serialize(), Path("x"), Reading()).read('a"b', ('c"d',)).values.tolist() == [[1]]


MANY = {K + "KERNEL": [kernel(10 * i, 10 * i + 5, 2) for i in range(3000)]}


def test_a_cut_export_is_refused_or_read_up_to_the_cut() -> None:
    data = database(**MANY)
    cut = data[: len(data) // 2]
    with pytest.raises(InputError, match=f"cut: the database should have {len(data)} bytes and has {len(cut)}") as error:
        nsys.read(cut, Path("x"), Reading())
    assert error.value.offset == len(cut)
    (trace,) = nsys.read(cut, Path("x"), Reading(salvage=True))
    assert codes(trace) == ["export_partial"]
    assert 0 < len(trace.events) < 3000
    assert trace.events["ts"].tolist() == [10 * i for i in range(len(trace.events))]


def test_a_header_that_promises_terabytes_is_refused() -> None:
    data = bytearray(database(**MANY))
    data[28:32] = b"\xff" * 4
    with pytest.raises(InputError, match="cut"):
        nsys.read(bytes(data), Path("x"), Reading(salvage=True))


def test_a_damaged_page_is_told() -> None:
    data = bytearray(database(**MANY))
    data[len(data) // 2 : len(data) // 2 + 64] = b"\xff" * 64
    with pytest.raises(InputError, match="damaged database"):
        nsys.read(bytes(data), Path("x"), Reading())


@pytest.mark.parametrize("data", [b"SQLite format 3\0", b"SQLite format 3\0" + bytes(4096)])
def test_a_header_alone_is_no_database(data: bytes) -> None:
    with pytest.raises(InputError, match=r"cut|damaged"):
        nsys.read(data, Path("x"), Reading())


WHOLE = database(
    **{
        K + "KERNEL": [kernel(10 * i, 10 * i + 5, 2, correlation=i) for i in range(40)],
        K + "RUNTIME": [call(10 * i, 10 * i + 5, i) for i in range(40)],
        "NVTX_EVENTS": [ranged("aten::mm, seq = 5", 10 * i, 10 * i + 5) for i in range(40)],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
    }
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=20), st.booleans())
def test_changed_bytes_give_traces_or_a_refusal(changes: list[tuple[int, int]], salvage: bool) -> None:
    data = bytearray(WHOLE)
    for at, byte in changes:
        data[at] = byte
    try:
        for trace in nsys.read(bytes(data), Path("x"), Reading(salvage=salvage, max_seconds=20)):
            schema.validate(trace.events, schema.EVENTS)
    except InputError as error:
        assert "\n" not in str(error)


def test_a_write_ahead_header_does_not_stop_reading() -> None:
    data = database(**MANY)
    (trace,) = nsys.read(data[:18] + b"\x02\x02" + data[20:], Path("x"), Reading())
    assert len(trace.events) == 3000


@pytest.mark.parametrize(("reading", "flag"), [(Reading(max_events=100), "--max-events"), (Reading(max_seconds=0.0), "--max-seconds")])
def test_caps_hold(reading: Reading, flag: str) -> None:
    with pytest.raises(InputError, match=flag):
        nsys.read(database(**MANY), Path("x"), reading)


def test_the_real_export_gives_the_reference_figures(shared: Path) -> None:
    name = "nsysai/mfu_2gpu_before.sqlite.gz"
    want = json.loads((shared / "traces" / "reference.json").read_text())[name]
    traces = nsys.read(gzip.decompress((shared / "traces" / name).read_bytes()), Path(name), Reading())
    assert [t.meta.rank for t in traces] == [0, 1]
    alone, runtime, ranges = 0, 0, 0
    for trace in traces:
        facts = boil_down(run_passes(trace))
        (row,), device = facts["busy"].to_dict("records"), want["devices"][str(trace.meta.rank)]
        assert {key: row[key] for key in ("span_ns", "idle_ns", "overlap_ns", "exposed_comm_ns")} == {
            "span_ns": device["span_ns"],
            "idle_ns": device["idle_ns"],
            "overlap_ns": device["overlap_comm_compute_ns"],
            "exposed_comm_ns": device["exposed_comm_ns"],
        }
        assert (row["busy_ns"], row["compute_ns"], row["comm_ns"]) == (device["union_all_gpu_ns"], device["union_compute_ns"], device["union_comm_ns"])
        assert (row["memcpy_ns"], row["exposed_memcpy_ns"]) == (device["union_memcpy_memset_ns"], device["memory_only_ns"])
        assert row["kernel_sum_ns"] == device["sum_comm_dur_ns"] + device["sum_compute_dur_ns"]
        kinds = run_passes(trace).events["kind"].value_counts()
        assert (kinds["communication"], kinds["compute"]) == (device["n_comm_kernels"], device["n_compute_kernels"])
        assert (kinds["memcpy"], kinds["memset"]) == (device["n_memcpy"], device["n_memset"])
        # the kernels that NCCL calls SendRecv are an all-to-all of the caller; one has no recorded caller
        called = facts["calls"]["kind"].value_counts().to_dict()
        assert called == {"all_to_all": device["n_comm_kernels"] - len(facts["p2p_calls"])} and len(facts["p2p_calls"]) <= 1
        links = facts["links"].iloc[0]
        alone += int(links["device_work"] - links["by_correlation"])
        runtime += int(kinds["launch"])
        ranges += int(kinds["operator"] + kinds["range"] + kinds["async_range"])
        # the epoch: session start + ns of the session
        assert trace.events["ts"].min() // 10**9 == 1779782330 + 60
    assert (alone, runtime, ranges) == (want["n_gpu_without_launch_record"], want["n_runtime"], want["n_nvtx"])
