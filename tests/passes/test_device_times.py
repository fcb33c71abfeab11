"""Durations that cannot be right are cut, work without times is left out, and every lawful overlap stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import kernel, launch, op, read
from tests.test_reference import REFERENCES, TRACES
from tracekit import readers
from tracekit.passes.classify import classify
from tracekit.passes.device_times import FACTOR, FLOOR, device_times
from tracekit.trace import RankTrace

SECOND = 1_000_000  # in µs, as the builders count


def cleaned(events: list[dict[str, Any]], **top: Any) -> tuple[list[tuple[str, float, float]], list[tuple[str, str, int]]]:
    """(name, start, duration) of what is left, in µs, and (code, severity, count) of the findings."""
    trace = device_times(classify(read(events, **top)))
    zero = trace.meta.base_ns or 0
    left = [(str(n), (t - zero) / 1000, d / 1000) for n, t, d in zip(trace.events["name"], trace.events["ts"], trace.events["dur"], strict=True)]
    return left, [(f["code"], f["severity"], f["count"]) for f in trace.findings]


def test_a_runaway_duration_ends_at_the_next_start_of_its_stream() -> None:
    left, findings = cleaned([kernel("fmha", 0, SECOND), kernel("a", 10, 30), kernel("b", 40, 70)])
    assert left == [("fmha", 0, 10), ("a", 10, 20), ("b", 40, 30)]
    assert findings == [("durations_corrupt", "warning", 1)]


def test_the_kernel_and_both_durations_are_named() -> None:
    trace = device_times(classify(read([kernel("fmha", 0, SECOND), kernel("a", 10, 30)])))
    assert all(word in trace.findings[0]["message"] for word in ("fmha", "says 1.00 s", "at most 10.0 µs", "upper bound"))


def test_durations_flushed_together_after_a_stall_each_end_at_the_next_start() -> None:
    end = SECOND
    left, findings = cleaned([kernel("a", 0, end), kernel("b", 10, end), kernel("c", 30, end), kernel("d", 50, 60), kernel("e", 2 * end, 2 * end + 5)])
    assert [d for _, _, d in left] == [10, 20, 20, 10, 5]
    assert findings == [("durations_corrupt", "warning", 3)]


def test_a_stream_is_judged_by_its_own_work_alone() -> None:
    left, findings = cleaned([kernel("long", 0, SECOND, stream=7), kernel("a", 10, 30, stream=8), kernel("b", 40, 70, stream=8)])
    assert ([d for _, _, d in left], findings) == ([SECOND, 20, 30], [])


def test_a_runaway_in_the_midst_of_a_recording_is_told_by_its_like() -> None:
    calls = [kernel("fmha", 100 * i, 100 * i + 90) for i in range(20)]
    calls[5] = kernel("fmha", 500, 500 + 1_200)  # over at 1700, while the stream went on
    left, findings = cleaned(calls)
    assert left[5] == ("fmha", 500, 100)
    assert findings == [("durations_corrupt", "warning", 1)]


def test_a_kernel_that_always_takes_so_long_shares_its_stream() -> None:
    """Two HIP streams drawn on one queue: the long kernel runs beside the short ones, every time."""
    events = [e for i in range(4) for e in (kernel("long", 6000 * i, 6000 * i + 5000), kernel("short", 6000 * i + 5, 6000 * i + 30))]
    left, findings = cleaned(events)
    assert [d for n, _, d in left if n == "long"] == [5000] * 4
    assert findings == [("same_stream_overlap", "info", 4)]


def test_communication_may_wait_long_beside_compute_but_not_past_its_own_group() -> None:
    beside = [kernel("ncclDevKernel_AllReduce", 0, 50_000), kernel("gemm", 10, 30), kernel("gemm", 90_000, 90_020)]
    assert cleaned(beside)[1] == [("same_stream_overlap", "info", 1)]
    past = [kernel("ncclDevKernel_AllReduce", 0, 50_000), kernel("ncclDevKernel_AllReduce", 10, 30), kernel("gemm", 90_000, 90_020)]
    left, findings = cleaned(past)
    assert (left[0][2], findings) == (10, [("durations_corrupt", "warning", 1)])


def test_ties_of_a_microsecond_are_no_contradiction() -> None:
    events = [kernel("a", 0, 3), kernel("b", 2, 4), kernel("c", 4, 9), kernel("d", 4, 6), kernel("e", 8, 10)]
    assert cleaned(events)[1] == []


def test_the_length_of_the_recording_does_not_hide_a_runaway() -> None:
    """1,000 kernels over 60 s, one of which says 2 s: a share of the span would miss it."""
    events = [kernel("k", 60_000 * i, 60_000 * i + 100) for i in range(1000)]
    events[3] = kernel("k", 180_000, 180_000 + 2 * SECOND)
    left, findings = cleaned(events)
    assert (left[3][2], findings) == (60_000, [("durations_corrupt", "warning", 1)])


def test_a_duration_of_centuries_is_cut_where_the_stream_goes_on_and_left_out_where_it_does_not() -> None:
    years = 236 * 365 * 86_400 * SECOND
    left, findings = cleaned([kernel("a", 0, years), kernel("b", 10, 30), kernel("c", 40, 40 + years, stream=9)])
    assert left == [("a", 0, 10), ("b", 10, 20)]
    assert findings == [("times_impossible", "warning", 1), ("durations_corrupt", "warning", 1)]


def test_work_at_the_very_zero_without_duration_has_no_times() -> None:
    events = [kernel("lost", 0, 0, 1), launch(90, 95, 1), kernel("a", 100, 200)]
    for base in (0, 1_700_000_000_000_000_000):
        left, findings = cleaned(events, base=base)
        assert ({n for n, _, _ in left}, findings) == ({"cudaLaunchKernel", "a"}, [("device_times_missing", "warning", 1)])


def test_work_at_the_very_zero_with_a_duration_counts_unless_all_else_is_far() -> None:
    assert cleaned([kernel("a", 0, 5), kernel("b", 10, 20)])[1] == []
    assert cleaned([kernel("a", 0, 5), kernel("b", 10**9, 10**9 + 20)])[1] == [("device_times_missing", "warning", 1)]


def test_slices_of_another_epoch_are_left_out() -> None:
    at = 1_700_000_000 * SECOND
    left, findings = cleaned([kernel("odd", 5, 6), op("aten::mm", at, at + 9), kernel("a", at + 1, at + 3)])
    assert ({n for n, _, _ in left}, findings) == ({"aten::mm", "a"}, [("times_impossible", "warning", 1)])


def serial(gaps: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Kernels one after another: (idle before, duration) each; a tail of up to 20 µs may run under the next one."""
    out, at = [], 1.0
    for idle, dur in gaps:
        out.append(kernel(f"k{dur % 3}", at + idle, at + idle + dur + (20 if dur > 40 else 0)))
        at += idle + dur
    return out


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5000)), min_size=1, max_size=30), st.integers(0, 29), st.booleans())
def test_one_runaway_is_found_and_no_other_kernel_touched(gaps: list[tuple[int, int]], which: int, broken: bool) -> None:
    events = serial(gaps)
    assert cleaned(events)[1] == []
    which %= len(events)
    if not broken or which == len(events) - 1:
        return
    events[which]["dur"] = 3_600 * SECOND
    left, findings = cleaned(events)
    assert findings == [("durations_corrupt", "warning", 1)]
    for i, (_, start, dur) in enumerate(left):
        assert dur == (events[i + 1]["ts"] - start if i == which else events[i]["dur"])


def test_what_is_far_enough_is_stated() -> None:
    assert (FLOOR, FACTOR) == (100_000, 10)


def traced(name: str) -> RankTrace:
    return classify(readers.read(Path(TRACES / name))[0])


@pytest.mark.parametrize("name", [n for n in REFERENCES if (TRACES / n).stat().st_size < 130_000])
def test_no_public_trace_holds_a_corrupt_duration(name: str) -> None:
    """Their same-stream overlaps (of at most 99 ns) and their kernels of length 0 stay exactly as recorded."""
    trace = traced(name)
    assert device_times(trace) is trace
    assert REFERENCES[name]["same_stream_overlaps"]["n_over_1us"] == 0


def test_calls_that_all_outlast_the_recording_are_no_measure_of_each_other() -> None:
    left, findings = cleaned([kernel("fmha", 100 * i, 100 * i + SECOND) for i in range(4)] + [kernel("last", 400, 450)])
    assert [d for _, _, d in left] == [100, 100, 100, 100, 50]
    assert findings == [("durations_corrupt", "warning", 4)]
