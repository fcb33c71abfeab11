"""Are schedules named right? Against hand-drawn orders and against the tables that torch itself generates."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tracekit.schedule.recognise import recognise
from tracekit.vocabulary import Action

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

TORCH = {
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}


def drawn(*lanes: str) -> dict[int, list[Action]]:
    """'0F0 0F1 0B0' -> that rank's actions."""
    return {rank: [Action(int(s), a, int(m)) for s, a, m in re.findall(r"(\d+)([FBIW])(\d+)", lane)] for rank, lane in enumerate(lanes)}


def flat(order: list[Any]) -> list[Action]:
    """Actions of torch's table, overlapped pairs opened, idle slots and gradient reductions left out."""
    opened = [sub for a in order if a is not None for sub in (a.sub_actions or (a,))]
    return [Action(a.stage_index, a.computation_type.value, a.microbatch_index) for a in opened if a.computation_type.value in "FBIW"]


def torch_order(name: str, p: int, v: int, m: int) -> dict[int, list[Action]]:
    """The order that torch's schedule gives each rank; no process group is needed to compute it."""
    schedule = object.__new__(getattr(schedules, TORCH[name]))
    rounds = max(1, m // p)
    schedule.__dict__.update(
        pp_group_size=p, _n_microbatches=m, n_local_stages=v, num_stages=p * v, _num_stages=p * v, _stages=[None] * v,
        number_of_rounds=rounds, microbatches_per_round=m // rounds,
    )  # fmt: skip
    return {rank: flat(schedule._calculate_single_rank_operations(rank)) for rank in range(p)}


def single_order(name: str, p: int, m: int) -> dict[int, list[Action]]:
    schedule = object.__new__(getattr(schedules, {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}[name]))
    schedule.__dict__.update(_num_stages=p, _n_microbatches=m)
    order = {rank: flat(order) for rank, order in schedule._get_pipeline_order().items()}
    if name == "1f1b":  # torch 2.13's table starts the last rank at microbatch 1; its schedule runs what stands here
        order[p - 1] = [Action(p - 1, a, mb) for mb in range(m) for a in "FB"]
    return order


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 8), (4, 4), (4, 8), (8, 16)])
def test_single_stage_schedules_of_torch(name: str, p: int, m: int) -> None:
    got = recognise(single_order(name, p, m))
    assert (got.name, got.ranks, got.stages, got.virtual, got.microbatches) == (name, p, p, 1, m)


@pytest.mark.parametrize("name", ["interleaved_1f1b", "looped_bfs", "interleaved_zb"])
@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 4), (4, 2, 8), (4, 3, 8), (4, 2, 10), (8, 2, 16)])
def test_looped_schedules_of_torch(name: str, p: int, v: int, m: int) -> None:
    got = recognise(torch_order(name, p, v, m))
    assert (got.name, got.ranks, got.stages, got.virtual, got.microbatches, got.placement) == (name, p, p * v, v, m, "loop")


@pytest.mark.parametrize("name", ["zbv", "dualpipev"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 8), (4, 8), (4, 16), (8, 16)])
def test_v_shaped_schedules_of_torch(name: str, p: int, m: int) -> None:
    got = recognise(torch_order(name, p, 2, m))
    assert (got.name, got.stages, got.virtual, got.placement) == (name, 2 * p, 2, "v")


def test_zero_bubble_with_one_stage_per_rank_is_zb_h1() -> None:
    assert recognise(torch_order("interleaved_zb", 4, 1, 8)).name == "zb_h1"


@pytest.mark.parametrize(("name", "v"), [("interleaved_zb", 1), ("interleaved_zb", 2), ("zbv", 2)])
def test_the_first_stage_may_have_no_input_gradient(name: str, v: int) -> None:
    order = {rank: [a for a in lane if (a.stage, a.action) != (0, "I")] for rank, lane in torch_order(name, 4, v, 8).items()}
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
    order = single_order("1f1b", 4, 8)
    assert recognise({0: order[0]}, ranks=4).name == "1f1b"
    short = single_order("1f1b", 4, 4)
    assert recognise({0: short[0]}, ranks=4).name == "unknown"  # FFFFBBBB: GPipe would do the same
    assert recognise({3: short[3]}, ranks=4).name == "1f1b"
