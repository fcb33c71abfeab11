"""Public bug reports on memory: the device that a level belongs to, and what stood before a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import case, covers, shell

GIB = 1 << 30


def peaks(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Row of the whole trace by device: ``gpu0``, ``gpu1``, ``cpu``."""
    rows = [row for row in report["metrics"]["memory"]["tables"]["peaks"] if row["step"] is None]
    return {row["device_type"] + (str(row["device"]) if row["device_type"] == "gpu" else ""): row for row in rows}


@covers("k02-free-before-alloc")
@pytest.mark.parametrize("name", ["", "snapshot.pickle", "snapshot.json"])
def test_a_free_of_something_older_than_the_record_starts_the_level_above_it(shared: Path, name: str) -> None:
    found = case(shared, "k02-free-before-alloc")
    report, want = replace(found, path=found.path / name).report(), found.values
    (row,) = peaks(report).values()
    assert (row["allocated_before_bytes"], row["allocated_peak_bytes"], row["allocated_lowest_bytes"]) == (
        want["base_bytes"],
        want["peak_bytes"],
        want["min_bytes"],
    )
    assert row["allocated_peak_bytes"] / GIB == want["peak_gib"]
    (snapshot,) = report["metrics"]["memory"]["tables"]["snapshots"]
    assert snapshot["frees_without_alloc"] == want["frees_without_alloc"]
    assert [f["count"] for f in report["health"]["findings"] if f["code"] == "memory_freed_before_record"] == [want["frees_without_alloc"]]
    assert min(point["allocated_bytes"] for point in report["metrics"]["memory"]["tables"]["curve"]) == want["min_bytes"]


@covers("k04-memory-events-by-device")
def test_memory_of_cpu_and_gpus_is_never_one_curve(shared: Path, tmp_path: Path) -> None:
    found = case(shared, "k04-memory-events-by-device")
    report, want = found.report(), found.values
    rows = peaks(report)
    assert {name: row["allocated_peak_bytes"] / GIB for name, row in rows.items()} == want["peak_gib"]
    assert {name: row["allocated_peak_ts_ns"] / 1000 for name, row in rows.items()} == want["peak_ts"]
    curve = report["metrics"]["memory"]["tables"]["curve"]
    assert len({(point["device_type"], point["device"]) for point in curve}) == 3
    code, text, _ = shell("analyze", found.path, "--html", tmp_path / "report.html")
    assert code == 0 and want["display"] in text and want["display"] in (tmp_path / "report.html").read_text()
    assert "10.5 GiB" not in text and "3.76 GiB" not in text


@covers("k06-recompute-compiled")
def test_a_compiled_backward_cannot_tell_recomputation(shared: Path) -> None:
    one = case(shared, "k06-recompute-compiled")
    recompute = one.report()["metrics"]["recompute"]
    (row,) = recompute["tables"]["ranks"]
    assert row["recompute_ns"] is recompute["summary"]["recompute_ns"] is one.values["recompute_us"]
    assert row["overhead_of_backward_ratio"] is recompute["summary"]["overhead_of_step_compute_ratio"] is None
    assert (row["forward_ns"], row["backward_ns"]) == (one.values["forward_us"] * 1000, one.values["backward_us"] * 1000)
