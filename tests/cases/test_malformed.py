"""Cut, misquoted, glued together, packed in odd ways: each opens with its oddity named, or is refused at a byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cases.case import Case, case, covers, devices
from tracekit import analyze
from tracekit.reading import Reading


def finding(report: dict[str, Any], code: str) -> dict[str, Any]:
    """The one finding of a code."""
    (found,) = [f for f in report["health"]["findings"] if f["code"] == code]
    return dict(found)


def kernel_us(report: dict[str, Any]) -> float:
    """Compute of the one device, µs."""
    (row,) = devices(report)
    return row["compute_ns"] / 1000  # type: ignore[no-any-return]


def salvaged(one: Case) -> dict[str, Any]:
    return analyze(one.path, workers=1, reading=Reading(salvage=True)).to_dict()


@covers("m01-truncated-object")
def test_a_file_cut_within_an_event_is_refused_and_its_whole_events_can_be_saved(shared: Path) -> None:
    one = case(shared, "m01-truncated-object")
    assert "--salvage" in one.refusal()
    report = salvaged(one)
    note = finding(report, "salvaged")
    assert (note["severity"], note["count"], note["offset"]) == ("warning", one.values["whole_events_before_cut"], one.values["byte_offset_of_end"])
    assert "partial" in note["message"] and report["health"]["verdict"] == "warnings"
    assert kernel_us(report) == one.values["salvaged_kernel_us"]


@covers("m03-control-char")
def test_a_raw_control_character_in_a_name_is_kept_and_placed(shared: Path) -> None:
    one = case(shared, "m03-control-char")
    report = one.report()
    note = finding(report, "control_characters")
    assert (note["count"], note["offset"]) == (1, one.values["byte_offset"])
    assert kernel_us(report) == one.values["kernel_us"]


@covers("m05-bare-quotes-newline")
def test_quotes_that_are_not_escaped_are_refused_where_they_are_met(shared: Path) -> None:
    one = case(shared, "m05-bare-quotes-newline")
    assert f"byte {one.values['byte_offset']}, line {one.values['line']}" in one.refusal()
    report = salvaged(one)
    assert kernel_us(report) == one.values["salvaged_kernel_us"] and finding(report, "salvaged")["offset"] == one.values["byte_offset"]


@covers("m07-nan-duration")
def test_slices_with_times_that_are_no_numbers_are_dropped_and_counted(shared: Path) -> None:
    one = case(shared, "m07-nan-duration")
    report = one.report()
    assert finding(report, "records_dropped")["count"] == one.values["dropped_events"]
    (row,) = devices(report)
    assert (row["compute_ns"], row["kernels"]) == (one.values["kernel_us"] * 1000, one.values["usable_kernels"])


@covers("m09-concatenated")
def test_two_documents_in_one_file_are_refused_where_the_second_begins(shared: Path) -> None:
    one = case(shared, "m09-concatenated")
    assert f"extra data at byte {one.values['byte_offset']}" in one.refusal()
    report = salvaged(one)
    assert report["run"]["ranks"] == [0] and "another document" in finding(report, "salvaged")["message"]


@covers("m11-gzip-cut")
def test_a_gzip_without_its_end_is_refused(shared: Path) -> None:
    one = case(shared, "m11-gzip-cut")
    assert f"{one.values['compressed_size']} bytes" in one.refusal()


@covers("m13-zstd")
def test_a_zstd_file_opens(shared: Path) -> None:
    one = case(shared, "m13-zstd")
    assert kernel_us(one.report()) == one.values["kernel_us"]


@covers("m15-empty-events")
def test_a_trace_without_events_is_refused(shared: Path) -> None:
    case(shared, "m15-empty-events").refusal()


@covers("m17-bom")
def test_a_byte_order_mark_is_passed_over(shared: Path) -> None:
    one = case(shared, "m17-bom")
    report = one.report()
    assert kernel_us(report) == one.values["kernel_us"] and devices(report)[0]["kernels"] == one.values["events"]
