"""Are schedules named right? Against hand-drawn orders and against the tables that torch itself generates."""

from __future__ import annotations

import re

import pytest

from tests.schedule.torch_tables import torch_order
from tracekit.schedule.recognise import recognise
from tracekit.vocabulary import Action


def drawn(*lanes: str) -> dict[int, list[Action]]:
    """'0F0 0F1 0B0' -> that rank's actions."""
    return {rank: [Action(int(s), a, int(m)) for s, a, m in re.findall(r"(\d+)([FBIW])(\d+)", lane)] for rank, lane in enumerate(lanes)}


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 8), (4, 4), (4, 8), (8, 16)])
def test_single_stage_schedules_of_torch(name: str, p: int, m: int) -> None:
    got = recognise(torch_order(name, p, m))
    assert (got.name, got.ranks, got.stages, got.virtual, got.microbatches) == (name, p, p, 1, m)


@pytest.mark.parametrize("name", ["interleaved_1f1b", "looped_bfs", "interleaved_zb"])
@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 4), (4, 2, 8), (4, 3, 8), (4, 2, 10), (8, 2, 16)])
def test_looped_schedules_of_torch(name: str, p: int, v: int, m: int) -> None:
    got = recognise(torch_order(name, p, m, v))
    assert (got.name, got.ranks, got.stages, got.virtual, got.microbatches, got.placement) == (name, p, p * v, v, m, "loop")


@pytest.mark.parametrize("name", ["zbv", "dualpipev"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 8), (4, 8), (4, 16), (8, 16)])
def test_v_shaped_schedules_of_torch(name: str, p: int, m: int) -> None:
    got = recognise(torch_order(name, p, m, 2))
    assert (got.name, got.stages, got.virtual, got.placement) == (name, 2 * p, 2, "v")


def test_zero_bubble_with_one_stage_per_rank_is_zb_h1() -> None:
    assert recognise(torch_order("interleaved_zb", 4, 8)).name == "zb_h1"


@pytest.mark.parametrize(("name", "v"), [("interleaved_zb", 1), ("interleaved_zb", 2), ("zbv", 2)])
def test_the_first_stage_may_have_no_input_gradient(name: str, v: int) -> None:
    order = {rank: [a for a in lane if (a.stage, a.action) != (0, "I")] for rank, lane in torch_order(name, 4, 8, v).items()}
    assert recognise(order).name == ("zb_h1" if v == 1 else name)


def test_zb_h2_starts_with_more_forwards() -> None:
    order = drawn("0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2")
    assert recognise(order).name == "zb_h2"


def test_gpipe_may_run_its_backwards_in_reverse() -> None:
    assert recognise(drawn("0F0 0F1 0B1 0B0", "1F0 1F1 1B1 1B0")).name == "gpipe"


@pytest.mark.parametrize(
    "lanes",
    [
        ("0F0 0F1 0B0", "1F0 1B0 1F1 1B1"),  # a backward is missing
        ("0F0 0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"),  # a forward twice
        ("0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"),  # no rule has rank 0 go one by one
        ("0F0 0F1 0B0 0B1", "0F0 0B0 0F1 0B1"),  # one stage on two ranks
        ("0F0 0F1 0B0 0B1", "1F0 1B0"),  # ranks disagree on the microbatches
    ],
)
def test_what_fits_no_rule_is_unknown(lanes: tuple[str, ...]) -> None:
    assert recognise(drawn(*lanes)).name == "unknown"


def test_one_rank_may_be_enough_and_may_be_too_little() -> None:
    order = torch_order("1f1b", 4, 8)
    assert recognise({0: order[0]}, ranks=4).name == "1f1b"
    short = torch_order("1f1b", 4, 4)
    assert recognise({0: short[0]}, ranks=4).name == "unknown"  # FFFFBBBB: GPipe would do the same
    assert recognise({3: short[3]}, ranks=4).name == "1f1b"
