"""What was asked for, when the kernel does not say it: barriers, coalesced calls, host records, metadata that is cut or of unknown type."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.builders import kernel, launch, op, passed
from tracekit.facts.busy import busy
from tracekit.facts.calls import calls
from tracekit.facts.host_waits import host_waits
from tracekit.facts.p2p_calls import p2p_calls
from tracekit.trace import RankTrace

GROUP = {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
ALL_REDUCE = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float", **GROUP}
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def record(name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    return op("record_param_comms", start, end, **{**ALL_REDUCE, "Collective name": name, **more})


def collectives(trace: RankTrace, *columns: str) -> list[list[Any]]:
    table = calls(trace)["calls"][list(columns)].astype(object)
    return table.where(table.notna(), None).values.tolist()


def codes(trace: RankTrace) -> list[str]:
    return [f["code"] for f in trace.findings if f["severity"] == "warning"]


@pytest.mark.parametrize(
    ("around", "said", "want"),
    [
        ([op("c10d::barrier", 0, 9)], {}, "barrier"),
        ([op("c10d::barrier", 0, 9), record("allreduce", 1, 8, **{"In msg nelems": 1})], ALL_REDUCE, "barrier"),  # as older torch nests them
        ([record("barrier", 0, 9)], {}, "barrier"),
        ([op("c10d::allreduce_", 0, 9), record("allreduce", 1, 8)], {}, "all_reduce"),
        ([op("c10d::allreduce_", 0, 9)], {**ALL_REDUCE, "In msg nelems": 1, "Out msg nelems": 1}, "all_reduce"),  # a loss of one element
        ([], {**ALL_REDUCE, "In msg nelems": 1, "Out msg nelems": 1, "dtype": "Byte"}, "barrier"),
    ],
)
def test_a_barrier_is_told_from_an_all_reduce(around: list[dict[str, Any]], said: dict[str, Any], want: str) -> None:
    assert collectives(passed([*around, launch(2, 3, 1), kernel(KERNEL, 5, 50, 1, **said)]), "kind") == [[want]]


def test_a_range_drawn_over_the_kernel_names_a_barrier() -> None:
    drawn = kernel("nccl:all_reduce_barrier", 5, 50, cat="gpu_user_annotation")
    trace = passed([drawn, kernel(KERNEL, 5, 50, 1), kernel(KERNEL, 60, 70, 2)])
    assert collectives(trace, "kind") == [["barrier"], ["all_reduce"]]


def test_a_range_drawn_over_a_generic_kernel_names_its_kind_on_its_own_stream_only() -> None:
    drawn = kernel("nccl:_all_gather_base", 5, 50, cat="gpu_user_annotation", stream=20)
    generic = "ncclDevKernel_Generic_1(x)"
    trace = passed([drawn, kernel(generic, 5, 50, 1, stream=20), kernel(generic, 6, 40, 2, stream=21), kernel(KERNEL, 45, 48, 3, stream=20)])
    assert collectives(trace, "kind") == [["all_gather"], [None], ["all_reduce"]]


def test_the_generic_kernel_of_rccl_takes_its_kind_from_the_record_and_is_unknown_without() -> None:
    trace = passed(
        [record("reduce_scatter", 0, 9), launch(2, 3, 1), kernel("ncclDevKernel_Generic(x)", 5, 50, 1), kernel("ncclDevKernel_Generic(x)", 60, 70, 2)]
    )
    assert collectives(trace, "kind", "nbytes") == [["reduce_scatter", 32], [None, None]]


def test_a_launch_that_outlasts_its_record_still_names_it_by_external_id() -> None:
    trace = passed([record("allgather", 0, 4, **{"External id": 7}), launch(2, 6, 1), kernel("ncclDevKernel_Generic(x)", 8, 20, 1, **{"External id": 7})])
    assert collectives(trace, "kind", "group_ranks", "nbytes") == [["all_gather", "0,1", 32]]


def test_a_kernel_launched_for_several_calls_has_their_group_and_the_sum_of_their_sizes() -> None:
    trace = passed(
        [
            record("allreduce", 0, 2),
            record("allreduce", 3, 5, **{"In msg nelems": 100, "Out msg nelems": 100}),
            launch(7, 8, 1),
            record("allreduce", 10, 14),  # one of its own
            launch(11, 12, 2),
            kernel(KERNEL, 9, 20, 1),
            kernel(KERNEL, 21, 30, 2),
        ]
    )
    assert collectives(trace, "group_ranks", "nbytes") == [["0,1", 432], ["0,1", 32]]


def test_a_batch_with_a_call_of_unknown_size_has_no_size() -> None:
    trace = passed([record("allreduce", 0, 2), record("allreduce", 3, 5, dtype="Float4"), launch(7, 8, 1), kernel(KERNEL, 9, 20, 1)])
    assert collectives(trace, "group_ranks", "nbytes") == [["0,1", None]]


def test_an_unknown_element_type_leaves_the_size_unknown_and_is_named() -> None:
    trace = passed(
        [kernel(KERNEL, 1, 9, 1, **{**ALL_REDUCE, "dtype": "Float4_e2m1fn_x2"}), kernel(KERNEL, 10, 19, 2, **{**ALL_REDUCE, "dtype": "Float8_e4m3fn"})]
    )
    assert collectives(trace, "nbytes") == [[None], [8]]
    (finding,) = [f for f in trace.findings if f["code"] == "element_type_unknown"]
    assert (finding["count"], "Float4_e2m1fn_x2" in finding["message"]) == (1, True)


def test_zero_bytes_of_a_send_are_unknown_and_of_an_all_to_all_the_truth() -> None:
    empty = {**ALL_REDUCE, "In msg nelems": 0, "Out msg nelems": 0}
    trace = passed(
        [
            kernel("ncclDevKernel_SendRecv", 1, 9, 1, **{**empty, "Collective name": "send"}),
            kernel("ncclDevKernel_SendRecv", 10, 19, 2, **{**empty, "Collective name": "all_to_allv"}),
        ]
    )
    assert collectives(trace, "kind", "nbytes") == [["all_to_all", 0]]
    assert p2p_calls(trace)["p2p_calls"][["kind", "nbytes", "peer"]].astype(object).fillna("?").values.tolist() == [["send", "?", 1]]


def test_without_any_execution_the_innermost_host_records_stand_for_the_calls() -> None:
    trace = passed(
        [
            op("c10d::allreduce_", 0, 50),
            record("allreduce", 5, 45),
            record("wait", 46, 48),
            record("allreduce", 60, 61, **{"Group size": 1}),  # alone in its group: nothing to communicate
            record("send", 70, 90),
        ]
    )
    assert collectives(trace, "kind", "start_ns", "end_ns", "exposed_ns", "time_source") == [["all_reduce", 5000, 45000, None, "host"]]
    sends = p2p_calls(trace)["p2p_calls"]
    assert sends[["kind", "peer", "time_source"]].values.tolist() == [["send", 1, "host"]]
    assert codes(trace) == ["host_time_only"]


def test_host_records_beside_kernels_are_no_calls_of_their_own() -> None:
    trace = passed([record("allreduce", 0, 9), launch(2, 3, 1), kernel(KERNEL, 5, 50, 1), record("allreduce", 60, 69)])
    assert collectives(trace, "kind", "time_source") == [["all_reduce", "device"]]


def test_gloo_beside_nccl_is_host_time() -> None:
    trace = passed([record("allreduce", 0, 9), launch(2, 3, 1), kernel(KERNEL, 5, 50, 1), op("gloo:broadcast", 60, 70, cat="user_annotation", tid=300)])
    assert collectives(trace, "kind", "time_source", "exposed_ns") == [["all_reduce", "device", 45000], ["broadcast", "host", None]]


def test_in_a_job_of_two_the_peer_is_the_other() -> None:
    info = {"rank": 1, "world_size": 2, "backend": "nccl"}
    trace = passed([kernel("ncclDevKernel_SendRecv", 1, 9, 1, **{"Collective name": "recv", "In msg nelems": 4, "dtype": "Float"})], distributedInfo=info)
    assert p2p_calls(trace)["p2p_calls"][["kind", "peer", "nbytes"]].values.tolist() == [["recv", 0, 16]]


@pytest.mark.parametrize(
    ("ranks", "size", "config", "want"),
    [
        ("[0, 1, 2, ...]", 4, [{"pg_name": "0", "pg_desc": "fsdp", "ranks": [0, 1, 2, 3]}], "0,1,2,3"),
        ("[0, 1, 2, ...]", 4, [{"pg_name": "0", "ranks": "[0, 1, 2, 3]"}], "0,1,2,3"),
        ("[0, 1, ..., 5]", 4, [{"pg_name": "0", "ranks": [0, 1, 2, 3]}], None),  # 5 is none of these: another group of that name
        ("[0, 1, ..., 5]", 4, [{"pg_name": "0", "ranks": [0, 1, 2, 3, 5]}], None),
        ("[0, 1, ...]", 4, [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "0", "ranks": [0, 1, 4, 5]}], None),
        ([0, 1, 2, 3], 4, [], "0,1,2,3"),
        (None, 4, [{"pg_name": "0", "ranks": [0, 1, 2, 3]}], "0,1,2,3"),
        ("[0, 1, ...]", 8, [], "0,1,2,3,4,5,6,7"),  # as large as the job
        ("[0, 1, ...]", 4, [], None),
    ],
)
def test_ranks_that_the_trace_cuts_come_from_its_list_of_groups(ranks: Any, size: int, config: list[dict[str, Any]], want: str | None) -> None:
    said = {**ALL_REDUCE, "Group size": size, "Process Group Ranks": ranks}
    info = {"rank": 0, "world_size": 8, "backend": "nccl", "pg_config": config}
    assert collectives(passed([kernel(KERNEL, 1, 9, 1, **said)], distributedInfo=info), "group_ranks") == [[want]]


def test_gloo_sizes_follow_the_element_type_of_the_execution() -> None:
    shapes = {"Input Dims": [[[4, 8]], []], "Input type": ["TensorList", ""]}
    trace = passed(
        [
            op("c10d::allreduce_", 0, 5, **shapes),
            op("gloo:all_reduce", 2, 9, cat="user_annotation", tid=300, **{"Input Dims": [[4, 8]], "Input type": ["c10::BFloat16"]}),
        ]
    )
    assert collectives(trace, "nbytes", "dtype") == [[64, "c10::BFloat16"]]


@pytest.mark.parametrize(("operator", "kind"), [("c10d::allgather_", "all_gather"), ("c10d::gather_", "gather"), ("c10d::scatter_", "scatter")])
def test_lists_of_tensors_show_one_part_of_the_whole(operator: str, kind: str) -> None:
    shapes = {"Input Dims": [[], [[4]]], "Input type": ["", "TensorList"]}
    rows = [
        op(operator, 0, 5, **shapes),
        op(f"gloo:{kind}", 2, 9, cat="user_annotation", tid=300, **{"Input Dims": [[4]], "Input type": ["float"]}),
    ]
    only = {"rank": 0, "world_size": 3, "backend": "gloo", "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2]}]}
    assert collectives(passed(rows, distributedInfo=only), "kind", "group_ranks", "nbytes") == [[kind, "0,1,2", 48]]
    two = {**only, "pg_config": [*only["pg_config"], {"pg_name": "1", "ranks": [0, 1]}]}
    assert collectives(passed(rows, distributedInfo=two), "kind", "group_ranks", "nbytes") == [[kind, None, None]]


def test_a_wait_inside_a_wait_counts_once() -> None:
    wait = "_c10d_functional::wait_tensor"
    table = host_waits(passed([op(wait, 0, 10), op(wait, 2, 8), op(wait, 20, 25)]))["host_waits"]
    assert table[["waits", "host_wait_ns"]].values.tolist() == [[2, 15000]]


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        ([op("aten::mm", 1, 5), record("allreduce", 6, 9)], {"compute_ns": 4000, "comm_ns": None, "overlap_ns": None, "busy_ns": None, "idle_ns": None}),
        ([kernel("gemm", 1, 5, 1), record("allreduce", 6, 9)], {"compute_ns": 4000, "comm_ns": None, "overlap_ns": None, "busy_ns": 4000, "idle_ns": 0}),
    ],
)
def test_what_host_records_leave_unknown_is_null_and_not_zero(rows: list[dict[str, Any]], want: dict[str, int | None]) -> None:
    row = busy(passed(rows))["busy"].iloc[0]
    assert {c: None if pd.isna(row[c]) else int(row[c]) for c in want} == want
