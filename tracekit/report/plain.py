"""How does a report read as plain text, in a pipe or a log? No colour, no box characters, no escape codes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tracekit.report import waterfall
from tracekit.report.parts import Grid, Section, Story
from tracekit.report.story import story

if TYPE_CHECKING:
    from tracekit.analysed import Analysed

WIDTH = 100


def render(analysis: Analysed) -> str:
    """The report as plain text."""
    return text(story(analysis.to_dict()))


def text(s: Story) -> str:
    """A story as plain text."""
    lines = [f"tracekit: {s.title}" + ("   [EMULATED COMPUTE]" if s.emulated else ""), f"Health: {s.verdict}"]
    for f in s.findings:
        lines += _wrap(f"{f.severity}: {f.code}: {f.message}" + (f" ({f.where})" if f.where else ""), "  ")
    lines += ["", *_wrap(s.headline), *_wrap(s.advice), "", *_waterfall(s)]
    lines += [f"  {k + ':':<{max(len(n) for n, _ in s.run) + 1}} {v}" for k, v in s.run]
    lines.append("")
    width = max((len(c.label) for c in s.cards), default=0)
    value = max((len(c.value) for c in s.cards), default=0)
    lines += [f"  {c.label:<{width}}  {c.value:>{value}}  {c.detail}" for c in s.cards]
    for section in s.sections:
        lines += ["", *_section(section)]
    if s.unavailable:
        lines += ["", "Not available, and why", "----------------------"]
        for _, title, reason in s.unavailable:
            lines += _wrap(f"{title}: {reason}", "  ")
    return "\n".join(lines) + "\n"


def table(g: Grid) -> list[str]:
    """Lines of one table: columns padded with blanks, numbers flush right."""
    widths = [max(len(h), *(len(r[i]) for r in g.rows)) for i, h in enumerate(g.header)]
    rows = [g.header, *g.rows]
    lines = ["  " + "  ".join(f"{c:>{w}}" if n else f"{c:<{w}}" for c, w, n in zip(row, widths, g.numeric, strict=True)).rstrip() for row in rows]
    return [*lines, *([f"  ({g.note})"] if g.note else [])]


def _waterfall(s: Story) -> list[str]:
    if not s.waterfall:
        return []
    rows = ["  " + line for line in waterfall.columns(s.waterfall, 40, "#=-", "|")]
    return [*rows, "  # work, = cost or loss, - of it what could come back at best", ""]


def _section(s: Section) -> list[str]:
    head = f"{s.title} [{', '.join(s.tags)}]" if s.tags else s.title
    lines = [head, "-" * len(head), *_wrap(s.question), *_wrap(s.definition), *(_wrap(f"{s.obtained}.") if s.obtained else [])]
    width = max((len(k) for k, _ in s.facts), default=0)
    lines += [f"  {k:<{width}}  {v}" for k, v in s.facts]
    for g in s.grids:
        lines += [f"  {g.title}", *table(g)]
    for note in s.notes:
        lines += _wrap(f"Note: {note}")
    return lines


def _wrap(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(line, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
