"""How is a child started, heard and ended? In a group of processes of its own, with the order on its standard input."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

import msgspec

from dashboard.jobs.messages import LONGEST, News, Order

_TAIL = 4096
#: One thread per library in each process: the processes are what runs side by side, and each thread reserves address space.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Child:
    """A process that reads one run.

    Args:
        order: what it shall read.
    """

    def __init__(self, order: Order) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as the child
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dashboard.jobs.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._rest = b""
        self._open = True
        with suppress(BrokenPipeError):  # it ended at once: that shows when it is heard
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether no more news can come."""
        return not self._open

    def heard(self, seconds: float) -> Iterator[News]:
        """News that come within so many seconds; none where none do.

        Raises:
            ValueError: what it says is no news.
        """
        ready, _, _ = select.select([self._out], [], [], seconds)
        if not ready:
            return
        piece = os.read(self._out, 1 << 16)
        self._open = bool(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST:
            raise ValueError("it says too much at once")
        for line in lines:
            try:
                yield msgspec.json.decode(line, type=News)
            except msgspec.MsgspecError as error:
                raise ValueError(f"it says what is no news: {error}") from error

    def kill(self) -> None:
        """End it, and every process that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._open = False

    def last_words(self) -> tuple[int | None, str]:
        """(exit status, the end of what it wrote to its log), once it was killed or has ended."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL))
        return self._process.returncode, self._log.read().decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End it, and forget its log."""
        self.kill()
        self._log.close()
