"""How do all ranks of a run start, report and end? Through torch's elastic launcher, on this machine.

Importing torch takes seconds, so it is done once: ranks are forked off a server that has imported it, and several runs
can share one launch.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from instrumentation.config import RunConfig
from tracekit.errors import RunFailed, UsageError

#: Called with the number of the run and how many of its steps are finished.
Progress = Callable[[int, int], None]

_MODULES_WORTH_LOADING_ONCE = ["torch", "torch.distributed.tensor.parallel", "torch.profiler", "instrumentation.worker"]


def launch(configs: Sequence[RunConfig], progress: Progress | None = None) -> None:
    """Run one or several configurations, one after the other, and wait for the last.

    Args:
        configs: the runs; as many processes are started as the largest needs.
        progress: called about ten times a second at most, when something has moved.

    Raises:
        UsageError: a run directory holds something already.
        RunFailed: a rank failed; names the rank, its error and where its whole output is.
    """
    if not configs:
        return
    for config in configs:
        _check_out(Path(config.out))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cuda = any(config.device == "cuda" for config in configs)
    if not cuda:
        # Started before torch is imported here, so that both import it at the same time.
        multiprocessing.set_forkserver_preload(_MODULES_WORTH_LOADING_ONCE)
        multiprocessing.forkserver.ensure_running()
    with tempfile.TemporaryDirectory(prefix="tracekit-run-") as scratch, _followed(Path(scratch) / "progress", progress) as progress_file:
        _run_agent(configs, scratch, str(progress_file), "spawn" if cuda else "forkserver")


def _check_out(out: Path) -> None:
    """A run never mixes its files with those of another."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; name another directory with --out, or remove it")


def _run_agent(configs: Sequence[RunConfig], scratch: str, progress_file: str, start_method: str) -> None:
    """Start the ranks and wait; the first error of a rank ends all of them."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from instrumentation.worker import work

    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=max(config.ranks for config in configs),
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method=start_method,
        logs_specs=DefaultLogsSpecs(log_dir=scratch, redirects=Std.ALL),
    )
    try:
        elastic_launch(settings, work)(tuple(configs), progress_file)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        current = configs[_last_line(Path(progress_file))[0]]
        kept = _keep_logs(scratch, Path(current.out))
        raise RunFailed(f"rank {rank} of {current.recipe} failed: {_one_line(failure.message)} (output of all ranks: {kept})") from error


def _one_line(message: object) -> str:
    """The error's own line out of a worker's report, without the traceback."""
    text = message.get("message", message) if isinstance(message, dict) else message
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _keep_logs(scratch: str, out: Path) -> Path:
    """Move what the ranks wrote to standard output and error into the run directory, where it outlives the launch."""
    kept = out / "logs"
    for stream in sorted(Path(scratch).rglob("std*.log")):
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(stream, kept / f"rank{int(stream.parent.name):05d}.{stream.stem}")
    return kept


@contextmanager
def _followed(path: Path, progress: Progress | None) -> Iterator[Path]:
    """A file for rank 0 to write its progress to, followed by a thread as long as the context lasts."""
    path.touch()
    done = threading.Event()

    def follow() -> None:
        seen = None
        while True:
            ended = done.wait(0.1)
            now = _last_line(path)
            if progress and now != seen and path.stat().st_size:
                progress(*now)
                seen = now
            if ended:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        done.set()
        thread.join()


def _last_line(path: Path) -> tuple[int, int]:
    """Run and finished steps in the last complete line of a progress file; (0, 0) while there is none."""
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    if not lines:
        return (0, 0)
    number, step = lines[-1].split()
    return int(number), int(step)
