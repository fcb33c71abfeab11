"""Two gloo ranks that record one small run of each kind of parallelism. Started by test_distributed.py, once per rank.

Usage: python -m tests.recorder.distributed_job FOLDER RANK
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tracekit.recorder import Recorder, Window, environment

os.environ |= environment()

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleavedZeroBubble
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

from tests.recorder.models import VOCABULARY, Block, Decoder, loss, tokens, train_step

WINDOW = Window(wait=0, warmup=1, active=1, repeat=1)
HIDDEN = 8


def record(run: Path, model, optimizer, step, schedule=None) -> None:
    with Recorder(run, model=model, optimizer=optimizer, schedule=schedule, window=WINDOW) as recorder:
        for _ in range(2):
            step()
            recorder.step()


def tp_sp(run: Path) -> None:
    """Megatron sequence parallelism of one block: all-gather in, reduce-scatter out of attention and MLP."""
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = SplitBlocks(MlpBlock)
    for block in model.layers.values():
        gather = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
        plan = {
            "mlp_norm": SequenceParallel(),
            "mlp": gather,
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4 // 2, HIDDEN)).sum().backward()

    record(run, model, optimizer, step)


class SplitBlocks(nn.Module):
    """MLP blocks without residual whose input is this rank's part of the sequence."""

    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"0": block(), "1": block()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


class MlpBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        whole = Block(HIDDEN)
        self.mlp_norm, self.mlp = whole.mlp_norm, whole.mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.mlp_norm(x))


class RecomputedBlock(MlpBlock):
    """The norm stands last, so that the repeated forward needs the MLP's output and its all-reduce again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: self.mlp_norm(self.mlp(y)), x, use_reentrant=False)


def tp(run: Path, block: type[MlpBlock] = MlpBlock) -> None:
    """Column then row split of the MLP: one all-reduce forward, one backward."""
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = SplitBlocks(block)
    for layer in model.layers.values():
        parallelize_module(layer, mesh, {"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4, HIDDEN)).sum().backward()

    record(run, model, optimizer, step)


def fsdp(run: Path, run_block: Callable | None = None) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp_shard",))
    model = Decoder(HIDDEN, run_block=run_block)
    for block in model.layers.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    record(run, model, optimizer, lambda: train_step(model, optimizer))


def ddp(run: Path) -> None:
    model = nn.parallel.DistributedDataParallel(Decoder(HIDDEN))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    record(run, model, optimizer, step)


class Stage(nn.Module):
    """One block of a pipeline under its global number; the first embeds, the last has the head."""

    def __init__(self, whole: Decoder, number: int, last: bool) -> None:
        super().__init__()
        self.embedding = whole.embedding if number == 0 else None
        self.layers = nn.ModuleDict({str(number): whole.layers[str(number)]})
        self.norm, self.head = (whole.norm, whole.head) if last else (None, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.embedding is None else self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


def pipeline(run: Path, kind: type, per_rank: int) -> None:
    torch.manual_seed(0)
    whole, rank, count = Decoder(HIDDEN, layers=2 * per_rank), dist.get_rank(), 2 * per_rank
    modules = [copy.deepcopy(Stage(whole, i, i == count - 1)) for i in range(rank, count, 2)]
    stages = [PipelineStage(m, i, count, torch.device("cpu")) for m, i in zip(modules, range(rank, count, 2), strict=True)]

    def criterion(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    schedule = kind(stages if per_rank > 1 else stages[0], n_microbatches=2, loss_fn=criterion)
    optimizer = torch.optim.SGD([p for m in modules for p in m.parameters()], lr=0.1)
    batch = tokens(batch=4) % VOCABULARY

    def step() -> None:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch, target=batch) if per_rank > 1 and count - 1 in range(rank, count, 2) else schedule.step(batch)
        else:
            schedule.step(target=batch)
        optimizer.step()

    record(run, modules, optimizer, step, schedule=schedule)


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    tp(folder / "tp")
    tp_sp(folder / "tp-sp")
    tp(folder / "tp-recompute", RecomputedBlock)
    fsdp(folder / "fsdp")
    fsdp(folder / "fsdp-recompute", partial(checkpoint, use_reentrant=False))
    ddp(folder / "ddp")
    pipeline(folder / "gpipe", ScheduleGPipe, 1)
    pipeline(folder / "1f1b", Schedule1F1B, 1)
    pipeline(folder / "zero-bubble", ScheduleInterleavedZeroBubble, 2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
