"""What each pass adds to the events, drawn on a few rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import AUTOGRAD, GLOO, backward, column, forward, kernel, launch, op, passed, span
from tracekit.vocabulary import Kind, Phase


def test_names_tell_communication_from_compute() -> None:
    trace = passed(
        [kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", 0, 1), kernel("gemm", 1, 2), kernel("void cross_device_reduce_1stage<half>", 2, 3)]
    )
    assert column(trace, "kind") == {
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)": Kind.COMMUNICATION,
        "gemm": Kind.COMPUTE,
        "void cross_device_reduce_1stage<half>": Kind.COMMUNICATION,
    }
    assert column(trace, "collective")["void cross_device_reduce_1stage<half>"] == "all_reduce"


def test_a_kernel_belongs_to_the_step_and_layer_of_its_launch_however_late_it_runs() -> None:
    trace = passed(
        [
            span("ProfilerStep#4", 0, 10),
            span("layers.2.mlp.forward", 1, 5),
            launch(2, 3, 11),
            span("ProfilerStep#5", 10, 20),
            kernel("gemm", 15, 18, 11),
        ]
    )
    assert column(trace, "step")["gemm"] == 4
    assert (column(trace, "layer")["gemm"], column(trace, "phase")["gemm"], column(trace, "microbatch")["gemm"]) == ("layers.2.mlp", Phase.FORWARD, 0)


def test_async_annotations_are_never_parents() -> None:
    trace = passed([span("nccl:all_reduce", 0, 5), op("aten::mm", 1, 3)])
    assert column(trace, "parent")["aten::mm"] is None


def test_backward_without_ranges_finds_its_layer_by_sequence_number() -> None:
    trace = passed(
        [
            span("layers.0.forward", 0, 4),
            forward("aten::linear", 1, 3, 50),
            backward("AddmmBackward0", 10, 14, 50, tid=AUTOGRAD),
            op("aten::mm", 11, 13, tid=AUTOGRAD),
            backward("torch::autograd::AccumulateGrad", 14, 16, None, tid=AUTOGRAD),
            op("aten::detach", 15, 15.5, tid=AUTOGRAD),
        ]
    )
    assert (column(trace, "layer")["aten::mm"], column(trace, "layer_source")["aten::mm"]) == ("layers.0", "sequence")
    assert column(trace, "layer")["aten::detach"] == "layers.0"
    assert column(trace, "phase")["aten::mm"] == Phase.BACKWARD


def test_a_forward_inside_backward_is_a_repetition() -> None:
    trace = passed(
        [
            forward("aten::linear", 0, 1, 50),
            backward("AddmmBackward0", 2, 9, 50),
            forward("aten::linear", 3, 5, 60),
            op("aten::addmm", 3.5, 4.5),
            op("aten::mm", 6, 7),
        ]
    )
    assert (column(trace, "recompute")["aten::addmm"], column(trace, "recompute")["aten::mm"]) == (True, False)


def test_an_autograd_function_inside_backward_alone_repeats_nothing() -> None:
    trace = passed(
        [
            forward("Redistribute", 0, 1, 50),
            backward("RedistributeBackward", 2, 9, 50),
            forward("NestedRedistribute", 3, 5, 60),
            forward("MyFunction", 6, 7, 61),
        ]
    )
    assert not trace.events["recompute"].any()


def test_backward_on_another_thread_runs_in_the_action_of_that_time() -> None:
    trace = passed([span("PP:1B3", 0, 10), backward("MmBackward0", 2, 5, 7, tid=AUTOGRAD), span("PP:1F4", 12, 20), op("aten::mm", 13, 14)])
    assert (column(trace, "action")["aten::mm"], column(trace, "microbatch")["aten::mm"], column(trace, "stage")["aten::mm"]) == ("F", 4, 1)
    node = "autograd::engine::evaluate_function: MmBackward0"
    assert (column(trace, "action")[node], column(trace, "microbatch")[node]) == ("B", 3)


def test_gloo_executions_follow_their_calls_in_order_and_a_reduce_scatter_keeps_its_name() -> None:
    shapes = {"Input Dims": [[[4, 8]], []], "Input type": ["TensorList", "float"]}
    trace = passed(
        [
            op("c10d::_reduce_scatter_base_", 0, 1, **shapes),
            op("c10d::allreduce_", 2, 3, **shapes),
            span("gloo:all_reduce", 1.5, 4, tid=GLOO),
            span("gloo:all_reduce", 4.5, 6, tid=GLOO + 1),
        ]
    )
    runs = trace.events[trace.events["kind"].eq(Kind.COMMUNICATION)].sort_values("ts")
    assert runs["collective"].tolist() == ["reduce_scatter", "all_reduce"]
    assert runs["nbytes"].tolist() == [128, 128]


def test_emulated_compute_is_compute() -> None:
    assert column(passed([span("emulated_compute", 0, 5)]), "kind")["emulated_compute"] == Kind.COMPUTE


def test_fully_shard_names_the_layer_that_it_gathers_not_the_one_that_runs() -> None:
    trace = passed([span("layers.2.forward", 0, 20), span("FSDP::all_gather (layers.3)", 1, 6), launch(2, 3, 1), kernel("ncclDevKernel_AllGather", 4, 9, 1)])
    assert (column(trace, "layer")["ncclDevKernel_AllGather"], column(trace, "layer_source")["ncclDevKernel_AllGather"]) == ("layers.3", "fsdp")


@pytest.mark.parametrize(
    ("name", "layer", "phase"),
    [
        ("model.layers.3.mlp", "model.layers.3.mlp", None),
        ("layers.3 fwd", "layers.3", Phase.FORWARD),
        ("TransformerBlock_3", "layers.3", None),
        ("decoder.layers.3.self_attn backward", "decoder.layers.3.self_attn", Phase.BACKWARD),
        ("data loading", None, None),
        ("layers.3.weight copy of it", None, None),
    ],
)
def test_ranges_that_somebody_named_after_a_layer_tell_it(name: str, layer: str | None, phase: str | None) -> None:
    trace = passed([span(name, 0, 9), op("aten::mm", 1, 3)])
    assert (column(trace, "layer")["aten::mm"], column(trace, "phase")["aten::mm"]) == (layer, phase)


def test_module_frames_tell_the_layer_and_its_part() -> None:
    def frame(name: str, start: float, end: float) -> dict[str, Any]:
        return op(f"nn.Module: {name}", start, end, cat="python_function")

    trace = passed(
        [
            frame("Model_0", 0, 100),
            frame("DecoderLayer_0", 1, 40),
            frame("RMSNorm_0", 2, 5),
            op("norm", 3, 4),
            frame("SelfAttention_0", 6, 20),
            frame("Linear_0", 7, 9),
            op("projection", 7.5, 8),
            op("residual", 21, 22),
            frame("DecoderLayer_1", 41, 80),
            frame("LlamaMLP_1", 42, 60),
            op("up", 43, 44),
        ]
    )
    found = column(trace, "layer")
    assert [found[n] for n in ("norm", "projection", "residual", "up")] == ["layers.0.norm", "layers.0.attention", "layers.0", "layers.1.mlp"]
