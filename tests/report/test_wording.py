"""Numbers and names as people read them."""

from __future__ import annotations

import pytest

from tracekit import wording as fmt


@pytest.mark.parametrize(
    ("ns", "words"),
    [(0, "0 ns"), (999, "999 ns"), (1_500, "1.50 µs"), (12_345_678, "12.3 ms"), (61_000_000_000, "61.0 s"), (None, "unknown"), (float("nan"), "unknown")],
)
def test_a_time_is_written_in_the_unit_that_suits_it(ns, words):
    assert fmt.duration(ns) == words


def test_all_cells_of_a_column_share_the_unit_that_its_header_names():
    assert fmt.column("wait_ns", [2_000_000, 500, None]) == ("wait (ms)", ["2.000", "0.001", "unknown"])
    assert fmt.column("nbytes", [3 * 2**20]) == ("nbytes (MiB)", ["3.000"])


def test_a_column_of_nothing_but_zeros_reads_in_ms_and_mib():
    assert fmt.column("idle_ns", [0, 0])[0] == "idle (ms)"
    assert fmt.column("input_bytes", [0])[0] == "input (MiB)"


def test_a_timestamp_is_no_duration():
    assert fmt.scalar("allocated_peak_ts_ns", 1_000_000_000_000) == "1,000,000,000,000"


@pytest.mark.parametrize(
    ("count", "words"),
    [(3758096384, "3.50 GiB (3.76 GB)"), (2**20, "1.00 MiB (1.05 MB)"), (512, "512 B"), (0, "0 B"), (None, "unknown"), (float("nan"), "unknown")],
)
def test_bytes_are_told_in_binary_and_in_decimal_units(count, words):
    assert fmt.scalar("allocated_peak_bytes", count) == words


def test_control_characters_and_direction_marks_never_reach_a_terminal():
    assert fmt.clean("a\x1b[2Jb\nc\u202ed") == "a�[2Jb�c�d"


def test_a_long_name_is_cut():
    assert len(fmt.clean("x" * 5000)) == 120


def test_rank_numbers_are_joined_into_runs():
    assert fmt.ranks([3, 0, 1, 2, 9, 9]) == "0-3, 9"
    assert fmt.ranks([]) == "none"


def test_nothing_is_written_0_and_a_rounded_little_is_not():
    assert fmt.column("idle_ns", [0, 100, 2_000_000])[1] == ["0", "100 ns", "2.000"]
    assert fmt.column("nbytes", [4, 192 * 2**20, 60_000])[1] == ["4 B", "192.0", "0.1"]
    assert [fmt.percent(r) for r in (0, 0.0004, -0.0004, 0.0006)] == ["0.0 %", "< 0.1 %", "> -0.1 %", "0.1 %"]
    assert fmt.column("idle_ratio", [0.5, 1e-5])[1] == ["50.0 %", "< 0.1 %"]


def test_whole_means_of_counts_have_no_digits_after_the_point():
    assert fmt.column("forward_runs", [2.0, 3.0]) == ("forward runs", ["2", "3"])
    assert fmt.column("forward_runs", [2.0, 2.5]) == ("forward runs", ["2.00", "2.50"])
    assert fmt.column("share_ratio", [1.0]) == ("share", ["100.0 %"])


def test_a_bandwidth_of_one_machine_reads_in_megabytes():
    assert fmt.column("busbw_gbps", [0.017, 0.0043]) == ("busbw (MB/s)", ["17.0", "4.30"])
    assert fmt.column("busbw_gbps", [171.2, 0.5]) == ("busbw (GB/s)", ["171", "0.500"])
    assert (fmt.scalar("busbw_gbps", 46.2), fmt.scalar("busbw_gbps", 0.0123)) == ("46.2 GB/s", "12.3 MB/s")


def test_a_name_in_words_keeps_the_name_of_its_axis():
    assert fmt.label(fmt.part("comm_wait", "dp_replicate") + "_ns") == "waiting in dp_replicate communication"
