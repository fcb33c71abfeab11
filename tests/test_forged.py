"""Every figure of a forged job equals its exact truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forged import differences


@pytest.mark.parametrize(
    ("job", "at_least"),
    [
        ("tp4", 6000),
        ("tp4_sp", 14700),
        ("pp4_1f1b", 800),
        ("pp4_zbh1", 800),
        ("p2p_batched", 350),
        ("recompute_full", 3700),
        ("tp2pp4dp2_1f1b", 20700),
        ("async_steps", 1400),
        ("old_names", 3000),
        ("captures/iteration_10", 900),
        ("captures/iteration_20", 900),
        ("clock_skew", 5100),
    ],
)
def test_every_figure_is_right(shared: Path, job: str, at_least: int) -> None:
    wrong, made = differences(shared, shared / "forged" / job)
    assert wrong == []
    assert made >= at_least


def test_what_needs_no_absent_rank_is_right(shared: Path) -> None:
    wrong, made = differences(shared, shared / "forged" / "partial", ("steps", "breakdown", "memory", "recompute"))
    assert (wrong, made > 100) == ([], True)
