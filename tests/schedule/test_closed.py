"""Do the closed forms agree with the simulation, and where do the published ones hold?"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.schedule.drawings import built, runnable
from tracekit import theory
from tracekit.schedule.catalog import SCHEDULES
from tracekit.schedule.closed import longest_span_bubble, window_bubble, window_bubble_ratio
from tracekit.schedule.held import held_peaks
from tracekit.schedule.orders import overlapped
from tracekit.schedule.simulate import Simulation, Times, simulate

FIW = st.tuples(*[st.integers(1, 9)] * 3)
PUBLISHED = ("gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2")


def simulated(name: str, p: int, m: int, v: int, f: int, i: int, w: int) -> Simulation:
    """Uniform times per stage."""
    orders, where = built(name, p, m, v)
    return simulate(orders, where, Times.uniform(len(where.rank_of), f, i, w), pairs=overlapped(name, p, m))


def longest_span_idle(found: Simulation) -> float:
    return int(found.ranks["span_ns"].max()) - found.work_ns / len(found.ranks)


@given(runnable(microbatches=20), FIW)
def test_closed_forms_are_what_the_simulation_gives(asked: tuple[str, int, int, int], fiw: tuple[int, int, int]) -> None:
    name, p, m, v = asked
    f, i, w = (fiw[0],) * 3 if name == "zbv" else (fiw[0], fiw[0], min(fiw)) if name == "dualpipev" else fiw
    whole = window_bubble(name, p, m, v, v * f, v * i, v * w)
    assume(whole is not None)
    found = simulated(name, p, m, v, f, i, w)
    assert whole == found.window_ns - found.work_ns / p
    assert window_bubble_ratio(name, p, m, v, v * f, v * i, v * w) == pytest.approx(found.bubble_ratio, abs=1e-12)
    span = longest_span_bubble(name, p, m, v, v * f, v * i, v * w)
    assert span is None or span == longest_span_idle(found)


@pytest.mark.parametrize("name", SCHEDULES)
def test_which_schedules_have_a_closed_form(name: str) -> None:
    known = window_bubble(name, 4, 8, v=2) is not None
    assert known == (name != "dualpipe")
    assert window_bubble(name, 4, 8, v=2, f=1, i=2, w=1.5) is None or name in (*PUBLISHED, "interleaved_zb")


@pytest.mark.parametrize(("name", "m"), [("zb_h1", 3), ("zb_h2", 6), ("interleaved_zb", 3), ("zbv", 6), ("dualpipev", 7)])
def test_too_few_microbatches_have_none(name: str, m: int) -> None:
    assert window_bubble(name, 4, m, v=2) is None
    assert window_bubble_ratio(name, 4, m, v=2) is None
    assert window_bubble(name, 4, 2 * m + 2, v=2) is not None


def published(name: str, p: int, m: int, v: int, f: int, i: int, w: int) -> float:
    """Bubble over ideal time as the papers print it: 1811.06965, 2104.04473 section 2.2, 2211.05953, 2401.10241 Table 2."""
    if name in ("zb_h1", "zb_h2"):
        return (p - 1) * max(0, f + i - (w if name == "zb_h1" else 2 * w)) / (m * (f + i + w))
    return (p - 1) / (m * (v if name in ("interleaved_1f1b", "looped_bfs") else 1))


@given(runnable(names=PUBLISHED, microbatches=20), FIW)
def test_published_ratios_hold_with_enough_microbatches_and_short_weight_gradients(asked: tuple[str, int, int, int], fiw: tuple[int, int, int]) -> None:
    name, p, m, v = asked
    f, i, w = fiw
    assume(m >= {"zb_h1": p, "zb_h2": 2 * p - 1, "interleaved_1f1b": p, "looped_bfs": p}.get(name, 1))
    assume(name not in ("zb_h1", "zb_h2") or w <= min(f, i))
    found = simulated(name, p, m, v, f, i, w)
    over_ideal = published(name, p, m, v, f, i, w)
    ratio = over_ideal / (1 + over_ideal)
    assert ratio == pytest.approx(found.longest_stage_bubble_ratio, abs=1e-12)
    if name != "zb_h2" or 2 * w <= i:  # else its ranks start later than the published form counts
        assert over_ideal == pytest.approx(found.bubble_over_ideal, abs=1e-12)
        assert ratio == pytest.approx(found.bubble_ratio, abs=1e-12)


@given(st.integers(1, 4), st.integers(0, 3), FIW)
def test_table_2_of_zero_bubble(p: int, more: int, fiw: tuple[int, int, int]) -> None:
    """Arxiv 2401.10241 Table 2, for weight gradients no longer than a forward."""
    f, i, w = fiw
    assume(w <= f)
    m = 2 * p - 1 + more
    assert longest_span_idle(simulated("1f1b", p, m, 1, f, i, w)) == (p - 1) * (f + i + w)
    assert longest_span_idle(simulated("zb_h1", p, m, 1, f, i, w)) == (p - 1) * (f + i - w)
    assert longest_span_idle(simulated("zb_h2", p, m, 1, f, i, w)) == (p - 1) * max(f + i - 2 * w, i - f, 0)
    assert longest_span_idle(simulated("zb_h2", p, m, 1, 2 * w, i, w)) == (p - 1) * i


@given(runnable(names=PUBLISHED, microbatches=20))
def test_published_counts_of_microbatches_in_flight(asked: tuple[str, int, int, int]) -> None:
    name, p, m, v = asked
    stages, ranks = held_peaks(built(*asked)[0])
    expected = [theory.in_flight_microbatches(name, stage, p, m, v) for stage in range(p * v)]
    if name != "interleaved_1f1b":
        assert stages["in_flight"].tolist() == expected
    elif m % p == 0:  # stages share the rank's peak, at a time when one of them may be below its own
        assert ranks["in_flight"].tolist() == [sum(expected[rank::p]) for rank in range(p)]
