"""Which errors can tracekit end with, and which exit code does each deserve?

Library code raises these; only ``tracekit.cli`` turns them into one line on stderr and an exit code.
"""

from __future__ import annotations

from pathlib import Path


class TracekitError(Exception):
    """Base of every error that is the input's or the user's, not a bug of ours.

    Attributes:
        exit_code: the process exit code the command line ends with.
    """

    exit_code = 70


class UsageError(TracekitError):
    """The command was asked for something that makes no sense (exit code 2)."""

    exit_code = 2


class NoBaseline(TracekitError):
    """There is nothing to compare with yet (exit code 5)."""

    exit_code = 5


class RunFailed(TracekitError):
    """A reference run ended with an error of one of its ranks (exit code 1)."""

    exit_code = 1


class InputError(TracekitError):
    """An input cannot be read, or is refused (exit code 4).

    Args:
        message: what is wrong and what to do next, one line.
        path: the file or folder it is about.
        offset: the byte in the file (after decompression) where reading stopped, when known.
    """

    exit_code = 4

    def __init__(self, message: str, path: str | Path | None = None, offset: int | None = None) -> None:
        self.path = None if path is None else str(path)
        self.offset = offset
        self.reason = message
        where = "" if self.path is None else f"{self.path}: "
        super().__init__(f"{where}{message}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str | None, int | None]]:
        """Survive the way back from a worker process with path and offset intact."""
        return type(self), (self.reason, self.path, self.offset)
