"""Which flags decide how files are read? The same for every command that reads traces."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.reading import DEFAULT, Reading

Capture = Annotated[int | None, typer.Option(min=0, metavar="N", help="Use only the captures (profiler cycles) of this number.", show_default="all")]
Salvage = Annotated[bool, typer.Option("--salvage", help="Recover the whole records of a damaged file; the result is marked partial.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes that read ranks side by side.", show_default="by the input's size")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Most bytes a file may unpack to.")]
MaxRatio = Annotated[int, typer.Option(min=1, help="Most bytes it may unpack to per packed byte (past 64 MiB).")]
MaxEvents = Annotated[int, typer.Option(min=1, help="Most records of one file.")]
MaxMembers = Annotated[int, typer.Option(min=1, help="Most files in an archive.")]
MaxSeconds = Annotated[float | None, typer.Option(min=0.1, help="Longest time for one file; each is then read in a process of its own.", show_default="any")]
MaxMemory = Annotated[int | None, typer.Option(min=1, help="Most bytes of memory for one file; each is then read in a process of its own.", show_default="any")]


def asked(
    salvage: bool = False,
    keep_going: bool = False,
    max_bytes: int = DEFAULT.max_bytes,
    max_ratio: int = DEFAULT.max_ratio,
    max_events: int = DEFAULT.max_events,
    max_members: int = DEFAULT.max_members,
    max_seconds: float | None = None,
    max_memory: int | None = None,
) -> Reading:
    """The Reading that the flags ask for."""
    return Reading(max_bytes, max_ratio, max_events, max_members, max_seconds, max_memory, salvage, keep_going)
