"""How is a long sequence split over ranks? Context parallelism: keys and values are gathered around attention.

Every rank works on a contiguous part of the sequence in all layers. Only attention looks further back, so each layer's
keys and values are all-gathered before the core, and their gradients reduce-scattered after its backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from instrumentation.config import RunConfig
from instrumentation.recipes.ddp import data_parallel
from instrumentation.recipes.parts import Microbatch, Parts, build_model


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """A whole model on every rank, a part of the sequence each; gradients are averaged like those of replicas."""
    assert mesh is not None
    axis = mesh["cp"]
    model = build_model(config, device)
    length = config.sequence // config.cp
    start = axis.get_local_rank() * length
    model.embedding.first_position = start
    for layer in model.layers.values():
        layer.attention.core.first_query = start
        layer.attention.core.register_forward_pre_hook(lambda core, qkv: (qkv[0], *gather_sequence(qkv[1], qkv[2], axis)))
    parts = data_parallel(model, axis)

    def forward_backward(microbatches: Sequence[Microbatch]) -> Tensor | None:
        return parts.forward_backward([tuple(t[:, start : start + length] for t in microbatch) for microbatch in microbatches])

    return replace(parts, forward_backward=forward_backward)


def gather_sequence(k: Tensor, v: Tensor, axis: DeviceMesh) -> tuple[Tensor, Tensor]:
    """Keys and values [batch, heads, part, d] of this rank -> [batch, heads, sequence, d], in one all-gather.

    Every rank's queries use all of them, so their gradients are partial sums: backward is one reduce-scatter.
    """
    parts = DTensor.from_local(torch.stack((k, v)), axis, [Shard(3)], run_check=False)
    k, v = parts.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]).unbind(0)
    return k, v
