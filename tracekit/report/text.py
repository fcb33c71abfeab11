"""How does a report look in a terminal? Rich tables and colour, the same words as everywhere."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich import box
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tracekit.report import waterfall
from tracekit.report.parts import Card, Grid, Section, Story
from tracekit.report.story import story

if TYPE_CHECKING:
    from tracekit.analysed import Analysed

_COLOUR = {"ok": "green", "warnings": "yellow", "unusable": "red", "error": "red", "warning": "yellow", "info": "cyan"}


def render(analysis: Analysed) -> str:
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
    parts += _waterfall(s)
    parts.append(Text("   ".join(f"{k}: {v}" for k, v in s.run), style="dim"))
    parts.append(Columns([_card(c) for c in s.cards], equal=True, expand=False))
    parts += [_section(section) for section in s.sections]
    if s.unavailable:
        parts.append(Text("\nNot available, and why", style="bold"))
        parts += [Text.assemble((f"  {title}: ", "yellow"), reason) for _, title, reason in s.unavailable]
    return Group(*parts)


class Fitted:
    """A Grid as rich tables of the terminal's width: columns that do not fit stand below, beside the first column again.

    A number is never broken over two lines.
    """

    def __init__(self, g: Grid) -> None:
        self._grid = g

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in _parts(self._grid, options.max_width):
            yield table(part)


def _parts(g: Grid, width: int) -> list[Grid]:
    """The grid cut into grids of at most that many characters, each with the first column; one column at least beside it."""
    cells = zip(g.header, *g.rows, strict=True)
    need = [2 + max(*map(len, header.split()), *map(len, column)) for header, *column in cells]
    groups: list[list[int]] = [[0]]
    for i in range(1, len(need)):
        if len(groups[-1]) > 1 and sum(need[j] for j in [*groups[-1], i]) > width:
            groups.append([0])
        groups[-1].append(i)
    return [
        Grid(
            g.title if n == 0 else "",
            tuple(g.header[i] for i in group),
            tuple(tuple(row[i] for i in group) for row in g.rows),
            tuple(g.numeric[i] for i in group),
            g.note if n == len(groups) - 1 else "",
        )
        for n, group in enumerate(groups)
    ]


def table(g: Grid) -> Table:
    """A Grid as a rich table."""
    made = Table(
        box=box.SIMPLE_HEAD,
        title=Text(g.title, style="italic") if g.title else None,
        title_justify="left",
        caption=Text(g.note) if g.note else None,
        pad_edge=False,
    )
    for header, numeric in zip(g.header, g.numeric, strict=True):
        made.add_column(Text(header), justify="right" if numeric else "left", overflow="fold")
    for row in g.rows:
        made.add_row(*(Text(c, style="yellow" if c == "unknown" else "") for c in row))
    return made


def _waterfall(s: Story) -> list[RenderableType]:
    """One line per part: its name, its length, and where in the step it stands."""
    if not s.waterfall:
        return []
    made = Table.grid(padding=(0, 1))
    for justify in ("left", "right", "left", "left"):
        made.add_column(justify=justify, no_wrap=justify == "right" or None)  # type: ignore[arg-type]
    for b, (label, before, stays, back, after) in zip(s.waterfall, waterfall.lines(s.waterfall, 36, "██░"), strict=True):
        colour = "blue" if b.work else "red"
        bar = Text.assemble(before, (stays, colour), (back, "green"), after, no_wrap=True)
        made.add_row(Text("  " + label), Text(b.text, style="bold"), bar, Text(b.told, style="green"))
    return [
        made,
        Text.assemble("  ", ("█", "blue"), " work  ", ("█", "red"), " cost or loss  ", ("░", "green"), " of it what could come back at best", style="dim"),
    ]


def _card(c: Card) -> Panel:
    return Panel(Text.assemble((c.value + "\n", "bold cyan"), (c.detail, "dim")), title=Text(c.label), title_align="left", width=38, border_style="dim")


def _section(s: Section) -> Group:
    parts: list[RenderableType] = [
        Text.assemble((f"\n{s.title}", "bold"), (f"  {' · '.join(s.tags)}", "yellow" if "emulated" in s.tags else "dim")),
        Text(s.question),
        *([Text(f"{s.definition}\n{s.obtained}.", style="dim")] if s.definition else []),
    ]
    if s.facts:
        facts = Table.grid(padding=(0, 2))
        for name, value in s.facts:
            facts.add_row(Text("  " + name), Text(value, style="bold"))
        parts.append(facts)
    parts += [Fitted(g) for g in s.grids]
    parts += [Text(f"Note: {note}", style="dim") for note in s.notes]
    return Group(*parts)
