"""What was recorded only in part is said, with names and numbers, and a whole recording says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import backward, kernel, launch, op, passed, span
from tracekit.facts.busy import busy
from tracekit.facts.steps import steps
from tracekit.trace import RankTrace


def told(trace: RankTrace) -> list[tuple[str, str, int | None]]:
    return [(f["code"], f["severity"], f["count"]) for f in trace.findings]


def run(times: list[float], work: list[int], lost: dict[int, int] | None = None, first: int = 1) -> list[dict[str, Any]]:
    """Steps of these durations (µs) with so many kernels each; ``lost`` launches more per step have no kernel."""
    events, at, number = [], 1000.0, 1
    for i, (time, pieces) in enumerate(zip(times, work, strict=True)):
        events.append(span(f"ProfilerStep#{first + i}", at, at + time))
        for k in range(pieces + (lost or {}).get(first + i, 0)):
            begin = at + k * time / 200
            events.append(launch(begin, begin + time / 400, number))
            if k < pieces:
                events.append(kernel("gemm", begin + time / 400, begin + time / 250, number))
            number += 1
        at += time
    return events


def whole(trace: RankTrace) -> list[bool]:
    return list(steps(trace)["steps"]["complete"])


def test_a_whole_recording_says_nothing() -> None:
    trace = passed(run([100, 100, 100], [5, 5, 5]))
    assert (whole(trace), told(trace)) == ([True] * 3, [])


@pytest.mark.parametrize("at", [1, 3])
def test_a_step_whose_launches_have_no_kernels_is_cut(at: int) -> None:
    trace = passed(run([100, 100, 100], [5, 5, 5], {at: 2}))
    assert whole(trace) == [n != at for n in (1, 2, 3)]
    assert told(trace) == [("steps_cut", "warning", 1)]
    assert f"step {at} was recorded in part: 2 of its 7 kernel launches have no device work" in trace.findings[0]["message"]


def test_single_launches_that_failed_cut_no_step() -> None:
    trace = passed(run([100, 100], [150, 150], {1: 1}))
    assert whole(trace) == [True, True]
    assert told(trace) == [("launches_without_work", "warning", 1)]


def test_a_step_without_work_is_cut_and_has_no_busy_time() -> None:
    trace = passed(run([100, 100, 30], [5, 5, 0]))
    assert whole(trace) == [True, True, False]
    assert "step 3 was recorded in part: it holds no device work" in trace.findings[0]["message"]
    assert busy(trace)["busy"]["step"].dropna().tolist() == [1, 2]


@pytest.mark.parametrize(("times", "work"), [([100, 100, 40], [6, 6, 2]), ([40, 100, 100], [2, 6, 6])])
def test_the_first_or_last_step_is_cut_when_short_of_time_and_work(times: list[float], work: list[int]) -> None:
    trace = passed(run(times, work))
    assert whole(trace) == [t == 100 for t in times]
    assert "less than half of every other step" in trace.findings[0]["message"]


@pytest.mark.parametrize(
    ("times", "work"),
    [
        ([100, 100, 40], [6, 6, 6]),  # an asynchronous host is ahead of all its work
        ([100, 40, 100], [6, 2, 6]),  # not at the edge of the recording
        ([100, 40], [6, 2]),  # which of two is the usual one?
    ],
)
def test_a_short_step_alone_is_no_cut(times: list[float], work: list[int]) -> None:
    assert all(whole(passed(run(times, work))))


def test_the_only_step_is_never_dropped() -> None:
    assert whole(passed(run([100], [5]))) == [True]
    trace = passed(run([100], [5], {1: 5}))
    assert whole(trace) == [False]
    assert "there is no whole step" in trace.findings[0]["message"]


def test_a_trace_without_device_work_judges_no_step() -> None:
    trace = passed(run([100, 100], [0, 0], {1: 2, 2: 2}))
    assert whole(trace) == [True, True]
    assert told(trace) == [("launches_without_work", "warning", 4)]
    assert "no device work was recorded at all" in trace.findings[0]["message"]


def test_copies_of_nothing_are_no_lost_launch() -> None:
    """A cudaMemsetAsync of 0 bytes leaves no device work; profilers and libraries call it all the time."""
    assert told(passed([*run([100, 100], [5, 5]), op("cudaMemsetAsync", 1050, 1051, cat="cuda_runtime", correlation=900)])) == []


def test_calls_recorded_into_a_graph_are_not_lost() -> None:
    capture = [
        op("hipStreamBeginCapture", 1050, 1051, cat="cuda_runtime", correlation=900),
        op("hipLaunchKernel", 1052, 1053, cat="cuda_runtime", correlation=901),
        op("hipStreamEndCapture", 1054, 1055, cat="cuda_runtime", correlation=902),
    ]
    assert told(passed([*run([100, 100], [5, 5]), *capture])) == []


@pytest.mark.parametrize(("times", "severity"), [([900, 100, 100], "warning"), ([120, 100, 100], "info")])
def test_a_cold_first_step_is_named(times: list[float], severity: str) -> None:
    trace = passed(run(times, [5, 5, 5], first=4))
    assert told(trace) == [("step_warmup", severity, 1)]
    assert f"step 4 is warm-up: {times[0] / 100:.2f} times" in trace.findings[0]["message"]


def test_the_cut_last_step_does_not_make_the_first_one_cold() -> None:
    trace = passed(run([105, 100, 20], [5, 5, 0]))
    assert told(trace) == [("steps_cut", "warning", 1)]


def test_work_from_before_the_recording_is_no_fault_and_bounds_the_first_window() -> None:
    events = [
        span("ProfilerStep#1", 10, 100),
        launch(20, 21, 50),
        kernel("old", 0, 30, 7),
        kernel("older", 30, 40, 8),
        kernel("new", 45, 50, 50),
    ]
    trace = passed(events)
    assert told(trace) == [("work_from_before", "info", 2)]
    (row,) = steps(trace)["steps"].itertuples()
    assert (row.window_source, row.window_start_ns, row.window_end_ns) == ("device", 40_000, 50_000)
    in_step = busy(trace)["busy"].iloc[1]
    assert (in_step["busy_ns"], in_step["idle_ns"]) == (5_000, 5_000)


def test_a_compiled_backward_is_named() -> None:
    trace = passed([op("CompiledFunction", 0, 5), backward("CompiledFunctionBackward", 10, 20, 3), op("CompiledFunctionBackward", 11, 19)])
    assert told(trace) == [("no_steps", "info", None), ("compiled_backward", "warning", 1)]
    assert "torch.compile" in trace.findings[1]["message"]
