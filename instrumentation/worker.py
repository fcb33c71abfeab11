"""What does one launched process do? Join each run's process group in turn, train, and leave it again."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from instrumentation.config import RunConfig
from instrumentation.train import train
from tracekit.recorder import environment

#: The longest that a run may stand still, for instance in a receive whose sender never comes.
STALL = timedelta(minutes=5)
#: The longest that a study of several runs may take.
STUDY = timedelta(hours=6)


def work(configs: Sequence[RunConfig], scratch: str) -> None:
    """Entry point of every launched process.

    Args:
        configs: the runs, in order; a run with fewer ranks than were launched is done by the first of them.
        scratch: folder for what the launcher reads: rank 0 appends ``<run> <finished steps>`` lines to ``progress``,
            a rank that fails leaves ``failed.<rank>`` with the run, the time and the error.
    """
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=STUDY)
    for number, config in enumerate(configs):
        if rank < config.ranks:
            try:
                run(config, number, rank, dist.PrefixStore(f"run{number}", store), Path(scratch) / "progress")
            except BaseException as error:
                # The time tells the launcher who was first: the others fail too when this process is gone.
                failure = {"run": number, "time_ns": time.time_ns(), "error": f"{type(error).__name__}: {error}"}
                (Path(scratch) / f"failed.{rank}").write_text(json.dumps(failure))
                raise
            store.set(f"done/{number}/{rank}", "")
        # Nobody starts the next run while this one still needs the processors.
        store.wait([f"done/{number}/{other}" for other in range(config.ranks)])


def run(config: RunConfig, number: int, rank: int, store: dist.Store, progress_file: Path) -> None:
    """One run, from joining its process group to leaving it."""
    if config.device == "cuda" and torch.cuda.device_count() < config.ranks:
        # NCCL refuses two ranks on one card of one host; with an id of its own each rank passes for a host.
        os.environ["NCCL_HOSTID"] = f"rank{rank}"

    def progress(step: int) -> None:
        if rank == 0:
            with progress_file.open("a") as file:
                file.write(f"{number} {step}\n")

    os.environ.update(environment(config.out, rank, config.device))
    dist.init_process_group(config.backend, store=store, rank=rank, world_size=config.ranks, timeout=STALL)
    progress(0)
    train(config, progress)
    dist.destroy_process_group()
    gc.collect()
