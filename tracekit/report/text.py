"""How does a report look in a terminal? Rich tables and colour, the same words as everywhere."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tracekit.report.parts import Card, Grid, Section, Story
from tracekit.report.story import story

if TYPE_CHECKING:
    from tracekit.analysis import Analysis

_COLOUR = {"ok": "green", "warnings": "yellow", "unusable": "red", "error": "red", "warning": "yellow", "info": "cyan"}


def render(analysis: Analysis) -> str:
    """The report with terminal colours, 120 columns wide."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120, highlight=False)
    console.print(group(story(analysis.to_dict())))
    out = console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def group(s: Story) -> Group:
    """A story as one rich renderable. All text is Text: a name from a trace is never read as markup."""
    head = Text.assemble(("tracekit ", "bold"), (s.title, "bold cyan"))
    if s.emulated:
        head.append("  EMULATED COMPUTE ", style="black on yellow")
    parts: list[RenderableType] = [head, Text.assemble("Health ", (s.verdict, f"bold {_COLOUR.get(s.verdict, 'white')}"))]
    for f in s.findings:
        parts.append(
            Text.assemble(("  " + f.severity, _COLOUR.get(f.severity, "white")), f" {f.code}: {f.message}", (f" ({f.where})" if f.where else "", "dim"))
        )
    parts.append(Panel(Text.assemble((s.headline, "bold"), ("\n" + s.advice if s.advice else "")), border_style="cyan"))
    parts.append(Text("   ".join(f"{k}: {v}" for k, v in s.run), style="dim"))
    parts.append(Columns([_card(c) for c in s.cards], equal=True, expand=False))
    parts += [_section(section) for section in s.sections]
    if s.unavailable:
        parts.append(Text("\nNot available, and why", style="bold"))
        parts += [Text.assemble((f"  {title}: ", "yellow"), reason) for _, title, reason in s.unavailable]
    return Group(*parts)


def table(g: Grid) -> Table:
    """A Grid as a rich table."""
    made = Table(box=box.SIMPLE_HEAD, title=Text(g.title, style="italic"), title_justify="left", caption=Text(g.note) if g.note else None, pad_edge=False)
    for header, numeric in zip(g.header, g.numeric, strict=True):
        made.add_column(Text(header), justify="right" if numeric else "left", overflow="fold")
    for row in g.rows:
        made.add_row(*(Text(c, style="yellow" if c == "unknown" else "") for c in row))
    return made


def _card(c: Card) -> Panel:
    return Panel(Text.assemble((c.value + "\n", "bold cyan"), (c.detail, "dim")), title=Text(c.label), title_align="left", width=38, border_style="dim")


def _section(s: Section) -> Group:
    parts: list[RenderableType] = [
        Text.assemble((f"\n{s.title}", "bold"), (f"  {' · '.join(s.tags)}", "yellow" if "emulated" in s.tags else "dim")),
        Text(s.question),
        Text(f"{s.definition}\n{s.obtained}.", style="dim"),
    ]
    if s.facts:
        facts = Table.grid(padding=(0, 2))
        for name, value in s.facts:
            facts.add_row(Text("  " + name), Text(value, style="bold"))
        parts.append(facts)
    parts += [table(g) for g in s.grids]
    parts += [Text(f"Note: {note}", style="dim") for note in s.notes]
    return Group(*parts)
