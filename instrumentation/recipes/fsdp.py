"""How are parameters sharded over replicas? fully_shard gathers each layer when it is needed (ZeRO-3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from instrumentation.config import RunConfig
from instrumentation.model import Decoder
from instrumentation.recipes.parts import Parts, accumulate, build_model


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """Every layer is gathered for its forward and again for its backward; gradients are reduce-scattered once a step."""
    assert mesh is not None
    model = build_model(config, device)
    shard(model, mesh["dp_shard"])

    @contextmanager
    def sync(last: bool) -> Iterator[None]:
        model.set_requires_gradient_sync(last)
        yield

    return Parts([model], partial(accumulate, model, sync=sync))


def shard(model: Decoder, mesh: DeviceMesh, reshard_after_forward: bool = True) -> None:
    """Shard every layer by itself, and what is left (embedding, norm, head) with the model.

    Args:
        model: a model or stage, changed in place.
        mesh: the axis to shard over.
        reshard_after_forward: give gathered parameters back after forward; a pipeline keeps them for its microbatches.
    """
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard_after_forward)
