"""How much does each stage hold at its peak?"""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.schedule.drawings import actions, built, runnable
from tracekit.schedule.held import held_peaks, peak_bytes
from tracekit.schedule.orders import order


@pytest.mark.parametrize(
    ("lane", "in_flight", "whole", "weight"),
    [
        ("0F0 0F1 0B0 0F2 0B1 0B2", 2, 2, 0),
        ("0F0 0I0 0F1 0I1 0W0 0W1", 2, 1, 2),  # split: two are in flight, never two whole ones
        ("0F0 0F1 0W0 0W1", 2, 2, 0),  # a first stage without input gradient: W is its whole backward
        ("0F0 0F1 0I0 0W0 0B1", 2, 2, 1),
    ],
)
def test_peaks_of_one_stage(lane: str, in_flight: int, whole: int, weight: int) -> None:
    stages, ranks = held_peaks([actions(lane)])
    assert stages.to_dict("records") == [{"stage": 0, "rank": 0, "in_flight": in_flight, "whole_held": whole, "weight_held": weight}]
    assert ranks.to_dict("records") == [{"rank": 0, "in_flight": in_flight, "whole_held": whole, "weight_held": weight}]


def test_the_stages_of_a_rank_have_their_peaks_at_different_times() -> None:
    stages, ranks = held_peaks([actions("0F0 0F1 0B0 0B1 1F0 1F1 1B0 1B1")])
    assert stages["in_flight"].tolist() == [2, 2]
    assert ranks["in_flight"].tolist() == [2]


def test_bytes_follow_the_stage_and_the_part() -> None:
    lane = actions("0F0 1F0 1I0 0F1 1W0 0B0 0B1")
    assert peak_bytes([lane], whole=[10, 100], weight=[4, 40]) == (110,)
    assert peak_bytes([lane], whole=[10, 100]) == (120,)  # nothing is freed before W
    assert peak_bytes([lane, []], whole=[10, 1], weight=[4, 40]) == (60, 0)


def test_published_peaks_of_zero_bubble() -> None:
    """Arxiv 2401.10241 Table 2: p, p and 2p-1 microbatches."""
    for p in (2, 4, 8):
        assert held_peaks(order("1f1b", p, 2 * p))[1]["in_flight"].max() == p
        assert set(held_peaks(order("zb_h1", p, 2 * p))[1]["in_flight"]) == {p}
        assert set(held_peaks(order("zb_h2", p, 2 * p))[1]["in_flight"]) == {2 * p - 1}


def test_published_peaks_of_dualpipe() -> None:
    """github.com/deepseek-ai/DualPipe: PP + 1, of stages; DualPipeV has PP = 2p of them on p ranks."""
    assert set(held_peaks(order("dualpipe", 8, 20))[1]["in_flight"]) == {9}
    assert set(held_peaks(order("dualpipev", 4, 10))[1]["in_flight"]) == {9}


@given(runnable())
def test_all_that_is_held_is_given_back(asked: tuple[str, int, int, int]) -> None:
    orders, where = built(*asked)
    stages, ranks = held_peaks(orders)
    per_stage = asked[2] // where.pipelines
    assert stages["in_flight"].between(1, per_stage).all()
    assert (stages[["whole_held", "weight_held"]].max(axis=1) <= stages["in_flight"]).all()
    bytes_held = peak_bytes(orders, whole=[7] * len(where.rank_of))
    assert list(bytes_held) == (7 * ranks["in_flight"]).tolist()
