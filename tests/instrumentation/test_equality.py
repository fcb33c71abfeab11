"""Does every recipe train exactly what a single process trains? Real processes, five or ten steps, losses and all parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from instrumentation.config import RunConfig
from tests.instrumentation.cases import CASES

#: Sums in another order differ by about 1e-15; ten AdamW steps make about 1e-12 of it in a parameter.
LOSS_TOLERANCE = 1e-12
PARAMETER_TOLERANCE = 1e-9

Trained = Mapping[str, RunConfig]


def losses(config: RunConfig) -> list[float]:
    result: dict[str, Any] = json.loads((Path(config.out) / "result.json").read_text())
    assert result["schema"] == "tracekit.result/1"
    return result["losses"]


def parameters(config: RunConfig) -> dict[str, torch.Tensor]:
    return torch.load(Path(config.out) / "parameters.pt")


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_one_process(trained: Trained, case: str) -> None:
    steps = trained[case].steps
    assert steps >= 5 and len(losses(trained[case])) == steps
    assert losses(trained[case]) == pytest.approx(losses(trained["dense"])[:steps], rel=0, abs=LOSS_TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_one_process(trained: Trained, case: str) -> None:
    single = "dense" if trained[case].steps == trained["dense"].steps else "dense, half the steps"
    one, many = parameters(trained[single]), parameters(trained[case])
    assert set(many) == set(one)
    worst = {name: (many[name] - one[name]).abs().max().item() for name in one}
    assert max(worst.values()) < PARAMETER_TOLERANCE, max(worst, key=worst.__getitem__)


def test_the_comparison_would_notice(trained: Trained) -> None:
    trained_once, start = losses(trained["dense"])[-1], losses(trained["dense"])[0]
    assert start - trained_once > 0.5, "the loss falls, so a recipe that trained nothing would differ"


def test_the_same_seed_gives_the_same_run(trained: Trained) -> None:
    assert losses(trained["dense again"]) == losses(trained["dense"])


@pytest.mark.parametrize("case", [name for name in CASES if name != "dense again"])
def test_every_rank_leaves_a_capture(trained: Trained, case: str) -> None:
    config = trained[case]
    run = json.loads((Path(config.out) / "run.json").read_text())
    assert (run["recipe"], run["world_size"], run["mesh"]) == (config.recipe, config.ranks, config.mesh)
    for rank in range(config.ranks):
        assert (Path(config.out) / f"rank{rank:05d}" / "capture000" / "trace.json.gz").stat().st_size > 0
