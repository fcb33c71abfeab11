"""Cases on pipelines: schedules for which the plain formula is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import Case, case, covers


def check(one: Case) -> dict[str, Any]:
    """Window, bubble of each stage and its share of the iteration; the pipeline's metric."""
    metric: dict[str, Any] = one.report()["metrics"]["pipeline"]
    summary = metric["summary"]
    assert summary["window_ns"] == 1000 * one.values["iteration_us"]
    bubbles = {str(row["rank"]): row["bubble_ns"] for row in metric["tables"]["stages"]}
    assert bubbles == {rank: 1000 * us for rank, us in one.values["bubble_us_by_stage"].items()}
    assert 100 * summary["bubble_ratio"] == pytest.approx(one.values["bubble_pct_of_step"], abs=0.05)
    assert summary["closed_form_bubble_ratio"] == pytest.approx(summary["bubble_ratio"])
    return metric


@covers("p02-interleaved")
def test_an_interleaved_schedule_has_its_own_formula(shared: Path) -> None:
    one = case(shared, "p02-interleaved")
    metric = check(one)
    assert (metric["summary"]["schedule"], metric["summary"]["virtual_stages"]) == ("interleaved_1f1b", 2)
    assert 100 * metric["summary"]["closed_form_bubble_ratio"] != pytest.approx(one.values["plain_formula_pct"], abs=1)
    assert {row["stage"]: row["rank"] for row in metric["tables"]["actions"]} == {0: 0, 1: 1, 2: 0, 3: 1}


@covers("p04-zero-bubble")
def test_weight_gradients_are_work(shared: Path) -> None:
    metric = check(case(shared, "p04-zero-bubble"))
    assert metric["summary"]["schedule"] == "zb_h1"
    assert {row["action"] for row in metric["tables"]["actions"]} == {"F", "I", "W"}
    assert {row["work_ns"] for row in metric["tables"]["stages"]} == {60_000}
