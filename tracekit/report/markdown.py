"""How does a report read as Markdown, in a pull request or a wiki? Names from traces are escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.report import waterfall
from tracekit.report.parts import Grid, Section, Story
from tracekit.report.story import story

if TYPE_CHECKING:
    from tracekit.analysed import Analysed

_MARK = {"ok": "✅", "warnings": "⚠️", "unusable": "❌"}


def render(analysis: Analysed) -> str:
    """The report as GitHub-flavoured Markdown."""
    return text(story(analysis.to_dict()))


def escape(line: str) -> str:
    r"""Text that Markdown and HTML leave alone; ``@`` mentions nobody, ``#1`` and ``www.`` link nowhere, ``::`` commands nothing.

    Forges look for mentions, references and addresses after entities are resolved and backslashes gone, so a zero-width
    space is put between the mark and what follows it.

    >>> escape("a|b_c @you <b> #1")
    'a\\|b\\_c @&#8203;you &lt;b&gt; #&#8203;1'
    """
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//&#8203;").replace("::", "&#58;&#58;")
    line = re.sub(r"[\\`*_\[\]|~$]", lambda m: "\\" + m[0], line)
    line = re.sub(r"(?<!&)[@#](?=\S)|(?<!&)!(?=\d)|\bGH-(?=\d)|\bwww(?=\.)|\b(?:mailto|xmpp):", lambda m: m[0] + "&#8203;", line, flags=re.IGNORECASE)
    return re.sub(r"^(\s*)(?=#)", r"\1&#8203;", line)


def text(s: Story) -> str:
    """A story as Markdown."""
    lines = [f"# tracekit: {escape(s.title)}", ""]
    if s.emulated:
        lines += ["> **Emulated compute**: layers slept for a set time; schedule and communication are real.", ""]
    lines += [f"**Health: {_MARK.get(s.verdict, '')} {escape(s.verdict)}**", ""]
    lines += [f"- {escape(f.severity)} `{f.code.replace('`', '')}`: {escape(f.message)}" + (f" ({escape(f.where)})" if f.where else "") for f in s.findings]
    lines += [*([] if s.findings else ["No findings."]), "", f"**{escape(s.headline)}** {escape(s.advice)}", ""]
    lines += _waterfall(s)
    lines += ["| | | |", "|:--|--:|:--|", *(f"| {escape(c.label)} | **{escape(c.value)}** | {escape(c.detail)} |" for c in s.cards), ""]
    lines += ["<sub>" + " · ".join(f"{k}: {escape(v)}" for k, v in s.run) + "</sub>", ""]
    for section in s.sections:
        lines += _section(section)
    if s.unavailable:
        lines += ["## Not available, and why", "", *(f"- **{escape(title)}**: {escape(reason)}" for _, title, reason in s.unavailable), ""]
    return "\n".join(lines)


def table(g: Grid) -> list[str]:
    """Lines of one Markdown table, with its title."""
    rule = "|" + "|".join("--:" if n else ":--" for n in g.numeric) + "|"
    rows = ["| " + " | ".join(escape(c) for c in row) + " |" for row in g.rows]
    head = "| " + " | ".join(escape(h) for h in g.header) + " |"
    return [f"*{escape(g.title)}*", "", head, rule, *rows, "", *([f"<sub>{escape(g.note)}</sub>", ""] if g.note else [])]


def _waterfall(s: Story) -> list[str]:
    """A fenced block: nothing in it is read as markup, and labels of parts hold no backticks."""
    if not s.waterfall:
        return []
    rows = [line.replace("`", "") for line in waterfall.columns(s.waterfall, 40, "█▓░")]
    return ["```text", *rows, "```", "", "<sub>█ work, ▓ cost or loss, ░ of it what could come back at best</sub>", ""]


def _section(s: Section) -> list[str]:
    lines = [f"## {escape(s.title)}", "", *([f"**{escape(s.question)}**", ""] if s.question else []), f"{escape(s.definition)} *{escape(s.obtained)}.*", ""]
    if s.facts:
        lines += ["| | |", "|:--|:--|", *(f"| {escape(k)} | {escape(v)} |" for k, v in s.facts), ""]
    for g in s.grids:
        lines += table(g)
    return lines + [f"> {escape(note)}\n" for note in s.notes]
