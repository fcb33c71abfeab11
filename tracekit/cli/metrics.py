"""What can tracekit measure? ``tracekit metrics`` lists every metric with its definition."""

from __future__ import annotations

import json as json_module
import sys
import textwrap
from typing import Annotated

import typer


def metrics(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Metrics to show; all where none is named.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Write name, title, question and definition as one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """List what is measured, each metric with its definition and source.

    \b
    Examples:
      tracekit metrics
      tracekit metrics pipeline
      tracekit metrics --json
    """
    from tracekit.errors import UsageError
    from tracekit.metrics import METRICS

    known = {m.name: m for m in METRICS}
    for name in names or ():
        if name not in known:
            raise UsageError(f"no metric {name!r}; there are {', '.join(known)}")
    chosen = [known[n] for n in names or known]
    if json:
        rows = [{"name": m.name, "title": m.title, "question": m.question, "definition": m.definition} for m in chosen]
        sys.stdout.write(json_module.dumps({"schema": "tracekit.metrics/1", "metrics": rows}, indent=1, ensure_ascii=False) + "\n")
        return
    for m in chosen:
        typer.echo(f"{m.name}: {m.question}")
        typer.echo(textwrap.fill(" ".join(m.definition.split()), 100, initial_indent="    ", subsequent_indent="    ") + "\n")
