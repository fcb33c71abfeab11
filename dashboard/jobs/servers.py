"""Which server holds a lease, and does it still live? Told by machine, process and start of the process, where that can be seen from here."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from uuid import uuid4


def own() -> str:
    """A name for a supervisor of this process, new each time: machine, process, start of the process, and a number."""
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}:{uuid4().hex[:8]}"


def worker(server: str) -> str:
    """A name for one lease, new each time."""
    return f"{server}/{uuid4().hex}"


def is_own(worker: str, server: str) -> bool:
    """Whether a lease is this server's."""
    return worker.partition("/")[0] == server


def is_dead(worker: str, server: str) -> bool:
    """Whether the server of a lease is gone for sure; one on another machine never is, its lease runs out instead.

    >>> is_dead("elsewhere:1:2/0", own())
    False
    """
    machine, _, rest = worker.partition("/")[0].partition(":")
    pid, _, start = rest.rpartition(":")[0].partition(":")
    if machine != server.partition(":")[0] or not pid.isdecimal():
        return False
    return _started(int(pid)) != start


def _machine() -> str:
    """Name of the machine and of its namespace of processes: two containers may share the name."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    known = [boot.read_text().strip()[:8] if boot.is_file() else "", str(namespace.readlink())[5:-1] if namespace.is_symlink() else ""]
    return "-".join((socket.gethostname()[:40].replace(":", "_").replace("/", "_"), *known))


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did; empty where there is none, or it has ended and was not yet buried."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if after_name[0] in ("Z", "X") else after_name[19]
