"""Which collectives does a layer issue? Counted in this process, over a process group that only pretends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from instrumentation.config import configure
from instrumentation.data import step_batch
from instrumentation.mesh import build_mesh
from instrumentation.recipes import RECIPES, cp
from instrumentation.recipes.parts import Parts, accumulate


@pytest.fixture(autouse=True)
def two_ranks() -> Iterator[None]:
    """Make this process rank 0 of two; the other never answers and is never waited for."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


class Collectives(TorchDispatchMode):
    """Counts functional collectives by name."""

    def __init__(self) -> None:
        super().__init__()
        self.issued = Counter[str]()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # let DTensor issue its collectives first, and see those
        name = operator._schema.name.partition("::")[2]
        if operator.namespace == "_c10d_functional" and name.startswith(("all_", "reduce_")):
            self.issued.update([name])
        return operator(*args, **(kwargs or {}))


def collectives(recipe: str, layers: int, microbatches: int) -> tuple[Counter[str], Counter[str]]:
    """Collectives of a step's forward and backward, and of what finishes its gradients."""
    config = configure(recipe, 2, out="x", layers=layers, microbatches=microbatches, hidden=16, heads=2, sequence=8, vocabulary=32)
    parts = RECIPES[recipe](config, build_mesh(config), torch.device("cpu"))
    counts = []
    for work in (lambda: parts.forward_backward(step_batch(config, 0, 0)), parts.finish_gradients):
        with Collectives() as seen:
            work()
        counts.append(seen.issued)
    return counts[0], counts[1]


def per_layer(recipe: str, microbatches: int = 1) -> tuple[Counter[str], Counter[str]]:
    """What one more layer adds."""
    (one, one_after), (two, two_after) = collectives(recipe, 1, microbatches), collectives(recipe, 2, microbatches)
    return two - one, two_after - one_after


@pytest.mark.parametrize("microbatches", [1, 2])
def test_tensor_parallelism_takes_four_all_reduces_per_layer_and_microbatch(microbatches: int) -> None:
    step, after = per_layer("tp", microbatches)
    assert step == {"all_reduce": 4 * microbatches}
    assert after == {}


@pytest.mark.parametrize("microbatches", [1, 2])
def test_sequence_parallelism_takes_four_pairs_and_one_reduction_per_norm_parameter(microbatches: int) -> None:
    step, after = per_layer("tp-sp", microbatches)
    assert step == {"all_gather_into_tensor": 4 * microbatches, "reduce_scatter_tensor": 4 * microbatches}
    assert after == {"all_reduce": 4}, "weight and bias of two norms, once a step however many microbatches"


def test_context_parallelism_gathers_keys_and_values_once_and_scatters_their_gradients_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Averaging over replicas needs answers from the other rank; it is no part of a layer.
    monkeypatch.setattr(cp, "data_parallel", lambda model, mesh: Parts([model], partial(accumulate, model)))
    step, _ = per_layer("cp")
    assert step == {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}


def test_replicated_gradients_are_whole_after_they_are_finished() -> None:
    config = configure("tp-sp", 2, out="x", layers=1, hidden=16, heads=2, sequence=8, vocabulary=32)
    parts = RECIPES["tp-sp"](config, build_mesh(config), torch.device("cpu"))
    parts.forward_backward(step_batch(config, 0, 0))
    parts.finish_gradients()
    gradients = [p.grad for module in parts.modules for p in module.parameters() if isinstance(module, nn.Module)]
    assert all(not any(placement.is_partial() for placement in g.placements) for g in gradients if hasattr(g, "placements"))
