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
            rank that fails leaves ``failed.<rank>`` with the time, the error, and the ranks that are gone without one.
    """
    rank, folder = int(os.environ["RANK"]), Path(scratch)
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    try:
        run(config, rank, folder / "progress")
    except BaseException as error:
        # The time tells the launcher who was first: the others fail too when this process is gone.
        failure = {"time_ns": time.time_ns(), "error": f"{type(error).__name__}: {error}", "gone": gone(folder)}
        (folder / f"failed.{rank}").write_text(json.dumps(failure))
        traceback.print_exc()
        raise


def gone(folder: Path) -> list[int]:
    """Ranks whose process ended without leaving an error: killed from outside."""
    time.sleep(0.2)  # a process that has just been killed is still listed for a moment
    pids = {int(path.suffix[1:]): int(path.read_text() or 0) for path in folder.glob("pid.*")}
    return [rank for rank, pid in sorted(pids.items()) if pid and not _alive(pid) and not (folder / f"failed.{rank}").exists()]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def run(config: RunConfig, rank: int, progress_file: Path) -> None:
    """Join the process group, train, and leave it."""
    os.environ.update(environment(config.out, rank, config.device))
    torch.set_num_threads(1)
    device = pick_device(config, rank)

    def progress(step: int) -> None:
        if rank == 0:
            progress_file.write_text(f"{step}\n")

    dist.init_process_group(config.backend, timeout=STALL)
    progress(0)
    train(config, device, progress)
    dist.destroy_process_group()


def pick_device(config: RunConfig, rank: int) -> torch.device:
    """Device of this rank; several ranks share a card where there are fewer cards than ranks.

    NCCL refuses two ranks on one card of one host. With an id of its own each rank passes for a host.
    """
    if config.device == "cpu":
        return torch.device("cpu")
    cards = torch.cuda.device_count()
    if cards < config.ranks:
        os.environ["NCCL_HOSTID"] = f"rank{rank}"
    device = torch.device("cuda", rank % cards)
    torch.cuda.set_device(device)
    return device
