"""The bubble divided by cause, and on its curve."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.figures.bubble import bubble_by_microbatches, bubble_causes
from tracekit.metrics.base import Result

SUMMARY: dict[str, Any] = {
    "schedule": "1f1b", "pipeline_ranks": 4, "virtual_stages": 1, "microbatches": 8, "bubble_ratio": 0.30, "simulated_bubble_ratio": 0.29,
    "closed_form_bubble_ratio": 3 / 11, "bubble_from_schedule_ratio": 3 / 11, "bubble_from_handover_ratio": 0.02, "bubble_from_imbalance_ratio": -0.003,
    "bubble_from_variation_ratio": 0.29 - 3 / 11 - 0.017,
}  # fmt: skip


def test_causes_add_up_to_what_was_measured() -> None:
    fig = bubble_causes(Result(SUMMARY))
    assert fig is not None
    bars = {bar.name: bar.x[0] for bar in fig.data if bar.y[0] == "measured"}
    assert sum(bars.values()) == pytest.approx(30.0)
    assert bars["uneven stages"] == pytest.approx(-0.3) and bars["not met by the simulation"] == pytest.approx(1.0)
    assert [bar.x[0] for bar in fig.data if bar.y[0] == "closed form"] == [pytest.approx(300 / 11)]


@pytest.mark.parametrize("unknown", ["bubble_ratio", "simulated_bubble_ratio", "bubble_from_handover_ratio"])
def test_what_is_not_known_is_not_drawn(unknown: str) -> None:
    assert bubble_causes(Result({**SUMMARY, unknown: None})) is None


def test_the_run_lies_on_the_curve_of_its_schedule() -> None:
    fig = bubble_by_microbatches(Result({**SUMMARY, "bubble_ratio": 3 / 11}))
    assert fig is not None
    own = next(line for line in fig.data if line.name == "1f1b on 4 ranks, closed form")
    point = next(one for one in fig.data if one.mode == "markers")
    assert point.y[0] == pytest.approx(dict(zip(own.x, own.y, strict=True))[8])
    assert list(own.y) == sorted(own.y, reverse=True)
    assert bubble_by_microbatches(Result({**SUMMARY, "schedule": "unknown"})) is None
