"""Kernels that reach the device by the driver or as part of a graph."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, covers


@covers("g04-triton-driver-launch")
def test_kernels_launched_by_the_driver_belong_to_their_operators(shared: Path) -> None:
    one = case(shared, "g04-triton-driver-launch")
    links = one.report()["metrics"]["links"]
    assert links["summary"]["linked"] == one.values["kernels_linked"]
    assert {row["operator"]: row["duration_ns"] / 1000 for row in links["tables"]["operators"]} == one.values["gpu_us_by_op"]
