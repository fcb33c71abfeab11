"""How does a step add up, line by line? The budget's account as bars that any renderer can draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.account_lines import WORTH, smaller, together
from tracekit.report.parts import Bar
from tracekit.report.rows import Row, span_word, table


def account(document: Mapping[str, Any]) -> list[Row]:
    """The job's mean account: rows of the budget's table ``account`` without a rank."""
    return [r for r in table(document, "budget", "account") if r.get("rank") is None and r.get("duration_ns")]


def waterfall(document: Mapping[str, Any]) -> tuple[Bar, ...]:
    """One bar per part, each beginning where the one before it ends, and last the whole step; () where there is no account."""
    rows = account(document)
    whole = sum(r["duration_ns"] for r in rows)
    if not whole:
        return ()
    folded = together([r.get("part") for r in rows], [r["duration_ns"] for r in rows])
    small = [r["duration_ns"] for r, fold in zip(rows, folded, strict=True) if fold]
    bars, at = [], 0.0
    for r in (r for r, fold in zip(rows, folded, strict=True) if not fold):
        share = r["duration_ns"] / whole
        back = r.get("recoverable_ns") if (r.get("recoverable_ns") or 0) >= WORTH * whole else None
        text = f"{fmt.duration(r['duration_ns'])}  {fmt.percent(share)}"
        told = f"up to {fmt.duration(back)} could come back" if back else ""
        bars.append(Bar(fmt.part(r.get("part"), r.get("axis")), text, told, at, share, (back or 0) / whole, r.get("part") in fmt.WORK))
        at += share
    if small:
        rest = sum(small)
        bars.append(Bar(smaller(len(small)), f"{fmt.duration(rest)}  {fmt.percent(rest / whole)}", "", at, rest / whole, 0.0, False))
    return (*bars, Bar(span_word(document), fmt.duration(whole), "", 0.0, 1.0, 0.0, True))


def lines(bars: tuple[Bar, ...], width: int, marks: str) -> list[tuple[str, str, str, str, str]]:
    """Label, blanks before the bar, what of it stays, what could come back, and numbers of each line.

    Args:
        bars: a waterfall.
        width: characters of the whole step.
        marks: three characters: work, loss, what could come back.
    """
    out = []
    for b in bars:
        start = min(width - 1, round(b.start * width))
        end = max(start + 1, round((b.start + b.length) * width))
        back = min(end - start, round(b.recoverable * width))
        out.append((b.label, " " * start, (marks[0] if b.work else marks[1]) * (end - start - back), marks[2] * back, " " * max(0, width - end)))
    return out


def columns(bars: tuple[Bar, ...], width: int, marks: str, edge: str = "") -> list[str]:
    """A waterfall as lines of plain text: name, numbers, bar between two edges, and what could come back.

    Args:
        bars: a waterfall with at least one bar.
        width: characters of the whole step.
        marks: as for :func:`lines`.
        edge: stands at both ends of every bar.
    """
    name, text = max(len(b.label) for b in bars), max(len(b.text) for b in bars)
    made = zip(bars, lines(bars, width, marks), strict=True)
    return [f"{label:<{name}}  {b.text:>{text}}  {edge}{''.join(parts)}{edge}  {b.told}".rstrip() for b, (label, *parts) in made]
