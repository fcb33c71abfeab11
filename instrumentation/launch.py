"""How do all ranks of a run start, report and end? Through torch's elastic launcher, on this machine.

Importing torch takes seconds, so it is done once: the ranks of all runs are forked off a server that has imported it.
Every run has processes of its own, so that nothing of one (memory, list of collectives) shows in the next.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from instrumentation.config import RunConfig
from tracekit.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

#: Called with the number of the run and how many of its steps are finished.
Progress = Callable[[int, int], None]

_WORTH_LOADING_ONCE = ["torch", "torch.distributed.tensor.parallel", "torch.profiler", "instrumentation.worker"]


def launch(configs: Sequence[RunConfig], progress: Progress | None = None) -> None:
    """Run one or several configurations, one after the other, and wait for the last.

    Args:
        configs: the runs; as many processes are started as the largest needs.
        progress: called about ten times a second at most, when something has moved.

    Raises:
        UsageError: a run directory holds something already, or there is no GPU for ``device="cuda"``.
        RunFailed: a rank failed; names the rank, its error and where its whole output is.
    """
    for config in configs:
        _check_out(Path(config.out))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if any(config.device == "cpu" for config in configs):
        # Started before torch is imported here, so that both import it at the same time.
        multiprocessing.set_forkserver_preload(_WORTH_LOADING_ONCE)
        multiprocessing.forkserver.ensure_running()
    for number, config in enumerate(configs):
        with tempfile.TemporaryDirectory(prefix="tracekit-run-") as folder:
            scratch = Path(folder)
            with _followed(scratch / "progress", partial(progress, number) if progress else None):
                _run_agent(config, scratch)


def _check_out(out: Path) -> None:
    """A run never mixes its files with those of another."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; name another directory with --out, or remove it")


def _run_agent(config: RunConfig, scratch: Path) -> None:
    """Start the ranks and wait; the first error of a rank ends all of them."""
    import torch
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from instrumentation.worker import work

    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda needs a GPU that torch can see; leave it out to run on CPU")
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=config.ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn" if config.device == "cuda" else "forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(scratch), redirects=Std.ALL),
    )
    try:
        with _undisturbed():
            elastic_launch(settings, work)(config, str(scratch))
    except ChildFailedError as error:
        rank, reason = _first_failure(scratch, error)
        raise RunFailed(f"{config.recipe}: rank {rank} failed: {reason} (output of all ranks: {_keep_logs(scratch, Path(config.out))})") from error
    except SignalException as signaled:
        raise KeyboardInterrupt from signaled


def _first_failure(scratch: Path, error: ChildFailedError) -> tuple[int, str]:
    """Rank and reason of the failure that came first; later ones are mostly peers that miss the first.

    A rank that raised has left a file. One that was killed has not: the agent may know it, or a peer saw it gone.
    """
    rank, failure = error.get_first_failure()
    files = {int(path.suffix[1:]): json.loads(path.read_text()) for path in scratch.glob("failed.*")}
    if not files:
        return rank, " ".join(str(failure.message).split())
    first = min(files, key=lambda r: files[r]["time_ns"])
    if files[first]["gone"]:
        return files[first]["gone"][0], "its process was killed (out of memory?)"
    return first, " ".join(files[first]["error"].split())


def _keep_logs(scratch: Path, out: Path) -> Path:
    """Copy what the ranks wrote to standard output and error into the run directory, where it outlives the launch."""
    kept = out / "logs"
    kept.mkdir(parents=True, exist_ok=True)
    for stream in sorted(scratch.rglob("std*.log")):
        shutil.copy(stream, kept / f"rank{int(stream.parent.name):05d}.{stream.stem}")
    return kept


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the agent's own log lines off the screen, and its signal handlers from staying when it is done."""
    disabled = logging.root.manager.disable
    main = threading.current_thread() is threading.main_thread()
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)} if main else {}
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(disabled)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _followed(path: Path, progress: Callable[[int], None] | None) -> Iterator[None]:
    """A file for rank 0 to write its finished steps to, followed by a thread as long as the context lasts."""
    done = threading.Event()

    def follow() -> None:
        seen = None
        while True:
            ended = done.wait(0.1)
            text = path.read_text() if path.exists() else ""
            if progress and text.endswith("\n") and text != seen:
                progress(int(text))
                seen = text
            if ended:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
