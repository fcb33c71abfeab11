"""Does each rank run what its schedule says, in that order? Drawn by hand, and against torch's own tables."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given

from tests.schedule.drawings import built, runnable, written
from tests.schedule.torch_tables import SINGLE, overlapped_by_torch, torch_order
from tracekit.errors import UsageError
from tracekit.schedule.catalog import SCHEDULES, check_microbatches, placement, stages_per_rank
from tracekit.schedule.orders import order, overlapped
from tracekit.schedule.recognise import recognise

LINE = {
    ("gpipe", 2, 3): ["F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"],
    ("1f1b", 2, 3): ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"],
    ("1f1b", 4, 2): ["F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"],  # fewer microbatches than ranks
    ("zb_h1", 3, 4): [
        "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",  # W at once
        "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",  # one I later
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",  # two I later
    ],
    ("zb_h2", 2, 4): ["F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3", "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"],
}

SEVERAL_STAGES = {
    ("interleaved_1f1b", 2, 4): [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ],
    ("looped_bfs", 2, 2): ["0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0", "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0"],
    ("interleaved_zb", 2, 2): ["0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1", "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1"],
    ("zbv", 2, 3): [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2",
    ],
    ("dualpipev", 2, 4): [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3",
        "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3",
    ],
    # stages 2 and 3 are the second copy of stages 0 and 1, on ranks 1 and 0; microbatches 2 and 3 run through it
    ("dualpipe", 2, 4): ["0F0 3F2 0F1 3B2 3F3 0B0 3B3 0I1 0W1", "2F2 1F0 2F3 1B0 1F1 2B2 1B1 2I3 2W3"],
}


@pytest.mark.parametrize(("asked", "drawn"), LINE.items())
def test_one_stage_per_rank(asked: tuple[str, int, int], drawn: list[str]) -> None:
    assert [written(lane, stages=False) for lane in order(*asked)] == drawn


@pytest.mark.parametrize(("asked", "drawn"), SEVERAL_STAGES.items())
def test_several_stages_per_rank(asked: tuple[str, int, int], drawn: list[str]) -> None:
    assert [written(lane) for lane in order(*asked)] == drawn


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (2, 5), (4, 4), (4, 7), (8, 16)])
def test_orders_are_what_torch_executes(name: str, p: int, m: int) -> None:
    assert dict(enumerate(map(list, order(name, p, m)))) == torch_order(name, p, m)


@pytest.mark.parametrize("name", ["interleaved_1f1b", "looped_bfs", "interleaved_zb"])
@pytest.mark.parametrize(("p", "m", "v"), [(1, 2, 2), (2, 4, 2), (4, 3, 2), (4, 4, 3), (4, 8, 2), (4, 10, 2), (3, 12, 4), (8, 16, 3)])
def test_looped_orders_are_those_of_torch(name: str, p: int, m: int, v: int) -> None:
    assert dict(enumerate(map(list, order(name, p, m, v)))) == torch_order(name, p, m, v)


@pytest.mark.parametrize(("name", "p", "m"), [("zbv", p, m) for p in (1, 2, 4, 8) for m in (1, p, 2 * p, 3 * p + 1)])
def test_orders_in_a_v_are_those_of_torch(name: str, p: int, m: int) -> None:
    assert dict(enumerate(map(list, order(name, p, m)))) == torch_order(name, p, m, 2)


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (2, 7), (4, 8), (4, 13), (8, 20)])
def test_dualpipev_is_that_of_torch_with_its_pairs(p: int, m: int) -> None:
    assert dict(enumerate(map(list, order("dualpipev", p, m)))) == torch_order("dualpipev", p, m, 2)
    assert overlapped("dualpipev", p, m) == overlapped_by_torch(p, m)


@pytest.mark.parametrize("name", ["interleaved_1f1b", "interleaved_zb", "dualpipev"])
def test_what_torch_refuses_is_refused(name: str) -> None:
    def refused(p: int, m: int) -> tuple[bool, bool]:
        verdicts = []
        for build, error in ((torch_order, ValueError), (order, UsageError)):
            try:
                build(name, p, m, 2)
                verdicts.append(False)
            except error:
                verdicts.append(True)
        return verdicts[0], verdicts[1]

    verdicts = {refused(p, m) for p in (2, 3, 4) for m in range(1, 12)}
    assert verdicts == {(True, True), (False, False)}


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (("zb-h1", 2, 2), "choose one of gpipe, 1f1b"),
        (("1f1b", 2, 0), "at least 1"),
        (("1f1b", 0, 2), "at least 1 rank"),
        (("1f1b", 2, 2, 2), "1 stage per rank, not 2"),
        (("interleaved_1f1b", 2, 2, 1), "at least 2 stages per rank"),
        (("interleaved_1f1b", 4, 9), "2 equal rounds, best a multiple of 4"),
        (("zbv", 2, 4, 3), "2 stages per rank, not 3"),
        (("dualpipev", 4, 7), "at least 8"),
        (("dualpipe", 3, 8), "even number of ranks"),
        (("dualpipe", 2, 5), "even number, half of them from each end"),
        (("dualpipe", 4, 6), "at least 8"),
    ],
)
def test_what_cannot_run_says_what_can(asked: tuple[str, int, int], allowed: str) -> None:
    with pytest.raises(UsageError, match=allowed):
        order(*asked)


@pytest.mark.parametrize(
    ("name", "ranks", "rank_of"),
    [("1f1b", 3, (0, 1, 2)), ("looped_bfs", 3, (0, 1, 2, 0, 1, 2)), ("zbv", 3, (0, 1, 2, 2, 1, 0)), ("dualpipe", 4, (0, 1, 2, 3, 3, 2, 1, 0))],
)
def test_where_the_stages_are(name: str, ranks: int, rank_of: tuple[int, ...]) -> None:
    assert placement(name, ranks).rank_of == rank_of


def test_stages_hand_on_along_their_chain() -> None:
    v, two = placement("dualpipev", 2), placement("dualpipe", 2)
    assert [v.before(s) for s in range(4)] == [None, 0, 1, 2]
    assert [v.after(s) for s in range(4)] == [1, 2, 3, None]
    assert [two.before(s) for s in range(4)] == [None, 0, None, 2]
    assert [two.after(s) for s in range(4)] == [1, None, 3, None]


def test_the_catalog_and_the_orders_have_the_same_schedules() -> None:
    for name in SCHEDULES:
        check_microbatches(name, 4, 8)
        lanes = order(name, 4, 8)
        assert {a.action for lane in lanes for a in lane} >= ({"F", "I", "W"} if SCHEDULES[name].split else {"F", "B"})
        assert {a.stage for lane in lanes for a in lane} == set(range(4 * stages_per_rank(name)))


@given(runnable())
def test_every_stage_runs_every_microbatch_once(asked: tuple[str, int, int, int]) -> None:
    lanes, where = built(*asked)
    m = asked[2]
    done: dict[tuple[int, int], str] = {}
    for rank, lane in enumerate(lanes):
        assert all(where.rank_of[a.stage] == rank for a in lane)
        for a in lane:
            done[a.stage, a.microbatch] = done.get((a.stage, a.microbatch), "") + a.action
    assert set(done.values()) <= {"FB", "FIW"}
    runs = Counter(stage for stage, _ in done)
    assert runs == dict.fromkeys(range(len(where.rank_of)), m // where.pipelines)
    assert {mb for _, mb in done} == set(range(m))


@given(runnable(names=[name for name in SCHEDULES if name != "dualpipe"]))
def test_recognise_names_what_is_built(asked: tuple[str, int, int, int]) -> None:
    name, p, m, v = asked
    same_order = {"1f1b": m == 1, "interleaved_1f1b": m == 1, "zb_h2": m <= 2 or p == 1, "zbv": p == 1, "dualpipev": p == 1}
    assume(not same_order.get(name, False))  # gpipe, looped_bfs, zb_h1 and a loop of one rank run the very same order
    got = recognise(dict(enumerate(order(name, p, m, v))))
    assert (got.name, got.ranks, got.virtual, got.microbatches) == (name, p, v, m)


@pytest.mark.parametrize(
    ("name", "twin", "p", "m", "v"),
    [("1f1b", "gpipe", 4, 1, 1), ("zb_h2", "zb_h1", 4, 2, 1), ("zb_h2", "zb_h1", 1, 9, 1), ("interleaved_1f1b", "looped_bfs", 4, 1, 2)],
)
def test_what_recognise_cannot_tell_apart_is_the_same(name: str, twin: str, p: int, m: int, v: int) -> None:
    assert order(name, p, m, v) == order(twin, p, m, v)
