"""Times as text, in odd units, cut, cold, missing, or running away."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, codes, covers, devices


def found(report: dict, code: str) -> dict:
    """The one finding of a code."""
    (finding,) = [f for f in report["health"]["findings"] if f["code"] == code]
    return finding


def step_rows(report: dict) -> list[dict]:
    return report["metrics"]["step_time"]["tables"]["steps"]


@covers("t01-ts-as-text")
def test_times_written_as_text_keep_their_nanoseconds(shared: Path) -> None:
    one = case(shared, "t01-ts-as-text")
    (row,) = devices(one.report())
    assert row["compute_ns"] == one.values["kernel_us"] * 1000
    assert row["idle_ns"] == one.values["gap_ns"]


@covers("t03-display-unit-ns")
def test_the_unit_of_display_is_not_the_unit_of_the_numbers(shared: Path) -> None:
    one = case(shared, "t03-display-unit-ns")
    report = one.report()
    (step,) = step_rows(report)
    (row,) = devices(report, step=1)
    assert step["duration_ns"] == one.values["step_us"] * 1000
    assert row["compute_ns"] == one.values["kernel_us"] * 1000
    assert report["metrics"]["breakdown"]["summary"]["busy_ratio"] * 100 == one.values["busy_pct"]


@covers("t05-runaway-duration")
def test_a_runaway_duration_ends_where_its_stream_goes_on(shared: Path) -> None:
    one = case(shared, "t05-runaway-duration")
    report = one.report()
    (row,) = devices(report)
    assert found(report, "durations_corrupt")["count"] == one.values["corrupt_durations"]
    assert row["compute_ns"] == one.values["kernel_us_clipped"] * 1000
    assert row["span_ns"] == one.values["stream_span_us"] * 1000


@covers("t07-zero-timestamps")
def test_kernels_without_device_times_are_left_out_and_counted(shared: Path) -> None:
    one = case(shared, "t07-zero-timestamps")
    report = one.report()
    (row,) = devices(report)
    assert found(report, "device_times_missing")["count"] == one.values["kernels_without_times"]
    assert row["span_ns"] == one.values["span_us"] * 1000
    assert row["compute_ns"] == one.values["kernel_us"] * 1000
    assert report["metrics"]["breakdown"]["summary"]["busy_ratio"] * 100 == one.values["busy_pct"]


@covers("t11-cut-last-step")
def test_a_step_that_lost_its_kernels_stays_out_of_means(shared: Path) -> None:
    one = case(shared, "t11-cut-last-step")
    report = one.report()
    assert [s["step"] for s in step_rows(report) if s["complete"]] == one.values["complete_steps"]
    assert [s["step"] for s in step_rows(report) if not s["complete"]] == one.values["incomplete_steps"]
    assert report["metrics"]["step_time"]["summary"]["mean_ns"] == one.values["mean_step_us"] * 1000
    assert [devices(report, step=s)[0]["busy_ns"] for s in (3, 4)] == [one.values["gpu_us_per_step"] * 1000] * 2
    assert devices(report, step=5) == []  # not 0: what the GPU did is not known


@covers("t13-warmup-step")
def test_a_cold_first_step_is_named_and_stays_out_of_means(shared: Path) -> None:
    one = case(shared, "t13-warmup-step")
    report = one.report()
    summary = report["metrics"]["step_time"]["summary"]
    assert summary["mean_ns"] == one.values["steady_step_us"] * 1000
    assert summary["median_ns"] == one.values["median_step_us"] * 1000
    assert [s["step"] for s in step_rows(report) if s["warmup"]] == one.values["outlier_steps"]
    assert sum(s["duration_ns"] for s in step_rows(report)) / 5 == one.values["naive_mean_us"] * 1000
    assert "step_warmup" in codes(report)


@covers("t15-sub-microsecond")
def test_kernels_shorter_than_a_microsecond_keep_their_length(shared: Path) -> None:
    one = case(shared, "t15-sub-microsecond")
    (row,) = devices(one.report())
    assert row["compute_ns"] == round(one.values["kernel_us"] * 1000)
    assert row["compute_ns"] / row["kernels"] == one.values["mean_us"] * 1000
