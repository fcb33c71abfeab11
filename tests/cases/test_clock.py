"""Ranks whose clocks differ, as they were reported."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, codes, covers


@covers("t09-clock-skew")
def test_waits_are_read_on_one_clock(shared: Path) -> None:
    reported = case(shared, "t09-clock-skew")
    report, want = reported.report(), reported.values
    (zero, one) = report["metrics"]["clock"]["tables"]["ranks"]
    assert (zero["offset_ns"], one["offset_ns"]) == (0, 1000 * want["clock_offset_rank1_us"])
    rows = sorted(report["metrics"]["collectives"]["tables"]["by_rank"], key=lambda row: row["start_ns"])
    for rank in (0, 1):
        assert [row["wait_ns"] for row in rows if row["rank"] == rank] == [1000 * us for us in want[f"wait_rank{rank}_us"]]
    instances = report["metrics"]["collectives"]["tables"]["instances"]
    assert [row["transfer_ns"] for row in instances] == [1000 * us for us in want["transfer_us"]]
    assert "clocks_aligned" in codes(report)
