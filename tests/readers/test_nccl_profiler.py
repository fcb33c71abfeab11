"""Events of NCCL's profiler interface: what was asked, enqueued and run, of one collective on one rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.records.logs import codes, records
from tracekit.errors import InputError
from tracekit.readers import nccl_profiler, reader_for
from tracekit.reading import DEFAULT
from tracekit.trace import RankTrace


def event(kind: str, start: float, stop: float, *, rank: int = 0, address: str = "", parent: str = "null", group: int = 77, **more: Any) -> dict[str, Any]:
    """An event; times in µs."""
    details = more.pop("details", {})
    at = [{"ts": t, "pid": 5, "tid": 1} for t in (start, stop)]
    base = {"recordType": "event", "type": kind, "gpuUuid": f"gpu{rank}", "commId": group, "rank": rank, "start": at[0], "stop": at[1]}
    return {**base, "eventAddr": address, "parentObj": parent, "details": details, **more}


def born(rank: int, size: int = 2, group: int = 77, name: str = "") -> dict[str, Any]:
    """A communicator's beginning."""
    start = {"ts": 1.0, "pid": 5, "tid": 1}
    details = {"nranks": size, "commName": name}
    return {
        "type": "ProfilerLifecycle",
        "func": "ProfilerInit",
        "gpuUuid": f"gpu{rank}",
        "commId": group,
        "rank": rank,
        "start": start,
        "stop": start,
        "details": details,
    }


def asked(start: float, *, rank: int = 0, address: str = "api", group_call: str = "grp") -> dict[str, Any]:
    return event(
        "ncclProfileCollApi", start, start + 2, rank=rank, address=address, parent=group_call, details={"func": "AllReduce", "count": 8, "dtype": "ncclFloat32"}
    )


def enqueued(start: float, *, rank: int = 0, address: str = "coll", parent: str = "api", func: str = "AllReduce", seq: int = 0, **more: Any) -> dict[str, Any]:
    details = {"func": func, "seq": seq, "algo": "RING", "proto": "SIMPLE", "count": 8, "dtype": "ncclFloat32", **more}
    return event("ncclProfileColl", start, start + 3, rank=rank, address=address, parent=parent, details=details)


def channel(start: float, stop: float, *, parent: str = "coll", rank: int = 0) -> dict[str, Any]:
    return event("ncclProfileKernelCh", start, stop, rank=rank, parent=parent, details={"channel": 0})


def launch(start: float, number: int, *, rank: int = 0, group_call: str = "grp") -> dict[str, Any]:
    return event("ncclProfileKernelLaunch", start, start + 1, rank=rank, parent=group_call, extCorrId=number)


def kernel(number: int, start: float, stop: float) -> dict[str, Any]:
    return {
        "recordType": "cuptiActivity",
        "type": "KERNEL",
        "extCorrId": number,
        "start": {"ts": start, "pid": 5},
        "stop": {"ts": stop, "pid": 5},
        "name": "ncclDevKernel",
    }


def read(*events: dict[str, Any], end: str = "\n") -> tuple[RankTrace, ...]:
    return nccl_profiler.read(("\n".join(map(json.dumps, events)) + end).encode(), Path("trace.jsonl"), DEFAULT)


def test_execution_is_the_kernel_of_the_launch_not_the_time_of_the_host() -> None:
    (trace,) = read(born(0), asked(100.5), launch(109, 1), enqueued(110.25), channel(130, 180), kernel(1, 125.125, 181.0))
    assert records(trace, "kind", "name", "seq", "nbytes", "dtype", "algorithm", "protocol") == [
        ("all_reduce", "AllReduce", 0, 32, "float32", "Ring", "Simple")
    ]
    assert records(trace, "created_ns", "start_ns", "end_ns", "duration_ns") == [(100_500, 125_125, 181_000, 55_875)]
    assert codes(trace) == {"nccl_rank_inferred": "info"}


def test_without_kernels_execution_is_first_start_to_last_stop_of_its_channels() -> None:
    (trace,) = read(born(0), asked(100), enqueued(110), channel(130, 180), channel(128, 175))
    assert records(trace, "start_ns", "end_ns") == [(128_000, 180_000)]


def test_addresses_that_are_used_again_belong_to_the_latest_call() -> None:
    (trace,) = read(born(0), *[e for i in range(3) for e in (channel(130 + 100 * i, 140 + 100 * i), asked(100 + 100 * i), enqueued(110 + 100 * i, seq=i))])
    assert records(trace, "seq", "created_ns", "start_ns") == [(0, 100_000, 130_000), (1, 200_000, 230_000), (2, 300_000, 330_000)]


def test_a_kernel_that_several_calls_share_says_nothing_of_each() -> None:
    two = [enqueued(110, address="c1"), enqueued(115, address="c2", seq=1)]
    (trace,) = read(born(0), asked(100), launch(109, 1), *two, channel(130, 150, parent="c1"), kernel(1, 125, 181))
    assert records(trace, "start_ns", "end_ns") == [(130_000, 150_000), (None, None)]
    assert codes(trace)["profiler_without_execution"] == "warning"


