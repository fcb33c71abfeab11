"""How are the layers split into stages? torch.distributed.pipelining, one schedule class per name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from instrumentation.config import SCHEDULES, RunConfig
from instrumentation.model import Decoder, cross_entropy
from instrumentation.recipes.parts import Microbatch, Parts, build_model


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """Stages of plain layers."""
    return pipeline(config, mesh, device, lambda stage: stage)


def pipeline(config: RunConfig, mesh: DeviceMesh | None, device: torch.device, split: Callable[[Decoder], nn.Module]) -> Parts:
    """Put this rank's stages under the configured schedule.

    Args:
        config: the run.
        mesh: a mesh with an axis ``pp``.
        device: where the stages live.
        split: what else is done to a stage's module before it joins the pipeline.
    """
    assert mesh is not None and config.schedule is not None
    group = mesh["pp"].get_group()
    mine = config.rank_stages(mesh.get_local_rank("pp"))
    last = config.stages - 1
    modules = [split(build_model(config, device, layers=config.stage_layers(s), first=s == 0, last=s == last)) for s in mine]
    stages = [PipelineStage(module, s, config.stages, device, group=group) for module, s in zip(modules, mine, strict=True)]
    cls = getattr(pipelining, SCHEDULES[config.schedule].cls)
    single = issubclass(cls, PipelineScheduleSingle)
    schedule = cls(stages[0] if single else stages, config.microbatches, loss_fn=cross_entropy)

    def forward_backward(microbatches: Sequence[Microbatch]) -> Tensor | None:
        tokens, targets = (torch.cat(parts) for parts in zip(*microbatches, strict=True))
        losses: list[Tensor] = []
        inputs = (tokens,) if 0 in mine else ()
        schedule.step(*inputs, target=targets if last in mine else None, losses=losses, return_outputs=False)
        return torch.stack(losses).detach().mean() if last in mine else None

    return Parts(modules, forward_backward, schedule=schedule)
