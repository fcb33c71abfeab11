"""How does a run go? The training loop that every recipe shares, recorded as any user would record theirs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from instrumentation.config import RunConfig, run_fields
from instrumentation.data import step_batch
from instrumentation.emulate import emulate
from instrumentation.mesh import build_mesh, coordinate
from instrumentation.model import Decoder
from instrumentation.recipes import RECIPES
from instrumentation.recipes.parts import Parts
from tracekit.recorder import Recorder, Window

RESULT_SCHEMA = "tracekit.result/1"


def train(config: RunConfig, device: torch.device, progress: Callable[[int], None] = lambda step: None) -> None:
    """Train on this rank; the process group of the run exists already.

    Leaves in ``config.out``: what the recorder writes, ``result.json``, and ``parameters.pt`` where asked for.

    Args:
        config: the run.
        device: where this rank trains.
        progress: called with the number of finished steps after each.

    Raises:
        RuntimeError: this rank was told to fail (``config.fail_at``).
    """
    mesh = build_mesh(config)
    parts = RECIPES[config.recipe](config, mesh, device)
    # foreach would put DTensor and plain parameters of one group into the same operation, which torch refuses.
    optimizer = torch.optim.AdamW(_parameters(parts.modules), lr=config.learning_rate, foreach=False)
    data_rank = coordinate(mesh, "dp_replicate", "dp_shard")
    torch.manual_seed(config.seed * 10_007 + _dropout_stream(config, mesh))
    losses: list[Tensor | None] = []
    durations = []
    with _recorder(config, parts, optimizer) as recorder:
        for step in range(config.steps):
            if config.fail_at == (dist.get_rank(), step):
                raise RuntimeError(f"rank {dist.get_rank()} was told to fail at step {step}")
            start = time.perf_counter_ns()
            batch = [(tokens.to(device), targets.to(device)) for tokens, targets in step_batch(config, step, data_rank)]
            losses.append(parts.forward_backward(batch))
            parts.finish_gradients()
            optimizer.step()
            optimizer.zero_grad()
            durations.append(time.perf_counter_ns() - start)
            if recorder is not None:
                recorder.step()
            progress(step + 1)
    _write_result(config, losses, durations)
    if config.save_parameters:
        _write_parameters(config, parts.modules)


def _recorder(config: RunConfig, parts: Parts, optimizer: torch.optim.Optimizer) -> AbstractContextManager[Recorder | None]:
    """The recorder of this run, or a context that records nothing."""
    if not config.record:
        return nullcontext()
    return Recorder(
        config.out,
        model=parts.modules[0] if len(parts.modules) == 1 else parts.modules,
        optimizer=optimizer,
        schedule=parts.schedule,
        config=run_fields(config, parameters=whole_parameters(config)),
        window=Window(config.wait, config.warmup, config.active, 1),
        layer_ranges=config.layer_ranges,
    )


def whole_parameters(config: RunConfig) -> int:
    """Elements in the parameters of the whole model, however it is split."""
    with torch.device("meta"):
        model = Decoder(config)
        emulate(model, config)
    return sum(p.numel() for p in model.parameters())


def _parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [parameter for module in modules for parameter in module.parameters()]


def _dropout_stream(config: RunConfig, mesh: Any) -> int:
    """A number that ranks with the same activations share: they have to drop the same ones."""
    axes = ("pp", "dp_replicate", "dp_shard", "cp", *(("tp",) if config.sequence_parallel else ()))
    stream = 0
    for axis in axes:
        stream = stream * config.mesh[axis] + coordinate(mesh, axis)
    return stream


def _write_result(config: RunConfig, losses: list[Tensor | None], durations: list[int]) -> None:
    """Average every step's loss over the ranks that know one, and write it with the steps' times (rank 0's)."""
    mine = [None if loss is None else float(loss) for loss in losses]
    everyone: list[list[float | None]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() != 0:
        return
    known = [[loss for loss in step if loss is not None] for step in zip(*everyone, strict=True)]
    result = {
        "schema": RESULT_SCHEMA,
        "losses": [sum(step) / len(step) for step in known],
        "step_duration_ns": durations,
        "wall_ns": sum(durations),
    }
    path = Path(config.out) / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def _write_parameters(config: RunConfig, modules: Iterable[nn.Module]) -> None:
    """Gather the whole parameters from all shards and stages, and let rank 0 write them by name."""
    whole = {}
    for module in modules:
        for name, parameter in module.named_parameters():
            value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            whole[name.removeprefix("module.")] = value.detach().cpu()
    everyone: list[dict[str, Tensor]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, whole)
    if dist.get_rank() == 0:
        torch.save({name: value for part in everyone for name, value in part.items()}, Path(config.out) / "parameters.pt")
