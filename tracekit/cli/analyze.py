"""How are traces analysed from a shell? ``tracekit analyze PATH…``"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.model import sized
from tracekit.cli.reading import Capture, Workers, reads
from tracekit.cli.screen import meter, show, writable, write
from tracekit.model_sizes import ModelSizes
from tracekit.reading import DEFAULT, Reading


@reads
@sized
def analyze(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Run directory, trace files, or folders that hold them; all of one job.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Write the report document (tracekit.report/1) to stdout, and nothing else.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one self-contained HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the report as Markdown.")] = None,
    link_gbps: Annotated[
        str | None,
        typer.Option(
            "--link-gbps",
            metavar="SPEED",
            help="Bus bandwidth of a GPU's links in GB/s (1e9), drawn as the ceiling of measured bandwidths: 450, or by mesh axis tp=450,dp=50.",
            show_default="unknown",
        ),
    ] = None,
    model: ModelSizes | None = None,
    capture: Capture = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="A refused file becomes a finding, and the others are read.")] = False,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Tell where the time and the memory of one job went.

    Reads torch.profiler traces of one rank or of many, nsys exports, NCCL's logs and dumps, memory snapshots, and
    archives or folders of these, joins what belongs to one rank, and prints health first, then where a step went, then
    each metric. What cannot be known from the files reads "unknown", with the reason.

    \b
    Examples:
      tracekit analyze runs/tp
      tracekit analyze rank0.json.gz rank1.json.gz --html report.html
      tracekit analyze job.tar.gz --json > report.json
      tracekit analyze rank0.json --salvage
      tracekit analyze runs/3d --html report.html --link-gbps tp=450,dp=50
      tracekit analyze runs/llama --hidden 4096 --layers 32 --sequence 4096 --vocabulary 32000 --global-batch 64 --peak-flops 989T
    """
    from tracekit.analysis import analyze as measure
    from tracekit.link_speed import link_speeds
    from tracekit.report import render
    from tracekit.report.story import story

    speeds = link_speeds(link_gbps)
    for path in (html, markdown):
        if path is not None:
            writable(path)
    with meter() as progress:
        analysis = measure(
            list(paths),
            workers=workers,
            progress=progress,
            reading=replace(reading, keep_going=keep_going),
            capture=capture,
            link_gbps=speeds,
            model=model,
        )
    if html is not None:
        write(html, render("html", analysis))
    if markdown is not None:
        write(markdown, render("markdown", analysis))
    if json:
        sys.stdout.write(render("json", analysis))
    else:
        show(story(analysis.to_dict()))
