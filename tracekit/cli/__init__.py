"""How is tracekit used from a shell? ``main`` is the command ``tracekit``; one file per command.

Importing this costs typer and nothing else: pandas, plotly and torch are loaded by the commands that need them, when
they run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from tracekit.cli.analyze import analyze
from tracekit.cli.baseline import baseline
from tracekit.cli.check import check
from tracekit.cli.comment import comment
from tracekit.cli.compare import compare, with_sides
from tracekit.cli.config import config
from tracekit.cli.demo import demo
from tracekit.cli.doctor import doctor
from tracekit.cli.endings import ended
from tracekit.cli.export import export
from tracekit.cli.memory import memory
from tracekit.cli.metrics import metrics
from tracekit.cli.render import render
from tracekit.cli.run import run
from tracekit.cli.serve import serve
from tracekit.cli.simulate import simulate
from tracekit.cli.study import study
from tracekit.cli.upload import upload

#: Every command, in the order of the help; its name is the function's, its help the docstring.
COMMANDS: tuple[Callable[..., Any], ...] = (
    demo,
    run,
    analyze,
    memory,
    doctor,
    simulate,
    study,
    metrics,
    compare,
    check,
    render,
    comment,
    baseline,
    config,
    serve,
    upload,
    export,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 fine, 1 regressed, a limit broken or a run failed, 2 usage, 3 cannot tell, 4 an input is unreadable or refused, 5 no
    baseline, 70 a bug of ours, 130 interrupted. Whatever goes wrong is one line on stderr; a traceback comes with ``--debug`` only.

    Args:
        argv: arguments without the program's name; those of the process where None.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with ended(debug="--debug" in arguments) as ending:
        result = application()(with_sides(arguments) or ["--help"], prog_name="tracekit", standalone_mode=False)
        ending.code = result if isinstance(result, int) else 0
        sys.stdout.flush()
    return ending.code


def application() -> typer.Typer:
    """The typer application with every command; plain help, no pretty tracebacks."""
    app = typer.Typer(
        name="tracekit",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Where did the time and the memory of a split-up training run go? Measured from its traces.",
        epilog="Start with: tracekit demo",
    )
    app.callback()(_options)
    for command in COMMANDS:
        app.command()(command)
    return app


def _version(asked: bool) -> None:
    if asked:
        from tracekit import __version__

        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")] = False,
) -> None:
    """Options of tracekit itself."""


__all__ = ["COMMANDS", "application", "main"]
