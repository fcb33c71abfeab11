"""Public bug reports on exports of Nsight Systems."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, covers, devices, shell


@covers("g02-nsys-graph-level-only")
def test_graphs_without_kernels_are_busy_time(shared: Path) -> None:
    found = case(shared, "g02-nsys-graph-level-only")
    report, want = found.report(), found.values
    (row,) = devices(report)
    assert (row["busy_ns"] / 1000, row["span_ns"] / 1000) == (want["busy_us"], want["span_us"])
    summary = report["metrics"]["breakdown"]["summary"]
    assert round(100 * summary["busy_ratio"], 1) == want["busy_pct"]
    for part in ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "memcpy_ns", "kernels"):
        assert row[part] is want["kernel_split"], part
    assert summary["compute_ratio"] is None and summary["exposed_comm_ratio"] is None
    parts = {part["part"]: part["duration_ns"] for part in report["metrics"]["budget"]["tables"]["ranks"]}
    assert parts == {"graph": 500_000, "launch_gap": 200_000}
    code, text, _ = shell("analyze", found.path)
    assert code == 0 and "71.4 %" in text
    assert "no GPU activity" not in text and "no such table" not in text and "no device work" not in text
