"""What runs in the child? Limits are set, the order is read from the standard input, news go to the standard output.

The standard input stays open for as long as the server lives: when it ends, so does this process and all that it has started.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from dashboard.jobs.messages import Failed, News, Order
from tracekit.wording import clean

#: The server answers first, the children read with what is left.
_NICE = 3


def main() -> None:
    """Read one run."""
    news = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints is no news
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    threading.Thread(target=_end_with_the_server, args=(sys.stdin.buffer,), daemon=True).start()
    from dashboard.jobs.reading import read  # before the limits are set: they are meant for what is read, not for what reads

    _limit(order)
    lock = threading.Lock()

    def tell(one: News) -> None:
        with lock:
            news.write(msgspec.json.encode(one) + b"\n")

    try:
        read(order, tell)
    except Exception as error:  # a bug of ours: the log has where, its user learns that it is none of theirs
        traceback.print_exc()
        tell(Failed(clean(f"a bug of tracekit ({type(error).__name__}: {error}); the server's log says where; these files may be fine", 400)))


def _limit(order: Order) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order.memory_bytes is not None:
        # what libraries have reserved by now is not memory that reading takes
        most = _reserved() + order.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if order.seconds is not None:
        seconds = int(order.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    os.nice(_NICE)


def _reserved() -> int:
    """Bytes of address space that this process has; 0 where that cannot be told."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[0]) * resource.getpagesize() if told.is_file() else 0


def _end_with_the_server(stream: BinaryIO) -> None:
    """Wait until the server is gone, then take the whole group of processes along."""
    while stream.read(1 << 12):
        continue
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
