"""Steps and busy time on a few literal kernels."""

from __future__ import annotations

from tests.builders import GLOO, RankTrace, kernel, launch, op, passed, span
from tracekit.facts.busy import busy
from tracekit.facts.steps import steps


def in_step(trace: RankTrace, step: int) -> dict[str, int]:
    table = busy(trace)["busy"]
    return {k: int(v) for k, v in table[table["step"].eq(step).fillna(False)].iloc[0].items() if str(k).endswith("_ns")}


def test_parts_of_a_step_add_up() -> None:
    trace = passed(
        [
            span("ProfilerStep#1", 0, 20),
            *(launch(i, i + 0.5, i) for i in (1, 2, 3)),
            kernel("gemm", 4, 10, 1),
            kernel("ncclDevKernel_AllReduce", 8, 14, 2, stream=9),
            kernel("Memcpy HtoD", 13, 16, 3, cat="gpu_memcpy", stream=10),
        ]
    )
    assert in_step(trace, 1) == {
        "span_ns": 20_000,
        "busy_ns": 12_000,
        "compute_ns": 6_000,
        "comm_ns": 6_000,
        "overlap_ns": 2_000,
        "exposed_comm_ns": 4_000,
        "memcpy_ns": 3_000,
        "exposed_memcpy_ns": 2_000,
        "idle_ns": 8_000,
        "emulated_ns": 0,
        "kernel_sum_ns": 12_000,
        "graph_ns": 0,
    }


def test_an_asynchronous_host_gives_device_windows_exact_to_the_nanosecond() -> None:
    base = 1_790_857_026_000_000_000
    trace = passed(
        [
            span("ProfilerStep#1", 0, 2),
            launch(1, 1.5, 1),
            span("ProfilerStep#2", 2, 4),
            launch(3, 3.5, 2),
            kernel("a", 3, 10.001, 1),
            kernel("b", 10.003, 17, 2),
        ],
        base=base,
    )
    table = steps(trace)["steps"]
    assert table["window_source"].tolist() == ["device", "device"]
    assert (table["window_start_ns"] - base).tolist() == [3000, 10001]
    assert (table["window_end_ns"] - base).tolist() == [10001, 17000]


def test_the_first_step_is_warm_up_only_when_it_is_longer_than_the_others() -> None:
    slow = [span("ProfilerStep#1", 0, 12), span("ProfilerStep#2", 12, 22), span("ProfilerStep#3", 22, 32)]
    assert steps(passed(slow))["steps"]["warmup"].tolist() == [True, False, False]
    assert steps(passed([span("ProfilerStep#1", 0, 12)]))["steps"]["warmup"].tolist() == [False]


def test_on_a_cpu_run_aten_operators_compute_and_waiting_for_gloo_does_not() -> None:
    trace = passed(
        [
            span("ProfilerStep#1", 0, 30),
            op("aten::linear", 0, 10),
            op("aten::addmm", 2, 8),
            op("c10d::allreduce_", 10, 11),
            op("_c10d_functional::wait_tensor", 11, 20),
            span("gloo:all_reduce", 10.5, 19, tid=GLOO),
            span("emulated_compute", 20, 25),
        ]
    )
    got = in_step(trace, 1)
    assert (got["compute_ns"], got["comm_ns"], got["emulated_ns"], got["idle_ns"]) == (15_000, 8_500, 5_000, 30_000 - 23_500)
