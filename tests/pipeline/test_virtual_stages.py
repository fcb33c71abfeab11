"""Are the stages and microbatches of a rank with several stages read off its work and its traffic alone?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests import builders as b
from tracekit.facts.actions import actions
from tracekit.schedule.catalog import placement
from tracekit.schedule.orders import order
from tracekit.stage_order import stage_order
from tracekit.trace import RankTrace
from tracekit.vocabulary import Action

#: The ranges around an action, the outermost first.
Naming = Callable[[Action], list[str]]
FORWARD, BACKWARD = "aten::mm", "MmBackward0"


def exchange(what: str, at: float, ranks: int, desc: str = "mesh_pp") -> dict[str, Any]:
    args: dict[str, Any] = {"Collective name": what, "Process Group Description": desc, "Process Group Ranks": str(list(range(ranks)))}
    return b.op(f"c10d::{'recv_' if what == 'recv' else what}", at, at + 1, **args)


def drawn(name: str, p: int, m: int, v: int, rank: int, stray: bool = False, sequence: bool = True, named: Naming | None = None) -> list[dict[str, Any]]:
    """What a rank's trace shows of a schedule: its sends and receives, three nodes per forward, a kernel for each, and maybe a range."""
    where, at = placement(name, p, v), 10.0
    events: list[dict[str, Any]] = []
    for i, a in enumerate(order(name, p, m, v)[rank]):
        source, target = (where.before(a.stage), where.after(a.stage))[:: 1 if a.action == "F" else -1]
        if a.action != "W" and source is not None and where.rank_of[source] != rank:
            events.append(exchange("recv", at, p))
            at += 2
        begin, first = at, 10 + 3 * (a.stage * m + a.microbatch)
        for node in range(first, first + 3) if a.action == "F" else range(first + 2, first - 1 + (a.action == "W"), -1):
            make = b.forward if a.action == "F" else b.backward
            if sequence:
                events.append(make(FORWARD if a.action == "F" else BACKWARD, at, at + 4, node))
            elif named is None:
                events.append(b.span(f"layers.0.{'forward' if a.action == 'F' else 'backward'}", at, at + 4))
            events += [b.launch(at + 1, at + 2, int(at)), b.kernel("gemm", 10_000 + at, 10_004 + at, int(at))]
            at += 5
        if named is not None:
            events += [b.op(text, begin, at - 0.5, cat="python_function" if ".py(" in text else "user_annotation") for text in named(a)]
        if a.action != "W" and target is not None and where.rank_of[target] != rank:
            events.append(exchange("send", at, p))
            at += 2
        if stray and i == 0:
            events += [b.forward("aten::stack", at, at + 4, 9), b.launch(at + 1, at + 2, int(at)), b.kernel("gemm", 10_000 + at, 10_004 + at, int(at))]
            at += 5
    return [b.span("ProfilerStep#4", 0, at + 1), *events]


def passed(events: list[dict[str, Any]], rank: int) -> RankTrace:
    info = {"rank": rank, "world_size": 64, "backend": "nccl", "pg_config": []}
    return b.passed(events, distributedInfo=info)


def read(events: list[dict[str, Any]], rank: int) -> list[Action]:
    table = actions(passed(events, rank))["actions"]
    return [Action(*row) for row in table[["stage", "action", "microbatch"]].itertuples(index=False, name=None)]


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize(("name", "m", "v"), [("interleaved_1f1b", 8, 2), ("interleaved_1f1b", 4, 2), ("interleaved_zb", 8, 2)])
def test_stages_in_a_loop(name: str, m: int, v: int, rank: int) -> None:
    assert read(drawn(name, 4, m, v, rank), rank) == list(order(name, 4, m, v)[rank])


@pytest.mark.parametrize("rank", range(2))
def test_two_ranks_that_are_each_other_s_neighbours_on_both_sides(rank: int) -> None:
    assert read(drawn("interleaved_1f1b", 2, 4, 3, rank), rank) == list(order("interleaved_1f1b", 2, 4, 3)[rank])


@pytest.mark.parametrize("rank", [0, 3])
def test_wrap_around_traffic_shows_that_a_breadth_first_rank_has_several_stages(rank: int) -> None:
    assert read(drawn("looped_bfs", 4, 4, 2, rank), rank) == list(order("looped_bfs", 4, 4, 2)[rank])


def test_a_middle_rank_under_breadth_first_looks_like_one_stage() -> None:
    found = read(drawn("looped_bfs", 4, 4, 2, 1), 1)
    assert found == [*(Action(1, "F", m) for m in range(8)), *(Action(1, "B", m) for m in reversed(range(8)))]


@pytest.mark.parametrize("rank", range(3))
def test_stages_in_a_v(rank: int) -> None:
    assert read(drawn("zbv", 4, 8, 2, rank), rank) == list(order("zbv", 4, 8, 2)[rank])


def test_the_last_rank_of_a_v_says_nothing() -> None:
    """It hands activations to itself: two forwards follow each other without a send."""
    assert read(drawn("zbv", 4, 8, 2, 3), 3) == []


@pytest.mark.parametrize("rank", range(4))
def test_without_sequence_numbers_the_order_of_forwards_and_backwards_tells(rank: int) -> None:
    assert read(drawn("interleaved_1f1b", 4, 8, 2, rank, sequence=False), rank) == list(order("interleaved_1f1b", 4, 8, 2)[rank])
    assert read(drawn("1f1b", 4, 8, 1, rank, sequence=False), rank) == list(order("1f1b", 4, 8)[rank])


def test_work_that_no_backward_goes_back_through_is_no_forward() -> None:
    assert read(drawn("interleaved_1f1b", 4, 8, 2, 1, stray=True), 1) == list(order("interleaved_1f1b", 4, 8, 2)[1])


def test_a_missing_send_leaves_everything_unknown() -> None:
    events = drawn("interleaved_1f1b", 4, 8, 2, 0)
    events.remove(next(e for e in events if e["name"] == "c10d::send"))
    assert read(events, 0) == []


def test_the_share_that_inferred_actions_explain() -> None:
    table = actions(passed(drawn("interleaved_1f1b", 4, 8, 2, 0), 0))["actions"]
    assert set(table["source"]) == {"inferred"} and table["explained_ratio"].tolist() == [1.0] * 32
    # 4 us of 4 x 3 x 32 + 4 us are work of no action
    table = actions(passed(drawn("interleaved_1f1b", 4, 8, 2, 1, stray=True), 1))["actions"]
    assert table["explained_ratio"].tolist() == [pytest.approx(96 / 97)] * 32


def labels(lane: Sequence[Action]) -> list[int]:
    """Labels of a lane: forwards numbered as they come."""
    number = {(a.stage, a.microbatch): k for k, a in enumerate(a for a in lane if a.action == "F")}
    return [3 * number[a.stage, a.microbatch] + "FBW".index(a.action) for a in lane]


@pytest.mark.parametrize("p", [2, 3, 8])
@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_every_rank_of_interleaved_1f1b(p: int, v: int, rounds: int) -> None:
    lanes = order("interleaved_1f1b", p, rounds * p, v)
    for rank, lane in enumerate(lanes):
        told = stage_order(labels(lane), True, (rank, p))
        assert told == dict(zip(labels(lane), lane, strict=True))


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("p", [2, 3, 8])
def test_one_stage_is_not_taken_for_several(name: str, p: int) -> None:
    for m in (p, 2 * p, 4 * p):
        for rank, lane in enumerate(order(name, p, m)):
            for by_sequence in (True, False):
                told = stage_order(labels(lane), by_sequence, (rank, p))
                assert told == dict(zip(labels(lane), lane, strict=True))
