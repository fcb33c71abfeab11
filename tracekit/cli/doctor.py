"""What are these files good for? ``tracekit doctor PATH…``"""

from __future__ import annotations

import json as text
import sys
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.reading import Capture, MaxBytes, MaxEvents, MaxMembers, MaxMemory, MaxRatio, MaxSeconds, Salvage, Workers, asked
from tracekit.cli.screen import meter, show
from tracekit.reading import DEFAULT

_UNUSABLE = 4


def doctor(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Trace files, archives, run directories, or folders that hold them.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Write the diagnosis (tracekit.doctor/1) to stdout, and nothing else.")] = False,
    capture: Capture = None,
    salvage: Salvage = False,
    workers: Workers = None,
    max_bytes: MaxBytes = DEFAULT.max_bytes,
    max_ratio: MaxRatio = DEFAULT.max_ratio,
    max_events: MaxEvents = DEFAULT.max_events,
    max_members: MaxMembers = DEFAULT.max_members,
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Tell what these files are good for, before any number is believed.

    Names what is in the files, what is missing for which figure, the line of profiler configuration that would supply
    it, and the smallest capture to make next. A file that is refused is named and stops nothing. Ends with 4 where
    something was refused or nothing can be used.

    \b
    Examples:
      tracekit doctor traces/
      tracekit doctor rank0.json.gz
      tracekit doctor job.tar.gz --json
    """
    from tracekit.doctor import examine
    from tracekit.report.doctor import doctors_story

    reading = asked(
        salvage=salvage,
        max_bytes=max_bytes,
        max_ratio=max_ratio,
        max_events=max_events,
        max_members=max_members,
        max_seconds=max_seconds,
        max_memory=max_memory,
    )
    with meter() as progress:
        document = examine(list(paths), workers=workers, progress=progress, reading=reading, capture=capture).to_dict()
    if json:
        sys.stdout.write(text.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    else:
        show(doctors_story(document))
    return _UNUSABLE if document["health"]["verdict"] == "unusable" else 0
