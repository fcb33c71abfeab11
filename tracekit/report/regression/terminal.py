"""How does a comparison read in a terminal? The verdict, then the cause, then a table of what was measured and what could be seen."""

from __future__ import annotations

from typing import Any

from tracekit.report import plain
from tracekit.report.regression.words import Document, context, grids, notes, sentence, verdict
from tracekit.wording import no_command

_COLOUR = {"regressed": "bold white on red", "improved": "bold green", "unchanged": "bold green", "inconclusive": "bold yellow", "incomparable": "bold yellow"}


def text(document: Document) -> str:
    """A comparison as plain text; nothing in it is a command to a CI runner (``::…`` at a line's start, ``##[…`` anywhere)."""
    lines = [f"{verdict(document).upper()}: {sentence(document)}", context(document), ""]
    for grid in grids(document):
        lines += [grid.title, *plain.table(grid), ""]
    lines += [f"Note: {note}" for note in notes(document)]
    return no_command("\n".join(lines).rstrip()) + "\n"


def renderable(document: Document) -> Any:
    """The same for a rich terminal."""
    from rich.console import Group
    from rich.text import Text

    from tracekit.report.text import Fitted

    said = verdict(document)
    head = Text.assemble((f" {said.upper()} ", _COLOUR.get(said, "bold")), " ", (sentence(document), "bold"))
    parts: list[Any] = [head, Text(context(document), style="dim"), *(Fitted(grid) for grid in grids(document))]
    return Group(*parts, *(Text(f"Note: {note}", style="dim") for note in notes(document)))