def test_each_rank_of_a_process_has_its_own_trace() -> None:
    traces = read(born(0), born(1), *[e for r in (1, 0) for e in (asked(100, rank=r, address=f"a{r}"), enqueued(110, rank=r, address=f"c{r}", parent=f"a{r}"))])
    assert [(t.meta.rank, records(t, "group", "group_ranks")) for t in traces] == [(0, [("77", "0,1")]), (1, [("77", "0,1")])]
    assert [t.stated["communicators"]["group_rank"].tolist() for t in traces] == [[0], [1]]


def test_whole_sizes_names_and_sends() -> None:
    send = event("ncclProfileP2p", 120, 121, address="p", details={"func": "Send", "peer": 1, "count": 3, "dtype": "ncclBfloat16"})
    (trace,) = read(born(0, name="DP 0"), enqueued(110, func="AllGather"), send, send)
    assert records(trace, "kind", "nbytes", "peer", "seq", "group_desc") == [
        ("all_gather", 64, None, 0, "DP 0"),
        ("send", 6, 1, 0, "DP 0"),
        ("send", 6, 1, 1, "DP 0"),
    ]


def test_calls_alone_are_better_than_nothing() -> None:
    (trace,) = read(born(0), asked(100))
    assert records(trace, "kind", "created_ns", "start_ns", "algorithm") == [("all_reduce", 100_000, None, None)]


def test_times_of_zero_are_unknown_and_times_keep_their_nanoseconds() -> None:
    (trace,) = read(born(0), enqueued(0.0), {**enqueued(1.0), "start": {"ts": 8993953357171.293, "pid": 5}})
    assert records(trace, "created_ns") == [(None,), (8993953357171293,)]


def test_a_cut_last_line_is_left_out() -> None:
    (trace,) = read(born(0), enqueued(110), channel(130, 180), end="\n" + json.dumps(enqueued(200))[:50])
    assert len(records(trace, "seq")) == 1 and codes(trace)["last_line_cut"] == "warning"


def test_without_the_size_of_the_communicator_sizes_are_what_a_rank_puts_in() -> None:
    (trace,) = read(enqueued(110, func="AllGather"), channel(130, 180))
    assert trace.meta.rank == 0
    assert records(trace, "nbytes", "group_size", "group_ranks") == [(32, None, None)]


def test_a_file_of_other_events_is_refused() -> None:
    with pytest.raises(InputError, match="ncclProfileColl"):
        read(born(0), channel(1, 2))


def test_it_is_found_by_its_events() -> None:
    reader = reader_for(json.dumps(born(0)).encode())
    assert reader is not None and reader.name == "NCCL profiler events"


def spans(*parts: tuple[str, str, str, int, float, dict[str, Any]]) -> RankTrace:
    """What the example plugin writes: (ph, name, category, id, time in µs, args)."""
    lines = []
    for ph, name, cat, number, ts, args in parts:
        more = {"args": args} if ph == "b" else {}
        lines.append(json.dumps({"name": name, "cat": cat, "ph": ph, "id": number, "pid": 9, "tid": 1, "ts": ts, **more}))
    text = "[\n" + ",\n".join(lines) + ",\n{}]"
    assert nccl_profiler.sniff(text.encode())
    (trace,) = nccl_profiler.read(text.encode(), Path("ncclprof.json"), DEFAULT)
    return trace


def test_spans_of_the_example_plugin() -> None:
    reduced = {"SeqNum": 3, "CommHash": 77, "Rank": 1, "Count": 8, "Datatype": "ncclFloat32", "Algorithm": "RING", "Protocol": "LL", "nChannels": 2}
    sent = {"CommHash": 77, "Rank": 1, "Peer": 0, "Count": 4, "Datatype": "ncclInt8", "nChannels": 1}
    trace = spans(
        ("b", "Group API", "GROUP_API", 0, 1.0, {}),
        ("b", "AllReduce", "COLL_API", 0, 2.0, {"count": 8, "datatype": "ncclFloat32"}),
        ("b", "AllReduce", "COLL", 0, 5.5, reduced),
        ("b", "KernelCh", "GPU", 0, 20.25, {"Channel": 0}),
        ("e", "KernelCh", "GPU", 0, 90.0, {}),
        ("b", "KernelCh", "GPU", 1, 19.0, {"Channel": 1}),
        ("e", "KernelCh", "GPU", 1, 88.0, {}),
        ("e", "AllReduce", "COLL", 0, 7.0, {}),
        ("e", "AllReduce", "COLL_API", 0, 3.0, {}),
        ("b", "Send", "P2P", 0, 100.0, sent),
        ("e", "Send", "P2P", 0, 101.0, {}),
        ("e", "Group API", "GROUP_API", 0, 200.0, {}),
    )
    assert trace.meta.rank == 1
    assert records(trace, "kind", "seq", "nbytes", "algorithm", "protocol", "group") == [
        ("all_reduce", 3, 32, "Ring", "LL", "77"),
        ("send", 0, 4, None, None, "77"),
    ]
    assert records(trace, "created_ns", "start_ns", "end_ns") == [(2000, 19_000, 90_000), (100_000, None, None)]
