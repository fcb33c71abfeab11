"""How is a file read so that it cannot take this process with it? In a child process with its own memory and time."""

from __future__ import annotations

import resource
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from tracekit.errors import InputError

T = TypeVar("T")
#: A child may need this long to start and to import; its own clock begins after that.
_START_SECONDS = 60.0


def isolated(work: Callable[..., T], arguments: tuple[Any, ...], label: Path, memory: int | None, seconds: float | None) -> T:
    """The result of ``work(*arguments)``, computed in a child process.

    Args:
        work: a module-level function.
        arguments: its arguments; they and its result are pickled.
        label: the file it is about, for messages.
        memory: most bytes of address space that the child may hold; None: any.
        seconds: longest time it may take, starting up apart; None: any.

    Raises:
        InputError: the child ran out of memory or time, or ended without an answer; and whatever ``work`` raises.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, work, arguments, memory), daemon=True)
    child.start()
    theirs.close()
    try:
        if seconds is not None and not ours.poll(seconds + _START_SECONDS):
            raise InputError(f"took longer than {seconds:g} s to read; raise --max-seconds, or split the file", label)
        result: Any = ours.recv()
    except EOFError:
        child.join()
        says = "the process that read it ended without an answer"
        raise InputError(f"{says} (exit {child.exitcode}); it needs more memory than there is, or the file is damaged; raise --max-memory", label) from None
    finally:
        child.kill()
        child.join()
        ours.close()
    if isinstance(result, MemoryError):
        raise InputError(f"needs more than {memory} bytes of memory to read; raise --max-memory, or record shorter windows", label)
    if isinstance(result, BaseException):
        raise result
    return result  # type: ignore[no-any-return]


def _child(answer: Connection, work: Callable[..., Any], arguments: tuple[Any, ...], memory: int | None) -> None:
    """Runs in the child: cap the memory, work, answer."""
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    result: Any
    try:
        result = work(*arguments)
    except BaseException as error:
        result = error
    answer.send(result)
