"""How does a comparison that was kept look in another form? ``tracekit render COMPARISON.json --html comparison.html``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.outputs import Outputs, renders, tell


@renders
def render(
    comparison: Annotated[Path, typer.Argument(metavar="COMPARISON", help="What tracekit compare or check wrote with --save or --json.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Write the comparison (tracekit.comparison/1) to stdout, and nothing else.")] = False,
    outputs: Outputs = Outputs(),  # noqa: B008
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Show a kept comparison again, in any form; nothing is measured or judged anew.

    \b
    Examples:
      tracekit render comparison.json
      tracekit render comparison.json --markdown comment.md --html comparison.html
      tracekit render comparison.json --junit junit.xml --gitlab quality.json --gitlab metrics.txt

    \b
    Exit codes: 0 rendered, whatever the verdict (the document holds the
    check's own exit code), 4 the file is no comparison.
    """
    from tracekit.compare.reread import read_comparison

    tell(read_comparison(comparison), outputs, as_json=json)
    return 0
