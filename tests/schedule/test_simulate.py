"""When does each action run? Lanes drawn by hand, published bubble rates, and a brute-force simulation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.drawings import actions, built, lanes, runnable
from tracekit.errors import UsageError
from tracekit.schedule.catalog import Placement, placement
from tracekit.schedule.orders import order, overlapped
from tracekit.schedule.simulate import Times, simulate
from tracekit.vocabulary import Action

TWO = Placement(2, (0, 1))


def test_1f1b_waits_for_whole_backwards() -> None:
    found = simulate(*built("1f1b", 2, 3, 1), Times.uniform(2, 1, 1, 1))
    assert lanes(found) == [
        "F0F1....B0--F2B1--..B2--",
        "..F0B0--F1B1--F2B2--....",
    ]
    assert (found.window_ns, found.work_ns) == (12, 18)
    assert found.bubble_ratio == 1 / 4
    assert found.bubble_over_ideal == 1 / 3


def test_zb_h1_fills_the_end_with_weight_gradients() -> None:
    found = simulate(*built("zb_h1", 4, 8, 1), Times.uniform(4, 1, 1, 1))
    assert lanes(found) == [
        "F0F1F2F3......I0W0F4I1W1F5I2W2F6I3W3F7I4W4I5W5I6W6I7W7",
        "..F0F1F2....I0F3I1W0F4I2W1F5I3W2F6I4W3F7I5W4I6W5I7W6W7",
        "....F0F1..I0F2I1F3I2W0F4I3W1F5I4W2F6I5W3F7I6W4I7W5W6W7",
        "......F0I0F1I1F2I2F3I3W0F4I4W1F5I5W2F6I6W3F7I7W4W5W6W7",
    ]


def test_zb_h2_has_no_wait_left_and_only_starts_late() -> None:
    found = simulate(*built("zb_h2", 3, 6, 1), Times.uniform(3, 1, 1, 1))
    assert lanes(found) == [
        "F0F1F2F3F4I0W0F5I1W1I2W2I3W3I4W4I5W5....",
        "..F0F1F2I0F3I1F4I2W0F5I3W1I4W2I5W3W4W5..",
        "....F0I0F1I1F2I2F3I3F4I4W0F5I5W1W2W3W4W5",
    ]
    assert found.ranks[["fill_ns", "wait_ns", "drain_ns"]].to_numpy().tolist() == [[0, 0, 2], [1, 0, 1], [2, 0, 0]]
    assert found.bubble_ratio == 0.1
    assert found.longest_stage_bubble_ratio == 0.0


def test_the_turn_of_a_v_needs_no_transfer() -> None:
    found = simulate([actions("0F0 3F0 3B0 0B0"), actions("1F0 2F0 2B0 1B0")], placement("dualpipev", 2), Times.uniform(4, 1, 1, 1), p2p=2)
    assert lanes(found) == [
        "F0............F0B0--................B0--",
        "......F0F0..............B0--B0--........",
    ]


def test_each_link_and_each_action_may_have_its_own_time() -> None:
    lane = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    times = {a: 2 if a.action == "F" else 3 for text in lane for a in actions(text)} | {Action(1, "F", 1): 5}
    found = simulate([actions(text) for text in lane], TWO, times, p2p={(0, 1): 1, (1, 0): 4})
    assert lanes(found) == [
        "F0--F1--................B0----..........B1----",
        "......F0--B0----F1--------B1----..............",
    ]


def test_overhead_is_bubble() -> None:
    found = simulate([actions("0F0 0B0"), actions("1F0 1B0")], TWO, Times.uniform(2, 2, 1, 1), overhead=1)
    assert lanes(found) == [
        "F0--..............B0--",
        "......F0--..B0--......",
    ]
    assert found.work_ns == 8


def test_the_first_stage_may_have_no_input_gradient() -> None:
    found = simulate([actions("0F0 0W0"), actions("1F0 1I0 1W0")], TWO, Times.uniform(2, 1, 1, 3))
    assert lanes(found) == ["F0....W0----", "..F0I0W0----"]


def test_an_overlapped_pair_starts_with_both_inputs_and_ends_as_one() -> None:
    lane = [actions("0F0 0F1 0B0 0B1"), actions("1F0 1B0 1F1 1B1")]
    apart = simulate(lane, TWO, Times.uniform(2, 2, 1, 1))
    assert lanes(apart) == [
        "F0--F1--....B0--....B1--",
        "....F0--B0--F1--B1--....",
    ]
    paired = simulate(lane, TWO, Times.uniform(2, 2, 1, 1), pairs={Action(0, "F", 1)})
    assert lanes(paired) == [
        "F0--........F1--B0--........B1--",
        "....F0--B0--........F1--B1--....",
    ]


def test_dualpipe_has_its_published_bubble() -> None:
    """(PP/2-1)(F&B + B - 3W), github.com/deepseek-ai/DualPipe, with F&B as long as F and B and B = I + W."""
    for name, p, m, turns in (("dualpipe", 8, 16, 3), ("dualpipe", 4, 20, 1), ("dualpipe", 2, 4, 0), ("dualpipev", 4, 8, 3), ("dualpipev", 3, 12, 2)):
        found = simulate(*built(name, p, m, 2), Times.uniform(2 * p, 3, 3, 2), pairs=overlapped(name, p, m))
        assert found.window_ns - found.work_ns // p == turns * ((3 + 5) + 5 - 3 * 2)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["0F0 0B0", "1B0 1F0"], "rank 0 waits in 0B0 for the backward of stage 1, microbatch 0; rank 1 waits in 1B0 for 1F0"),
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1B1"], "rank 0 waits in 0B1 for the backward of stage 1, microbatch 1; rank 1 waits in 1B1 for 1F1"),
        (["0F0 0F0 0B0", "1F0 1B0"], "0F0 stands twice"),
        (["0F0 0B0 1F0", "1B0"], "1F0 stands on rank 0, which does not hold stage 1"),
        (["0F0 0B0", ""], "2 ranks need one order each that is not empty; 1 are there"),
    ],
)
def test_what_cannot_go_on_names_who_waits(texts: Sequence[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simulate([actions(text) for text in texts], TWO, Times.uniform(2, 1, 1, 1))


@pytest.mark.parametrize(
    ("given_times", "p2p", "message"),
    [
        ({Action(0, "F", 0): 1}, 0, "no time is known for action 1F0"),
        (Times.uniform(2, 1, 1, 1), {(0, 1): 1}, "link from rank 1 to rank 0"),
        (Times.uniform(2, 1, 1, -5), 0, "1B0 takes less than no time"),
    ],
)
def test_what_is_not_known_is_asked_for(given_times: Any, p2p: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simulate([actions("0F0 0B0"), actions("1F0 1B0")], TWO, given_times, p2p)


def test_a_schedule_without_time_has_no_ratio() -> None:
    found = simulate([actions("0F0 0B0"), actions("1F0 1B0")], TWO, Times.uniform(2, 0, 0, 0))
    assert (found.bubble_ratio, found.bubble_over_ideal, found.longest_stage_bubble_ratio) == (None, None, None)


TABLE_9 = {"1.5B/8": (24, 32, 64), "6.2B/8": (24, 32, 64), "14.6B/16": (48, 64, 128), "28.3B/32": (96, 128, 256)}


@pytest.mark.parametrize("row", [f"{model}/{m}" for model, counts in TABLE_9.items() for m in counts])
@pytest.mark.parametrize(("name", "column"), [("1f1b", "1F1B"), ("zb_h1", "ZB-H1"), ("zb_h2", "ZB-H2")])
def test_published_bubble_rates(shared: Path, row: str, name: str, column: str) -> None:
    """Zero Bubble (arXiv:2401.10241): Table 5's bubble rate from Table 9's F, B, W and communication times in ms."""
    vectors = json.loads((shared / "research" / "vectors.json").read_text())
    f, i, w, sent = (round(ms * 1_000_000) for ms in vectors["zb_table9_ms"][row])
    p, m = map(int, row.split("/")[1:])
    found = simulate(order(name, p, m), placement(name, p), Times.uniform(p, f, i, w), p2p=sent)
    rates = vectors["zb_table5_bubble_rate"]
    assert found.longest_stage_bubble_ratio is not None
    assert round(found.longest_stage_bubble_ratio, 4) == rates[row][rates["_cols"].index(column)]


def brute_force(orders: Sequence[Sequence[Action]], where: Placement, times: dict[Action, int], sent: int) -> dict[Action, tuple[int, int]]:
    """Push every action later until nothing moves any more."""
    spans = {a: (0, times[a]) for lane in orders for a in lane}
    whole = {(a.stage, a.microbatch): a for a in spans if a.action in "BI"}
    moved = True
    while moved:
        moved = False
        for rank, lane in enumerate(orders):
            for before, a in zip((None, *lane), lane, strict=False):
                waits = [] if before is None else [spans[before][1]]
                if a.action == "F" and (stage := where.before(a.stage)) is not None:
                    waits.append(spans[Action(stage, "F", a.microbatch)][1] + sent * (where.rank_of[stage] != rank))
                if a.action in "BI" and (stage := where.after(a.stage)) is not None:
                    waits.append(spans[whole[stage, a.microbatch]][1] + sent * (where.rank_of[stage] != rank))
                start = max(waits, default=0)
                moved |= start != spans[a][0]
                spans[a] = start, start + times[a]
    return spans


@given(runnable(ranks=4, microbatches=8), st.randoms(use_true_random=False), st.integers(0, 5))
def test_simulation_is_that_of_brute_force(asked: tuple[str, int, int, int], random: Any, sent: int) -> None:
    orders, where = built(*asked)
    times = {a: random.randint(0, 9) for lane in orders for a in lane}
    found = simulate(orders, where, times, sent)
    expected = brute_force(orders, where, times, sent)
    first = min(start for start, _ in expected.values())
    got = {Action(a.stage, a.action, a.microbatch): (a.start_ns + first, a.end_ns + first) for a in found.actions.itertuples()}
    assert got == expected


@given(runnable(), st.tuples(*[st.integers(1, 9)] * 3), st.integers(0, 5))
def test_work_is_kept_and_the_window_holds_the_longest_way(asked: tuple[str, int, int, int], fiw: tuple[int, int, int], sent: int) -> None:
    orders, where = built(*asked)
    found = simulate(orders, where, Times.uniform(len(where.rank_of), *fiw), sent)
    m, stages = asked[2], len(where.rank_of)
    assert found.work_ns == stages * (m // where.pipelines) * sum(fiw) == int(found.stages["work_ns"].sum())
    parts = found.ranks[["work_ns", "fill_ns", "wait_ns", "drain_ns"]]
    assert found.ranks["wait_ns"].tolist() == list(found.waits_ns)
    assert (parts.sum(axis=1) == found.window_ns).all()
    assert (parts >= 0).all(axis=None)
    chain = stages // where.pipelines
    hops = sum(a != b for a, b in zip(where.rank_of[: chain - 1], where.rank_of[1:chain], strict=True))
    assert found.window_ns >= chain * (fiw[0] + fiw[1]) + 2 * hops * sent
    assert found.window_ns >= int(found.ranks["work_ns"].max())
