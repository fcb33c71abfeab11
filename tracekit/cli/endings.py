"""How does a command end when something goes wrong? One line on stderr and an exit code; the traceback is for ``--debug``."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer
from typer.exceptions import TyperException

from tracekit.errors import InputError, TracekitError
from tracekit.wording import clean, no_command

_INTERRUPTED = 130


@dataclass
class Ending:
    """The exit code that a command ends with; set by whoever knows it."""

    code: int = 0


@contextmanager
def ended(*, debug: bool) -> Iterator[Ending]:
    """Turn every way a command can end into an exit code, and what went wrong into one line on stderr."""
    ending = Ending()
    try:
        yield ending
        if ending.code == _INTERRUPTED:  # typer turns Ctrl-C into this code
            _say("interrupted")
    except BrokenPipeError:
        # The reader (head, less) has seen enough: no error. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except typer.Exit as e:
        ending.code = e.exit_code
    except (typer.Abort, KeyboardInterrupt):
        ending.code = _INTERRUPTED
        _say("interrupted")
    except TyperException as e:
        ending.code = 2
        context = getattr(e, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        _say(f"{e.format_message()}{where}")
    except TracekitError as e:
        ending.code = e.exit_code
        _trace(debug)
        _say(line(e))
    except Exception as e:
        ending.code = 70
        _trace(debug)
        _say(f"a bug of tracekit: {type(e).__name__}: {e}; rerun with --debug and report it")


def line(error: TracekitError) -> str:
    """What is wrong, in which file, at which byte, as one line.

    >>> line(InputError("this is no trace; name a *.json.gz", "a.txt", 12))
    'a.txt: byte 12: this is no trace; name a *.json.gz'
    """
    if isinstance(error, InputError) and error.offset is not None and "byte" not in error.reason:
        return f"{error.path or 'input'}: byte {error.offset:,}: {error.reason}"
    return str(error)


def _say(text: str) -> None:
    typer.echo(f"tracekit: {no_command(clean(text, 2000))}", err=True)


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()
