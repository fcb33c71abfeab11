"""One rank's events become its collective calls, sends and receives."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tracekit import schema
from tracekit.facts.calls import calls as collectives
from tracekit.facts.p2p_calls import p2p_calls
from tracekit.passes.kinds import kinds
from tracekit.trace import RankMeta, RankTrace

DEFAULT = {"thread": 0, "recompute": False, "step": 1}
ALL_REDUCE = {"kind": "communication", "name": "ncclDevKernel_AllReduce", "collective": "all_reduce", "thread": 9, "device": 0, "stream": 20, "nbytes": 4096}


def trace(*rows: dict[str, Any], **meta: Any) -> RankTrace:
    """Events as the passes leave them; ``at`` is (start, end), ``parent`` and ``launch`` are row numbers."""
    full = [{**DEFAULT, **r, "ts": r["at"][0], "dur": r["at"][1] - r["at"][0]} for r in rows]
    frame = pd.DataFrame({c: pd.Series([r.get(c) for r in full], dtype=column.dtype) for c, column in schema.EVENTS.items()})
    return RankTrace(schema.conform(frame, schema.EVENTS), schema.empty(schema.SAMPLES), RankMeta(rank=0, **{"device_type": "gpu", **meta}))


def calls(one: RankTrace) -> dict[str, pd.DataFrame]:
    """Both tables of calls."""
    return {**collectives(one), **p2p_calls(one)}


def directions(*rows: dict[str, Any]) -> list[str | None]:
    return list(calls(trace(*rows))["calls"]["direction"])


def test_tables_have_the_columns_of_the_schema() -> None:
    got = calls(trace({**ALL_REDUCE, "at": (0, 10)}))
    schema.validate(got["calls"], schema.CALLS)
    schema.validate(got["p2p_calls"], schema.P2P_CALLS)


def test_exposed_is_what_no_compute_of_the_same_device_covers() -> None:
    got = calls(
        trace(
            {**ALL_REDUCE, "at": (0, 100)},
            {"kind": "compute", "name": "gemm", "device": 0, "stream": 7, "at": (20, 50)},
            {"kind": "compute", "name": "gelu", "device": 0, "stream": 8, "at": (40, 60)},
            {"kind": "compute", "name": "gemm", "device": 1, "stream": 7, "at": (60, 100)},
            {"kind": "memcpy", "name": "copy", "device": 0, "stream": 7, "at": (60, 100)},
        )
    )["calls"]
    assert got[["start_ns", "end_ns", "exposed_ns"]].values.tolist() == [[0, 100, 60]]


def test_on_a_cpu_run_operators_that_compute_hide_gloo() -> None:
    got = calls(
        trace(
            {"kind": "operator", "name": "autograd::engine::evaluate_function: AddmmBackward0", "at": (0, 60)},
            {"kind": "operator", "name": "aten::addmm", "parent": 0, "at": (10, 40)},
            {"kind": "operator", "name": "c10d::allreduce_", "collective": "all_reduce", "at": (60, 100)},
            {"kind": "communication", "name": "gloo:all_reduce", "collective": "all_reduce", "thread": 3, "launch": 2, "at": (30, 90)},
            device_type="cpu",
        )
    )["calls"]
    assert got[["exposed_ns", "device", "stream"]].values.tolist() == [[50, 0, 3]]


@pytest.mark.parametrize(
    ("around", "event", "want"),
    [
        ("FSDP::all_gather (layers.3)", {"collective": "all_gather", "phase": "forward"}, "parameter"),
        ("FSDP::all_gather (layers.3)", {"collective": "all_gather", "phase": "backward", "recompute": True}, "parameter"),
        ("FSDP::post_backward_reduce (layers.3)", {"collective": "reduce_scatter", "phase": "backward"}, "gradient"),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", {"phase": "backward"}, "gradient"),
        ("Optimizer.step#AdamW.step", {"phase": "optimizer", "nbytes": 4}, "optimizer"),
        ("layers.3.forward", {"phase": "forward"}, "forward"),
        ("layers.3.backward", {"phase": "backward"}, "backward"),
        ("layers.3.forward", {"phase": "backward", "recompute": True}, "recompute"),
        ("user", {"phase": "backward", "group_desc": "mesh_dp"}, "gradient"),
        ("user", {"phase": "forward", "group_desc": "mesh_dp_shard", "collective": "all_gather"}, "parameter"),
        ("user", {"phase": None}, None),
    ],
)
def test_direction_is_read_from_where_the_call_was_issued(around: str, event: dict[str, Any], want: str | None) -> None:
    outer = {"kind": "range", "name": around, "at": (0, 50)}
    operator = {"kind": "operator", "name": "c10d::allreduce_", "collective": "all_reduce", "parent": 0, "at": (1, 40)}
    launch = {"kind": "launch", "name": "cudaLaunchKernelExC", "parent": 1, "at": (2, 9)}
    assert directions(outer, operator, launch, {**ALL_REDUCE, "launch": 2, "at": (10, 60), **event}) == [want]


def test_between_backward_and_optimizer_a_scalar_is_the_norm_and_a_tensor_a_gradient() -> None:
    backward = {"kind": "operator", "name": "MmBackward0", "phase": "backward", "at": (0, 10)}
    calls_ = [{"kind": "operator", "name": "c10d::allreduce_", "collective": "all_reduce", "at": at} for at in ((20, 25), (30, 35), (60, 65))]
    optimizer = {"kind": "range", "name": "Optimizer.step#SGD.step", "phase": "optimizer", "at": (40, 50)}
    # DTensor calls its redistributions forward wherever they run
    runs = [
        {**ALL_REDUCE, "phase": p, "nbytes": n, "launch": row, "at": (100 * row, 100 * row + 5)}
        for row, n, p in ((1, 4096, "forward"), (2, 4, None), (4, 4096, None))
    ]
    assert directions(backward, *calls_[:2], optimizer, calls_[2], *runs) == ["gradient", "optimizer", None]


def test_a_bucket_spans_the_layers_whose_gradients_came_since_the_one_before() -> None:
    node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    nodes = [{"kind": "operator", "name": node, "phase": "backward", "layer": f"layers.{n}", "at": (10 * i, 10 * i + 9)} for i, n in enumerate((3, 2, 1, 0))]
    buckets = [{**ALL_REDUCE, "phase": "backward", "launch": row, "layer": f"layers.{n}", "at": (100 * row, 100 * row + 5)} for row, n in ((1, 2), (3, 0))]
    got = calls(trace(*nodes, *buckets))["calls"]
    assert got[["layer", "layer_last", "direction"]].values.tolist() == [["layers.2", "layers.3", "gradient"], ["layers.0", "layers.1", "gradient"]]


def test_a_send_recv_kernel_below_an_all_to_all_is_one() -> None:
    got = calls(
        kinds(
            trace(
                {"kind": "operator", "name": "c10d::alltoall_base_", "collective": "all_to_all", "at": (0, 50)},
                {"kind": "launch", "name": "cudaLaunchKernelExC", "parent": 0, "at": (2, 9)},
                {**ALL_REDUCE, "name": "ncclKernel_SendRecv", "collective": "send_recv", "launch": 1, "at": (10, 60)},
            )
        )
    )
    assert got["calls"]["kind"].tolist() == ["all_to_all"]
    assert len(got["p2p_calls"]) == 0


def p2p(row: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "operator", "thread": 0, "group": "1", "group_desc": "mesh_pp", "group_ranks": "0,1,2,3", "nbytes": 64, **row}


def test_a_coalesced_kernel_becomes_one_row_per_operation_before_it() -> None:
    kernel = {"kind": "communication", "name": "ncclDevKernel_SendRecv", "collective": "send_recv", "thread": 9, "device": 0, "stream": 28}
    got = calls(
        trace(
            p2p({"name": "c10d::send", "collective": "send", "peer": 1, "at": (0, 5)}),
            p2p({"name": "record_param_comms", "collective": "send", "peer": 1, "parent": 0, "at": (1, 4)}),
            p2p({"name": "c10d::recv_", "collective": "recv", "peer": 1, "at": (6, 9)}),
            {"kind": "launch", "name": "cudaLaunchKernelExC", "at": (11, 14)},
            p2p({"name": "c10d::recv_", "collective": "recv", "peer": 1, "at": (20, 24)}),
            {"kind": "launch", "name": "cudaLaunchKernelExC", "at": (26, 29)},
            {**kernel, "launch": 3, "at": (15, 60)},
            {**kernel, "launch": 5, "at": (60, 90)},
        )
    )["p2p_calls"]
    assert got[["start_ns", "kind", "peer", "batch"]].values.tolist() == [[15, "send", 1, 0], [15, "recv", 1, 0], [60, "recv", 1, 1]]
    assert got["direction"].tolist() == ["forward", "backward", "backward"]  # rank 0: activations go up to 1, gradients come down


@pytest.mark.parametrize(
    ("around", "kind", "want"),
    [("PP:1RECV_F3", "recv", ["forward", 3]), ("PP:1SEND_B2", "send", ["backward", 2]), ("Backward 5", "recv", ["backward", 5])],
)
def test_ranges_of_the_runtime_name_direction_and_microbatch(around: str, kind: str, want: list[Any]) -> None:
    got = calls(
        trace(
            {"kind": "range", "name": around, "at": (0, 90)},
            p2p({"name": f"c10d::{kind}", "collective": kind, "peer": 1, "parent": 0, "at": (1, 9)}),
            {"kind": "communication", "name": f"gloo:{kind}", "collective": kind, "peer": 1, "group_ranks": "0,1,2,3", "launch": 1, "at": (10, 60)},
            device_type="cpu",
        )
    )["p2p_calls"]
    assert got[["direction", "microbatch"]].values.tolist() == [want]


def test_a_gloo_send_starts_with_the_call_that_issued_it() -> None:
    got = calls(
        trace(
            p2p({"name": "c10d::send", "collective": "send", "peer": 1, "at": (5, 20)}),
            {"kind": "communication", "name": "gloo:send", "collective": "send", "peer": 1, "launch": 0, "at": (19, 60)},
            device_type="cpu",
        )
    )["p2p_calls"]
    assert got[["start_ns", "end_ns", "exposed_ns"]].values.tolist() == [[5, 60, 55]]


def test_with_one_stage_the_microbatch_is_the_running_number() -> None:
    sends = [
        {"kind": "communication", "name": "gloo:send", "collective": "send", "peer": 1, "stage": 0, "group_ranks": "0,1", "step": s, "at": (10 * i, 10 * i + 5)}
        for i, s in enumerate((1, 1, 2))
    ]
    got = calls(trace(*sends, device_type="cpu"))["p2p_calls"]
    assert got[["direction", "microbatch"]].values.tolist() == [["forward", 0], ["forward", 1], ["forward", 0]]


def test_the_root_group_of_fsdp_is_no_layer() -> None:
    gather = {**ALL_REDUCE, "collective": "all_gather", "layer": "head", "layer_source": "range", "launch": 1}
    spans = [
        {"kind": "range", "name": n, "at": (0, 50), "parent": p} for n, p in (("head.backward", None), ("FSDP::all_gather", 0), ("FSDP::all_gather (head)", 0))
    ]
    got = calls(trace(*spans, {**gather, "at": (10, 20)}, {**gather, "launch": 2, "at": (30, 40)}))["calls"]
    assert got[["layer", "layer_source"]].values.tolist() == [[None, None], ["head", "range"]]


def test_ring_attention_keeps_the_phase_of_its_call() -> None:
    send = {
        "kind": "communication",
        "name": "ncclDevKernel_SendRecv",
        "collective": "send",
        "peer": 3,
        "device": 0,
        "group_desc": "mesh_cp",
        "group_ranks": "0,1,2,3",
    }
    got = calls(trace({**send, "phase": "forward", "at": (0, 9)}, {**send, "phase": "backward", "at": (10, 19)}))["p2p_calls"]
    assert got["direction"].tolist() == ["forward", "backward"]


def test_one_bucket_of_a_whole_stage_says_which_layers_it_holds() -> None:
    layered = [{"kind": "operator", "name": "aten::mm", "at": (i, i + 1), "layer": f"layers.{n}.mlp", "layer_source": "range"} for i, n in enumerate((4, 5, 6))]
    reduce = [
        {"kind": "range", "name": "FSDP::post_backward_reduce", "at": (10, 20)},
        {"kind": "operator", "name": "c10d::allreduce_", "collective": "all_reduce", "at": (11, 12), "parent": 3},
        {**ALL_REDUCE, "at": (30, 40), "launch": 4},
    ]
    got = calls(trace(*layered, *reduce))["calls"]
    assert got[["layer", "layer_last", "layer_source", "direction"]].values.tolist() == [["layers.4", "layers.6", "range", "gradient"]]
    named = {"kind": "range", "name": "FSDP::all_gather (layers.4)", "at": (50, 60)}
    assert calls(trace(*layered, *reduce, named))["calls"]["layer"].isna().all()
