"""NCCL Inspector's lines: self-contained ones (v4.0 to v4.2), and dumps whose marker holds the header (v4.3)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records.logs import codes, records
from tracekit.errors import InputError
from tracekit.readers import nccl_inspector, reader_for
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankTrace

ALL_REDUCE = {"coll": "AllReduce", "coll_algo": "RING", "coll_proto": "LL", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974}
ALL_REDUCE |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 277.210914, "coll_busbw_gbs": 485.119099}
REDUCE_SCATTER = {"coll": "ReduceScatter", "coll_sn": 1231, "coll_msg_size_bytes": 2147483648, "coll_exec_time_us": 41057}
REDUCE_SCATTER |= {"coll_algobw_gbs": 418.439467, "coll_busbw_gbs": 366.134533}


def line(rank: int = 0, size: int = 8, *, group: str = "0x7f8c", pid: int | None = None, **body: Any) -> dict[str, Any]:
    """An object with its own header."""
    metadata = {
        "inspector_output_format_version": "v4.2",
        "dump_timestamp_us": 1748030377748202,
        "hostname": "node-a",
        "pid": 100 + rank if pid is None else pid,
    }
    return {"header": {"id": group, "comm_name": "unknown", "rank": rank, "n_ranks": size, "nnodes": 1}, "metadata": metadata, **body}


def read(*lines: Any, end: str = "\n", reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    text = "\n".join(v if isinstance(v, str) else json.dumps(v) for v in lines)
    return nccl_inspector.read((text + end).encode(), Path("node-a-pid100.log"), reading)


def test_a_call_as_inspector_states_it() -> None:
    (trace,) = read(line(2, coll_perf=ALL_REDUCE))
    assert (trace.meta.rank, trace.meta.host, trace.meta.versions) == (2, "node-a", {"nccl_inspector": "v4.2"})
    assert records(trace, "kind", "seq", "group", "group_ranks", "group_size") == [("all_reduce", 1407, "0x7f8c", "0,1,2,3,4,5,6,7", 8)]
    assert records(trace, "nbytes", "duration_ns", "algbw_gbps", "busbw_gbps") == [(17179869184, 61_974_000, 277.210914, 485.119099)]
    assert records(trace, "algorithm", "protocol", "state", "created_ns", "start_ns") == [("Ring", "LL", "completed", None, None)]
    assert codes(trace) == {"nccl_rank_inferred": "info"}


def test_the_size_is_the_whole_where_inspector_names_one_ranks_part() -> None:
    (trace,) = read(line(0, coll_perf=REDUCE_SCATTER))
    assert records(trace, "nbytes") == [(8 * 2147483648,)]


def test_event_times_are_exact() -> None:
    kernels = [
        {"channel_id": 0, "kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275811},
        {"channel_id": 1, "kernel_start_ts": 1752867229235183, "kernel_stop_ts": 1752867229275815},
    ]
    times = {"coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064, "kernel_events": kernels}
    (trace,) = read(line(0, coll_perf={**REDUCE_SCATTER, "event_trace_ts": times}), line(0, coll_perf=ALL_REDUCE))
    assert records(trace, "created_ns", "start_ns", "end_ns") == [(1752867229235059000, 1752867229235181000, 1752867229275815000), (None, None, None)]


def test_one_header_for_a_whole_dump() -> None:
    stats = {"coll_records": 1, "coll_dropped_since_last_dump": 0, "p2p_records": 1, "p2p_dropped_since_last_dump": 0, "proxy_records": 1}
    send = {"p2p": "Send", "p2p_sn": 4, "p2p_peer": 3, "p2p_msg_size_bytes": 1000, "p2p_exec_time_us": 10, "p2p_algobw_gbs": 0.1, "p2p_busbw_gbs": 0.1}
    (trace,) = read(line(2, dump_stats=stats), {"coll_perf": ALL_REDUCE}, {"p2p_perf": send}, {"proxy_trace": {"record_type": "proxy_op"}})
    assert records(trace, "kind", "seq", "peer", "nbytes", "group") == [
        ("all_reduce", 1407, None, 17179869184, "0x7f8c"),
        ("send", 4, 3, 1000, "0x7f8c"),
    ]
    assert codes(trace) == {"nccl_rank_inferred": "info"}


def test_calls_that_inspector_lost_are_said_to_be_lost() -> None:
    stats = {"coll_records": 1, "coll_dropped_total": 4096, "coll_dropped_since_last_dump": 512}
    (trace,) = read(line(0, dump_stats=stats), {"coll_perf": ALL_REDUCE})
    (lost,) = [f for f in trace.findings if f["code"] == "inspector_dropped"]
    assert (lost["count"], lost["severity"]) == (512, "warning")


def test_a_file_without_its_beginning_does_not_say_whose_calls_they_are() -> None:
    (trace,) = read({"coll_perf": ALL_REDUCE})
    assert trace.meta.rank is None
    assert records(trace, "group", "group_size", "nbytes") == [(None, None, 17179869184)]
    assert codes(trace)["inspector_without_header"] == "warning"


def test_calls_without_a_rank_are_not_given_to_another() -> None:
    (trace,) = read({"coll_perf": ALL_REDUCE}, line(0, coll_perf=ALL_REDUCE))
    assert trace.meta.rank == 0 and len(records(trace, "seq")) == 1
    assert {f["code"]: f["count"] for f in trace.findings} == {"inspector_without_header": 1, "nccl_rank_unknown": 1}
    pairs = [line(p % 2, 2, group=f"0x{p // 2}", pid=100 + p, coll_perf=ALL_REDUCE) for p in range(4)]
    (trace,) = read(*pairs)  # two pairs, neither spans the processes
    assert trace.meta.rank is None and records(trace, "seq", "group") == [(None, "0x0"), (None, "0x0"), (None, "0x1"), (None, "0x1")]


def test_ranks_are_numbers_of_the_largest_communicator() -> None:
    pairs = [line(p % 2, 2, group=f"0x{p // 2}", pid=100 + p, coll_perf=ALL_REDUCE) for p in range(4)]
    traces = read(*[line(p, 4, coll_perf=ALL_REDUCE) for p in range(4)], *pairs)
    assert [(t.meta.rank, records(t, "group_ranks")[1]) for t in traces] == [(0, ("0,1",)), (1, ("0,1",)), (2, ("2,3",)), (3, ("2,3",))]


def test_bandwidths_that_inspector_did_not_compute_are_unknown() -> None:
    body = {"coll": "AlltoAll", "coll_sn": 1, "coll_msg_size_bytes": 1000, "coll_exec_time_us": 10, "coll_algobw_gbs": 0.0, "coll_busbw_gbs": 0.0}
    (trace,) = read(line(0, 4, coll_perf=body))
    assert records(trace, "kind", "nbytes", "algbw_gbps", "busbw_gbps") == [("all_to_all", 4000, None, None)]


def test_a_cut_last_line_takes_nothing_from_the_others() -> None:
    text = json.dumps(line(0, coll_perf=ALL_REDUCE))
    (trace,) = read(text, "what", text, text[:-40], end="")
    assert len(records(trace, "seq")) == 2
    found = {f["code"]: (f["severity"], f["offset"]) for f in trace.findings}
    assert found["last_line_cut"] == ("warning", 2 * len(text) + 7)
    assert found["lines_unreadable"] == ("warning", len(text) + 1)


def test_numbers_beyond_all_bounds_are_unknown() -> None:
    text = json.dumps(line(0, coll_perf=ALL_REDUCE)).replace("61974", "1e999999").replace("17179869184", "1e99999999").replace("277.210914", "-1e-999999")
    assert records(read(text)[0], "nbytes", "duration_ns") == [(None, None)]


@pytest.mark.parametrize("bad", [{"coll": 7, "coll_sn": "x", "coll_exec_time_us": -4, "coll_msg_size_bytes": 1e300}, [], {}])
def test_values_of_other_types_are_unknown(bad: Any) -> None:
    (trace,) = read(line(0, coll_perf=bad))
    assert records(trace, "kind", "seq", "nbytes", "duration_ns") == [(None, None, None, None)]


def test_caps_end_the_reading() -> None:
    with pytest.raises(InputError, match="max-events"):
        read(*[line(0, coll_perf=ALL_REDUCE)] * 3, reading=replace(DEFAULT, max_events=2))
    with pytest.raises(InputError, match="no completed call"):
        read(line(0, dump_stats={}))


def test_it_is_found_by_its_keys() -> None:
    reader = reader_for(json.dumps(line(0, coll_perf=ALL_REDUCE)).encode())
    assert reader is not None and reader.name == "NCCL Inspector records"
