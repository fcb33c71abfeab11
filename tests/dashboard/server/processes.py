"""A dashboard in a process of its own, as a user starts it; it can be killed at any time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Running:
    """A server that answers, at an address."""

    process: subprocess.Popen[str]
    url: str

    def kill(self) -> None:
        """End it as a crash does: nothing is finished, nothing is said."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)

    def most_memory(self) -> int:
        """The most bytes that it ever had resident, children apart."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


@contextmanager
def running(root: Path, *flags: str) -> Iterator[Running]:
    """Start ``tracekit serve`` on a free port, and end it."""
    command: Sequence[str] = (sys.executable, "-m", "tracekit", "serve", "--root", str(root), "--port", "0", "--keep-free", "1K", "--json", *flags)
    environment = {k: v for k, v in os.environ.items() if k != "TRACEKIT_TOKEN"}
    with (root.parent / f"{root.name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (root.parent / f"{root.name}.log").read_text()
        yield Running(process, json.loads(line)["url"].rstrip("/"))
    finally:
        if process.poll() is None:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        if process.poll() is None:
            process.kill()
            process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()
