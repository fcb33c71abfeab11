"""What are these files good for? ``tracekit doctor PATH…``"""

from __future__ import annotations

import json as text
import sys
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.reading import Capture, Workers, reads
from tracekit.cli.screen import meter, show
from tracekit.reading import DEFAULT, Reading

_UNUSABLE = 4


@reads
def doctor(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Trace files, archives, run directories, or folders that hold them.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Write the diagnosis (tracekit.doctor/1) to stdout, and nothing else.")] = False,
    capture: Capture = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
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

    with meter() as progress:
        document = examine(list(paths), workers=workers, progress=progress, reading=reading, capture=capture).to_dict()
    if json:
        sys.stdout.write(text.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    else:
        show(doctors_story(document))
    return _UNUSABLE if document["health"]["verdict"] == "unusable" else 0
