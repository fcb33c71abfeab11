"""How far is each file while it is read? Told by the processes that read, through a named pipe, one line at a time.

Lines are shorter than what a pipe takes at once, so those of several processes never mix. What nobody has room for is dropped: the next
line says more than the one before.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tracekit.reading import Doing

_LONGEST_NAME = 160
#: Bytes that are asked for at once; a line takes some 300.
_PIECE = 1 << 16


class Line(msgspec.Struct, array_like=True, frozen=True):
    """What is told.

    Attributes:
        number: of a source.
        name: what is shown of it.
        doing: how far it is.
    """

    number: int
    name: str
    doing: Doing


@dataclass(frozen=True)
class Tell:
    """Tells how far a source is; may be called in any process of this machine.

    Attributes:
        pipe: path of the pipe.
    """

    pipe: str

    def __call__(self, number: int, name: str, doing: Doing) -> None:
        """Write one line, if somebody listens and has room for it."""
        line = msgspec.json.encode(Line(number, name[-_LONGEST_NAME:], doing)) + b"\n"
        with suppress(OSError):  # nobody listens any more, or the pipe is full: progress is no result
            pipe = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, line)
            finally:
                os.close(pipe)


@contextmanager
def listening(hear: Callable[[Line], None]) -> Iterator[Tell]:
    """Something to tell with, for as long as the block runs; ``hear`` is called in a thread of its own."""
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        pipe = Path(folder) / "along"
        try:
            os.mkfifo(pipe, 0o600)
        except OSError:  # a file system without pipes: nothing is told, and everything is read
            yield Tell(os.devnull)
            return
        ours = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        end = os.open(pipe, os.O_WRONLY)  # while it is open, the pipe has no end
        os.set_blocking(ours, True)
        thread = threading.Thread(target=_listen, args=(ours, hear), name="progress", daemon=True)
        thread.start()
        try:
            yield Tell(str(pipe))
        finally:
            os.close(end)
            thread.join()
            os.close(ours)


def _listen(pipe: int, hear: Callable[[Line], None]) -> None:
    rest = b""
    while piece := os.read(pipe, _PIECE):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            with suppress(msgspec.MsgspecError):  # a process that holds somebody's bytes may write anything; it is no more than progress
                hear(msgspec.json.decode(line, type=Line))
