"""What may be asked of a run, and is the reason given where it may not?"""

from __future__ import annotations

from typing import Any

import pytest

from instrumentation.config import RECIPES, RECOMPUTE, SCHEDULES, configure
from tracekit.errors import UsageError

REFUSED: list[tuple[str, int | None, dict[str, Any], str]] = [
    ("tensor", 2, {}, "no recipe 'tensor'; there are dense, ddp"),
    ("dense", 2, {}, "dense is one process"),
    ("tp", 1, {}, "tp needs at least 2 ranks"),
    ("tp", 0, {}, "ranks must be at least 1"),
    ("3d", 4, {}, "3d needs at least 2 ranks on each of pp, dp and tp"),
    ("3d", 10, {}, "pp 2 x dp 2 x cp 1 x tp 2 is 8 ranks, not 10"),
    ("tp", 3, {}, "4 heads do not divide over tp 3"),
    ("tp", 2, {"hidden": 30}, "hidden 30 does not divide into 4 heads"),
    ("tp", 2, {"vocabulary": 33}, "vocabulary 33 does not divide over tp 2"),
    ("tp", 2, {"vocabulary": 8}, "the text has 24 different characters"),
    ("tp-sp", 2, {"sequence": 15}, "sequence 15 does not divide over tp 2"),
    ("cp", 4, {"sequence": 30}, "sequence 30 does not divide over cp 4"),
    ("ddp", 2, {"sequence_parallel": True}, "it needs tp of at least 2"),
    ("ddp", 2, {"schedule": "1f1b"}, "a schedule needs the pp or 3d recipe"),
    ("pp", 4, {"schedule": "2f2b"}, "no schedule '2f2b'; there are gpipe"),
    ("pp", 4, {"layers": 6}, "6 layers do not divide into 4 stages"),
    ("pp", 2, {"schedule": "zbv", "virtual": 1}, "zbv needs exactly 2 stages per rank"),
    ("pp", 2, {"schedule": "dualpipev", "virtual": 3, "layers": 6}, "dualpipev needs exactly 2 stages per rank"),
    ("pp", 2, {"schedule": "dualpipev", "microbatches": 2}, "at least as many microbatches as stages: 4, not 2"),
    ("pp", 4, {"schedule": "1f1b", "microbatches": 3}, "1f1b needs at least as many microbatches as stages: 4, not 3"),
    ("pp", 2, {"schedule": "1f1b", "virtual": 2}, "use interleaved for 2"),
    ("pp", 2, {"schedule": "interleaved", "virtual": 1}, "use 1f1b for one"),
    ("pp", 4, {"schedule": "interleaved", "microbatches": 9}, "9 do not divide into equal rounds"),
    ("pp", 2, {"recompute": "some"}, "no recomputation 'some'; there are none, full"),
    *[
        ("pp", 2, {"schedule": schedule, "recompute": mode}, f"{schedule} runs backward in two parts")
        for schedule in ("interleaved-zb", "zbv", "dualpipev")
        for mode in ("full", "sqrt", "selective:op")
    ],
    ("3d", 8, {"schedule": "zbv", "data": "ddp"}, "use data fsdp"),
    ("3d", 8, {"data": "zero"}, "no data parallelism 'zero'"),
    ("tp", 2, {"device": "tpu"}, "no device 'tpu'"),
    ("tp", 2, {"dtype": "int8"}, "no dtype 'int8'"),
    ("tp", 2, {"dropout": 1.0}, "dropout 1.0 is not in [0, 1)"),
    ("tp", 2, {"steps": 3}, "3 steps end before the profiler window of 1 + 1 + 3 steps does"),
    ("tp", 2, {"active": 0}, "at least one active step"),
    ("pp", 2, {"emulate_compute_ns": 1, "device": "cuda"}, "sleeps on the processor"),
    ("cp", 2, {"emulate_compute_ns": 1}, "have no attention core, which cp is about"),
    ("dense", 1, {"emulate_compute_ns": 1, "recompute": "selective:core_attention"}, "have no attention core"),
    ("dense", 1, {"emulate_compute_ns": 0}, "longer than 0"),
    ("dense", 1, {"colour": "red"}, "no setting 'colour'"),
]


@pytest.mark.parametrize(("recipe", "ranks", "given", "reason"), REFUSED, ids=[reason for *_, reason in REFUSED])
def test_the_impossible_is_refused_with_its_reason(recipe: str, ranks: int | None, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        configure(recipe, ranks, out="x", **given)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_has_defaults_that_work(recipe: str) -> None:
    config = configure(recipe, out="x")
    assert config.pp * config.dp * config.cp * config.tp == config.ranks


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_schedule_has_defaults_that_work(schedule: str, ranks: int) -> None:
    config = configure("pp", ranks, out="x", schedule=schedule, microbatches=2 * ranks)
    held = sorted(layer for rank in range(ranks) for stage in config.rank_stages(rank) for layer in config.stage_layers(stage))
    assert held == list(range(config.layers))


@pytest.mark.parametrize("mode", RECOMPUTE)
def test_every_recomputation_has_a_recipe_that_takes_it(mode: str) -> None:
    assert configure("pp", 2, out="x", recompute=mode).recompute == mode


def test_stages_of_a_v_shaped_schedule_turn_at_the_last_rank() -> None:
    config = configure("pp", 4, out="x", schedule="zbv")
    assert [config.rank_stages(rank) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]


def test_stages_of_a_looped_schedule_go_round() -> None:
    config = configure("pp", 4, out="x", schedule="interleaved")
    assert [config.rank_stages(rank) for rank in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_mesh_axes_are_in_rank_order() -> None:
    assert configure("3d", 16, out="x", data="fsdp").mesh == {"pp": 2, "dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 2}
    assert list(configure("3d", 8, out="x").mesh) == ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
