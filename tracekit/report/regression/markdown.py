"""How does a comparison read in a pull request? Verdict and cause in the first line, tables folded, never longer than a comment may be."""

from __future__ import annotations

import re

from tracekit.report.markdown import escape
from tracekit.report.parts import Grid
from tracekit.report.regression.words import Document, context, cut, notes, sentence, tables, verdict

#: Bytes of a comment; GitHub refuses more than 65,536 characters.
COMMENT_BYTES = 60_000
_COMMENT_ROWS = 60
_MOST_NOTES = 12
_SENTENCE, _NOTE = 700, 500
_MARK = {"regressed": "❌", "improved": "🚀", "unchanged": "✅", "inconclusive": "❔", "incomparable": "⚠️", "no baseline": "🌱"}
#: What is open without a click: why the verdict is what it is.
_OPEN = ("Limits", "What is not the same")


def render(document: Document, *, limit: int = COMMENT_BYTES, most: int = _COMMENT_ROWS) -> str:
    """A comment in GitHub-flavoured Markdown, at most ``limit`` bytes of UTF-8.

    What does not fit is left out by whole rows and counted. The last line is the tag by which the comment is found again.

    Args:
        document: the comparison.
        limit: bytes; no less than 15,000.
        most: rows of one table.
    """
    said = verdict(document)
    head = [f"{_MARK.get(said, '')} **{said.capitalize()}**: {escape(sentence(document, _SENTENCE))}", "", f"<sub>{escape(context(document))}</sub>", ""]
    told = _notes(document, limit // 4)
    foot = [*told, *([""] if told else []), tag(document["scenario"])]
    left = limit - _size(head) - _size(foot) - 200
    body: list[str] = []
    dropped = 0
    for grid, total in tables(document, most):
        lines, shown = _folded(grid, total, left)
        body += lines
        left -= _size(lines)
        dropped += total - shown
    more = [f"<sub>{dropped:,} rows are left out here; the JSON document holds all.</sub>", ""] if dropped else []
    return "\n".join([*head, *body, *more, *foot]) + "\n"


def tag(scenario: str | None) -> str:
    """The hidden last line of a comment: one comment per scenario, found by it and edited in place.

    >>> tag("tp2 --> <b>"), tag(None)
    ('<!-- tracekit: tp2-b -->', '<!-- tracekit: default -->')
    """
    safe = re.sub(r"[^\w./]+", "-", scenario or "", flags=re.ASCII).strip("-")[:100]
    return f"<!-- tracekit: {safe or 'default'} -->"


def _folded(grid: Grid, total: int, left: int) -> tuple[list[str], int]:
    """Lines of a table, folded, with as many of its rows as there is room for, and how many those are."""
    rows = ["| " + " | ".join(escape(c) for c in row) + " |" for row in grid.rows]
    open_now = " open" if grid.title in _OPEN else ""
    begin = [
        f"<details{open_now}><summary>{escape(grid.title)} ({total:,})</summary>",
        "",
        "| " + " | ".join(escape(h) for h in grid.header) + " |",
        "|" + "|".join("--:" if n else ":--" for n in grid.numeric) + "|",
    ]
    end = ["", "</details>", ""]
    room, shown = left - _size(begin) - _size(end) - 120, 0
    for row in rows:
        room -= len(row.encode()) + 1
        if room < 0:
            break
        shown += 1
    if not shown:
        return [], 0
    note = cut(Grid(grid.title, grid.header, grid.rows[:shown], grid.numeric), total).note
    return [*begin, *rows[:shown], *(["", f"<sub>{escape(note)}</sub>"] if note else []), *end], shown


def _notes(document: Document, room: int) -> list[str]:
    """As many notes as there is room for, and how many more there are."""
    every = [f"- Note: {escape(note[:_NOTE])}" for note in notes(document)]
    kept = [line for n, line in enumerate(every[:_MOST_NOTES], 1) if _size(every[:n]) <= room]
    return kept if len(kept) == len(every) else [*kept, f"- {len(every) - len(kept):,} more notes are in the JSON document."]


def _size(lines: list[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
