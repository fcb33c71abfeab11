"""How does a report reach the screen, and how is progress shown? Reports on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tracekit.errors import UsageError
from tracekit.wording import clean, no_command

if TYPE_CHECKING:
    from rich.progress import Progress

    from tracekit.report.parts import Story

#: Work that ends sooner shows no bar; in a log, a line is written each so often.
PATIENCE_S = 2.0
LOG_EVERY_S = 5.0


def rich_terminal() -> bool:
    """Whether stdout is a terminal that takes tables; colour is then rich's matter, which heeds NO_COLOR."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(story: Story) -> None:
    """Write a story to stdout: rich tables in a terminal, plain text in a pipe or a file."""
    if rich_terminal():
        from rich.console import Console

        from tracekit.report import text

        Console(highlight=False).print(text.group(story))
    else:
        from tracekit.report import plain

        sys.stdout.write(plain.text(story))


def say(message: str) -> None:
    """One line for the person, on stderr."""
    typer.echo(no_command(clean(message, 2000)), err=True)


def writable(path: Path) -> None:
    """Say before the work, not after it, that a file cannot be written.

    Raises:
        UsageError: the folder does not exist, or a folder has the file's name.
    """
    if not path.parent.is_dir() or path.is_dir():
        what = "Is a directory" if path.is_dir() else "No such file or directory"
        raise UsageError(f"cannot write {path}: {what}; name a file in a folder that exists and is writable")


def write(path: Path, text: str) -> None:
    """Write a whole file or none, and say so.

    Raises:
        UsageError: the file cannot be written there.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror or e}; name a file in a folder that exists and is writable") from e
    say(f"wrote {path}")


class Meter:
    """A progress bar on stderr that appears only when the work takes longer than PATIENCE_S; lines where there is no terminal."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._bar: Progress | None = None
        self._task = 0

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say that ``done`` of ``total`` are finished; ``what`` names the last."""
        now = time.monotonic()
        if sys.stderr.isatty():
            if self._bar is None and now - self._start > PATIENCE_S:
                self._open(total)
            if self._bar is not None:
                from rich.markup import escape

                self._bar.update(self._task, completed=done, total=total, description=escape(clean(what, 60)))  # type: ignore[arg-type]
        elif now - self._last > LOG_EVERY_S:
            self._last = now
            say(f"{done} of {total}: {what}")

    def _open(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def meter() -> Iterator[Meter]:
    """A Meter that is closed at the end, whatever happens."""
    made = Meter()
    try:
        yield made
    finally:
        made.close()
