"""What does one launched process do? Join the process group, train, and leave it; or say why not."""

from __future__ import annotations

import json
import os
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from instrumentation.config import RunConfig
from instrumentation.train import train
from tracekit.recorder import environment

#: The longest that a run may stand still, for instance in a receive whose sender never comes.
STALL = timedelta(minutes=5)


def work(config: RunConfig, scratch: str) -> None:
    """Entry point of every launched process.

    Args:
        config: the run.
        scratch: folder for what the launcher reads: rank 0 writes the number of finished steps into ``progress``, a
            rank that fails leaves ``failed.<rank>`` with the time and the error.
    """
    rank = int(os.environ["RANK"])
    try:
        run(config, rank, Path(scratch) / "progress")
    except BaseException as error:
        # The time tells the launcher who was first: the others fail too when this process is gone.
        failure = {"time_ns": time.time_ns(), "error": f"{type(error).__name__}: {error}"}
        (Path(scratch) / f"failed.{rank}").write_text(json.dumps(failure))
        traceback.print_exc()
        raise


def run(config: RunConfig, rank: int, progress_file: Path) -> None:
    """Join the process group, train, and leave it."""
    if config.device == "cuda" and torch.cuda.device_count() < config.ranks:
        # NCCL refuses two ranks on one card of one host; with an id of its own each rank passes for a host.
        os.environ["NCCL_HOSTID"] = f"rank{rank}"
    os.environ.update(environment(config.out, rank, config.device))
    torch.set_num_threads(1)

    def progress(step: int) -> None:
        if rank == 0:
            progress_file.write_text(f"{step}\n")

    dist.init_process_group(config.backend, timeout=STALL)
    progress(0)
    train(config, progress)
    dist.destroy_process_group()
