"""How are traces analysed from a shell? ``tracekit analyze PATH…``"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.screen import meter, show, writable, write


def analyze(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Run directory, trace files, or folders that hold them; all of one job.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Write the report document (tracekit.report/1) to stdout, and nothing else.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one self-contained HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the report as Markdown.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that read ranks side by side.", show_default="by the input's size")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Tell where the time and the memory of one job went.

    Reads torch.profiler traces (*.json, *.json.gz) of one rank or of many, with what lies beside them (Flight
    Recorder, memory baseline, run.json), and prints health first, then where a step went, then each metric. What
    cannot be known from the files reads "unknown", with the reason.

    \b
    Examples:
      tracekit analyze runs/tp
      tracekit analyze rank0.json.gz rank1.json.gz --html report.html
      tracekit analyze runs/tp --json > report.json
    """
    from tracekit.analysis import analyze as measure
    from tracekit.report import render
    from tracekit.report.story import story

    for path in (html, markdown):
        if path is not None:
            writable(path)
    with meter() as progress:
        analysis = measure(list(paths), workers=workers, progress=progress)
    if html is not None:
        write(html, render("html", analysis))
    if markdown is not None:
        write(markdown, render("markdown", analysis))
    if json:
        sys.stdout.write(render("json", analysis))
    else:
        show(story(analysis.to_dict()))
