"""Do executions without metadata get group, number and size from the Flight Recorder beside them, and only where it is theirs?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.builders import document, kernel, launch, op
from tests.flight.dumps import dump, entry, group
from tests.flight.dumps import read as read_dump
from tracekit import analyze
from tracekit.passes import run_passes
from tracekit.readers import kineto
from tracekit.trace import RankTrace

#: The 0 of the traces' clocks, Unix ns; times of rows are µs after it.
BASE = 1_750_000_000_000_000_000
REDUCE, GATHER, SEND = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", "ncclDevKernel_AllGather_RING_LL(args)", "ncclDevKernel_SendRecv(args)"


def call(name: str, at: float, correlation: int, kernel_name: str = REDUCE, *, after: float = 20) -> list[dict[str, Any]]:
    """A c10d operator of 10 µs that launches a kernel of 5 µs."""
    return [op(name, at, at + 10), launch(at + 6, at + 8, correlation), kernel(kernel_name, at + after, at + after + 5, correlation)]


def made(at: float, seq: int, name: str = "nccl:all_reduce", **more: Any) -> dict[str, Any]:
    """An entry created at a time in µs."""
    return entry(seq, name, time_created_ns=BASE + int(at * 1000), **more)


def joined(events: list[dict[str, Any]], entries: list[dict[str, Any]], base: int = BASE, groups: dict[str, Any] | None = None) -> RankTrace:
    """The trace with its dump, after every pass."""
    (trace,) = kineto.read(json.dumps(document(events, base=base, world=8)).encode(), Path("rank0.json"))
    return run_passes(replace(trace, stated=read_dump(dump(entries, groups=groups)).stated))


def filled(trace: RankTrace, *columns: str) -> list[tuple[Any, ...]]:
    events = trace.events[trace.events["kind"].eq("communication")].sort_values("ts")
    plain = events[list(columns)].astype(object)
    return list(plain.where(plain.notna(), None).itertuples(index=False, name=None))


def told(trace: RankTrace) -> list[tuple[str, str, int]]:
    return [(f["severity"], f["code"], f["count"]) for f in trace.findings if f["code"].startswith("flight")]


def test_an_entry_made_during_the_call_that_launched_a_kernel_is_that_kernel() -> None:
    events = [*call("c10d::allreduce_", 100, 1), *call("c10d::allgather_", 200, 2, GATHER), *call("c10d::allreduce_", 300, 3)]
    entries = [
        made(10, 1),
        made(103, 41, size=(8,)),
        made(203, 42, "nccl:_all_gather_base", size=(4,), out=(8,)),
        made(303, 9, pg="5", dtype="Half"),
        made(900, 43),
    ]
    trace = joined(events, entries, groups={**group([0, 1], "0", "default_pg"), **group([0, 2, 4], "5", "mesh_dp")})
    assert filled(trace, "collective", "group", "group_desc", "group_ranks", "group_size", "seq", "nbytes", "dtype") == [
        ("all_reduce", "0", "default_pg", "0,1", 2, 41, 32, "Float"),
        ("all_gather", "0", "default_pg", "0,1", 2, 42, 32, "Float"),
        ("all_reduce", "5", "group_5", "0,2,4", 3, 9, 2048, "Half"),
    ]
    assert told(trace) == [("info", "flight_recorder_joined", 3)]


def test_the_range_around_a_launch_counts_where_no_operator_was_recorded() -> None:
    record = op("record_param_comms", 100, 110)
    trace = joined([record, launch(104, 106, 1), kernel(REDUCE, 120, 125, 1)], [made(101, 7), made(301, 8)])
    assert filled(trace, "group", "seq") == [("0", 7)]


def test_calls_close_to_each_other_keep_their_own_entries() -> None:
    events = [*call("c10d::allreduce_", 100, 1), *call("c10d::allreduce_", 110.5, 2), *call("c10d::allreduce_", 121, 3)]
    trace = joined(events, [made(109, 1), made(111, 2), made(122, 3)])
    assert filled(trace, "seq") == [(1,), (2,), (3,)]


def test_an_entry_of_another_kind_is_another_call() -> None:
    trace = joined(call("c10d::allreduce_", 100, 1), [made(103, 7, "nccl:broadcast"), made(503, 8, "nccl:broadcast")])
    assert filled(trace, "group", "seq") == [(None, None)]
    assert told(trace) == [("warning", "flight_recorder_short", 1)]


def test_what_the_trace_itself_says_stands() -> None:
    meta = {"Process Group Name": "5", "Process Group Description": "mesh_dp", "Process Group Ranks": "[0, 2, 4]", "Group size": 3}
    known = [
        op("c10d::allreduce_", 100, 110),
        launch(106, 108, 1),
        kernel(REDUCE, 120, 125, 1, **meta, **{"In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float"}),
    ]
    entries = [made(103, 9, pg="5", size=(8,))]
    trace = joined(known, entries, groups=group([0, 2, 4], "5", "mesh_dp"))
    assert filled(trace, "group", "seq") == [("5", 9)]
    other = joined(known, [made(103, 9, pg="6")], groups=group([0, 1], "6"))
    assert filled(other, "group", "seq") == [("5", None)]


def test_sends_of_a_kernel_that_may_be_anything_become_what_was_called() -> None:
    events = [*call("c10d::send", 100, 1, SEND), *call("c10d::alltoall_base_", 200, 2, SEND), *call("c10d::recv_", 300, 3, SEND)]
    entries = [made(103, 4, "nccl:send 0->1"), made(203, 41, "nccl:all_to_all", size=(6,)), made(303, 5, "nccl:recv 0<-1", size=(2,))]
    assert filled(joined(events, entries), "collective", "seq", "peer", "nbytes") == [("send", 4, 1, 4096), ("all_to_all", 41, None, 24), ("recv", 5, 1, 8)]


@pytest.mark.parametrize("base", [0, BASE + 10**15])
def test_without_a_common_clock_the_order_tells_where_equally_many_are_left(base: int) -> None:
    events = [*call("c10d::allreduce_", 100, 1), *call("c10d::allgather_", 200, 2, GATHER), *call("c10d::allreduce_", 300, 3)]
    entries = [made(5, 41), made(6, 42, "nccl:_all_gather_base", out=(2048,)), made(7, 43)]
    trace = joined(events, entries, base=base)
    assert filled(trace, "collective", "seq") == [("all_reduce", 41), ("all_gather", 42), ("all_reduce", 43)]
    assert told(trace) == [("info", "flight_recorder_joined", 3)]
    assert "3 of them by their order alone" in next(f["message"] for f in trace.findings if f["code"] == "flight_recorder_joined")
    more = joined(events, [*entries, made(8, 44)], base=base)
    assert filled(more, "collective", "seq") == [("all_reduce", None), ("all_gather", 42), ("all_reduce", None)]
    assert ("warning", "flight_recorder_short", 2) in told(more)


def test_kernels_without_a_recorded_launch_go_by_order_within_the_recording() -> None:
    events = [op("aten::mm", 90, 400), kernel(REDUCE, 120, 125), kernel(REDUCE, 220, 225)]
    trace = joined(events, [made(5, 40), made(103, 41), made(203, 42), made(900, 43)])
    assert filled(trace, "seq") == [(41,), (42,)]


def test_without_a_dump_nothing_changes_and_nothing_is_said() -> None:
    (trace,) = kineto.read(json.dumps(document(call("c10d::allreduce_", 100, 1), base=BASE)).encode(), Path("rank0.json"))
    assert filled(run_passes(trace), "group", "seq") == [(None, None)]
    assert told(run_passes(trace)) == []


def test_two_ranks_meet_by_what_their_dumps_say(tmp_path: Path) -> None:
    """Rank 1 profiled one all-reduce less: order would pair the wrong ones."""
    first = [*call("c10d::allreduce_", 100, 1), *call("c10d::allreduce_", 200, 2, after=30)]
    second = call("c10d::allreduce_", 200, 2, after=20)
    dumps = dump([made(103, 1), made(203, 2)])
    for rank, events in ((0, first), (1, second)):
        document_ = document(events, rank=rank, world=2, base=BASE)
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document_))
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dumps))
    analysis = analyze(tmp_path, workers=1)
    instances = analysis.result("collectives").tables["instances"]
    met = instances[instances["matched_ranks"].eq(2)]
    assert met[["group", "seq", "nbytes"]].to_numpy().tolist() == [["0", 2, 4096]]
    assert analysis.result("flight_recorder").summary["collectives_matched"] == 2


def test_gloo_takes_groups_from_its_entries() -> None:
    events = [op("c10d::allreduce_", 100, 110), op("gloo:all_reduce", 112, 118, cat="user_annotation", tid=300)]
    trace = joined(events, [made(104, 5, "gloo:all_reduce", pg="3")], groups={})
    assert filled(trace, "group", "group_desc", "seq") == [("3", "group_3", 5)]
    none = joined(events, [])
    assert [f["code"] for f in none.findings if f["severity"] == "warning"] == ["no_flight_recorder"]
    late = joined(events, [made(904, 5, "gloo:all_reduce")])
    assert told(late) == [("warning", "flight_recorder_short", 1)]
    assert isinstance(late.events, pd.DataFrame)
