"""Which step device work belongs to when its launch is not in the trace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import column, kernel, launch, op, passed, span
from tracekit.trace import RankTrace


def told(trace: RankTrace) -> list[tuple[str, str, int | None]]:
    return [(f["code"], f["severity"], f["count"]) for f in trace.findings]


TWO_STEPS = [span("ProfilerStep#1", 0, 10), span("ProfilerStep#2", 10, 20)]


def test_a_stream_keeps_the_order_of_launches() -> None:
    trace = passed(
        [
            *TWO_STEPS,
            *(launch(at, at + 1, n) for at, n in ((1, 1), (5, 3), (11, 5))),
            kernel("first", 2, 3, 1),
            kernel("between", 3, 4, 2),
            kernel("second", 12, 13, 3),
            kernel("border", 13, 14, 4),
            kernel("third", 15, 16, 5),
        ]
    )
    step = column(trace, "step")
    assert [step[n] for n in ("first", "between", "second", "border", "third")] == [1, 1, 1, None, 2]
    assert told(trace)[0] == ("work_without_launch", "warning", 2)
    assert "for 1 no step" in trace.findings[0]["message"]


def test_without_any_launch_call_work_belongs_to_the_step_it_ran_in() -> None:
    trace = passed([*TWO_STEPS, kernel("a", 1, 9), kernel("b", 12, 20)])
    assert [column(trace, "step")[n] for n in ("a", "b")] == [1, 2]
    assert told(trace) == [("steps_by_time", "info", 2)]


def test_work_across_the_end_of_a_step_shows_that_time_tells_nothing() -> None:
    trace = passed([*TWO_STEPS, kernel("a", 1, 9), kernel("b", 9, 12)])
    assert [column(trace, "step")[n] for n in ("a", "b")] == [None, None]
    assert told(trace) == [("steps_without_launches", "warning", 2)]


def test_steps_of_old_traces_are_operators() -> None:
    trace = passed([op("ProfilerStep#7", 0, 10, cat="Operator"), op("aten::mm", 1, 3, cat="Operator")])
    assert column(trace, "step")["aten::mm"] == 7


@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel"])
def test_runtime_and_driver_calls_launch(call: str) -> None:
    category = "cuda_driver" if call.startswith("cu") else "hip_runtime"
    trace = passed([*TWO_STEPS, op(call, 1, 2, cat=category, correlation=5), kernel("triton_", 12, 13, 5)])
    assert column(trace, "step")["triton_"] == 1


def test_the_kernels_of_a_graph_share_its_launch() -> None:
    events: list[dict[str, Any]] = [*TWO_STEPS, op("cudaGraphLaunch", 1, 2, cat="cuda_runtime", correlation=5)]
    trace = passed([*events, *(kernel(f"k{i}", 11 + i, 12 + i, 5) for i in range(3))])
    assert [column(trace, "step")[f"k{i}"] for i in range(3)] == [1, 1, 1]


def test_an_external_id_leads_to_the_operator_where_the_launch_is_absent() -> None:
    events = [op("aten::mm", 1, 4, **{"External id": 41}), kernel("gemm", 12, 13, 9, **{"External id": 41})]
    trace = passed([*TWO_STEPS, *events])
    assert column(trace, "step")["gemm"] == 1


def test_the_id_zero_of_several_calls_names_none_of_them() -> None:
    several = [op("cudaFree", 1, 2, cat="cuda_runtime", correlation=0), op("cudaMalloc", 2, 3, cat="cuda_runtime", correlation=0)]
    assert column(passed([*TWO_STEPS, *several, kernel("k", 5, 6, 0)]), "launch")["k"] is None
    assert column(passed([*TWO_STEPS, launch(1, 2, 0), kernel("k", 5, 6, 0)]), "step")["k"] == 1
