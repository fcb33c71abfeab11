"""Which flags decide how files are read? The same for every command that reads traces, added to it by ``reads``."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.flags import instead_of
from tracekit.reading import DEFAULT, Reading

Capture = Annotated[int | None, typer.Option(min=0, metavar="N", help="Use only the captures (profiler cycles) of this number.", show_default="all")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes that read ranks side by side.", show_default="by the input's size")]
_OWN_PROCESS = "each is then read in a process of its own."


def asked(
    salvage: Annotated[bool, typer.Option("--salvage", help="Recover the whole records of a damaged file; the result is marked partial.")] = False,
    max_bytes: Annotated[int, typer.Option(min=1, help="Most bytes a file may unpack to.")] = DEFAULT.max_bytes,
    max_ratio: Annotated[int, typer.Option(min=1, help="Most bytes it may unpack to per packed byte (past 64 MiB).")] = DEFAULT.max_ratio,
    max_events: Annotated[int, typer.Option(min=1, help="Most records of one file.")] = DEFAULT.max_events,
    max_members: Annotated[int, typer.Option(min=1, help="Most entries of an archive, folders and links too.")] = DEFAULT.max_members,
    max_seconds: Annotated[float | None, typer.Option(min=0.1, help=f"Longest time for one file; {_OWN_PROCESS}", show_default="any")] = None,
    max_memory: Annotated[int | None, typer.Option(min=1, help=f"Most bytes of memory for one file; {_OWN_PROCESS}", show_default="any")] = None,
) -> Reading:
    """The Reading that the flags ask for."""
    return Reading(max_bytes, max_ratio, max_events, max_members, max_seconds, max_memory, salvage)


#: A command with the flags of ``asked`` in place of its parameter ``reading``.
reads = instead_of("reading", asked)
