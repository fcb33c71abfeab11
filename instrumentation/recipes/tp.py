"""How is a layer split over ranks? Column then row parallel matrices, with or without Megatron sequence parallelism.

Tensor parallelism (Shoeybi et al. 2019): per layer and microbatch two all-reduces in forward (after ``out`` and ``down``)
and two in backward (before ``qkv`` and ``up``). With sequence parallelism (Korthikanti et al. 2022) what lies between two
such pairs (norm, dropout, residual) is sharded along the sequence, and each all-reduce becomes a reduce-scatter and an
all-gather. The embedding and the head are split along the vocabulary.

The residual stream is a plain tensor everywhere, of this rank's part of the sequence where that is split: DTensors live
only inside the split modules, so pipeline stages and everything else see ordinary tensors.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.profiler import record_function

from instrumentation.config import RunConfig
from instrumentation.model import Decoder
from instrumentation.recipes.parts import Parts, accumulate, build_model
from tracekit.vocabulary import Direction, module_span


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """The whole model on a tensor axis; the recipes ``tp`` and ``tp-sp``."""
    assert mesh is not None
    model = build_model(config, device)
    split_layers(model, mesh["tp"], config.sequence_parallel)
    return Parts([model], partial(accumulate, model), partial(reduce_replicated, model))


def split_layers(model: Decoder, mesh: DeviceMesh, sequence_parallel: bool) -> None:
    """Split a model or stage over a tensor axis, in place."""
    stream = Shard(1) if sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {
        "layers.*.attention.qkv": ColwiseParallel(input_layouts=stream),
        "layers.*.attention.out": RowwiseParallel(output_layouts=stream),
        "layers.*.mlp.up": ColwiseParallel(input_layouts=stream),
        "layers.*.mlp.down": RowwiseParallel(output_layouts=stream),
    }
    if model.embedding is not None:
        plan["embedding.token"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)
    if model.head is not None:
        plan["head"] = ColwiseParallel(input_layouts=stream, output_layouts=Replicate())
    if sequence_parallel:
        norm = SequenceParallel(use_local_output=True)
        plan |= {"layers.*.attention_norm": norm, "layers.*.mlp_norm": norm}
        if model.embedding is not None:
            plan["embedding.position"] = PositionShard()
        if model.norm is not None:
            plan["norm"] = norm
    parallelize_module(model, mesh, plan)


class PositionShard(ParallelStyle):
    """Looks up only this rank's part of the positions; the table is whole on every rank."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def part(_: nn.Module, inputs: tuple[Tensor], mesh: DeviceMesh) -> DTensor:
            return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False).redistribute(placements=[Shard(0)])

        return distribute_module(module, device_mesh, input_fn=part, output_fn=lambda _, output, mesh: output.to_local())


def reduce_replicated(model: Decoder) -> None:
    """Add up, over the tensor axis, the gradients of parameters that are whole on every rank, once each.

    Under sequence parallelism norms and positions see only their part of the sequence. Left alone, the optimizer would
    reduce these gradients again in every operation it does on them.
    """
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(p.is_partial() for p in gradient.placements):
            with record_function(module_span(name.rpartition(".")[0], Direction.GRADIENT)):
                parameter.grad = gradient.redistribute(placements=parameter.placements)
