"""How do the three axes go together? Data x pipeline x tensor: each stage is split by tensor, then by data.

Rank order is pp, dp, tp: tensor parallelism talks most, so its ranks are neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh

from instrumentation.config import RunConfig
from instrumentation.model import Decoder
from instrumentation.recipes.fsdp import shard
from instrumentation.recipes.parts import Parts
from instrumentation.recipes.pp import pipeline
from instrumentation.recipes.tp import reduce_replicated, split_layers


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """Pipeline stages of tensor-parallel layers, sharded or replicated over the data axis."""
    assert mesh is not None

    def split(stage: Decoder) -> nn.Module:
        split_layers(stage, mesh["tp"], config.sequence_parallel)
        if config.data == "fsdp":
            shard(stage, mesh["dp_shard"], reshard_after_forward=False)
        else:
            replicate(stage, mesh=mesh["dp_replicate"])
        return stage

    parts = pipeline(config, mesh, device, split)

    def finish_gradients() -> None:
        for stage in parts.modules:
            reduce_replicated(stage)

    return replace(parts, finish_gradients=finish_gradients)
