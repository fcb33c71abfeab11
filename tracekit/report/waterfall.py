"""How does a step add up, line by line? The budget's account as bars that any renderer can draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Bar
from tracekit.report.rows import Row, span_word, table

#: Parts smaller than this share of the step stand together in one line.
SMALL = 0.005
#: What could come back is said from this share of the step on.
WORTH = 0.001


def account(document: Mapping[str, Any]) -> list[Row]:
    """The job's mean account: rows of the budget's table ``account`` without a rank."""
    return [r for r in table(document, "budget", "account") if r.get("rank") is None and r.get("duration_ns")]


def waterfall(document: Mapping[str, Any]) -> tuple[Bar, ...]:
    """One bar per part, each beginning where the one before it ends, and last the whole step; () where there is no account."""
    rows = account(document)
    whole = sum(r["duration_ns"] for r in rows)
    if not whole:
        return ()
    large = [r for r in rows if r["duration_ns"] >= SMALL * whole or r.get("part") in fmt.WORK]
    small = [r for r in rows if r not in large]
    large = rows if len(small) < 2 else large
    bars, at = [], 0.0
    for r in large:
        share = r["duration_ns"] / whole
        back = r.get("recoverable_ns") if (r.get("recoverable_ns") or 0) >= WORTH * whole else None
        text = f"{fmt.duration(r['duration_ns'])}  {fmt.percent(share)}"
        told = f"up to {fmt.duration(back)} could come back" if back else ""
        bars.append(Bar(fmt.part(r.get("part"), r.get("axis")), text, told, at, share, (back or 0) / whole, r.get("part") in fmt.WORK))
        at += share
    if at < 1 - 1e-9 and len(large) < len(rows):
        rest = sum(r["duration_ns"] for r in small)
        bars.append(Bar(f"{len(small)} smaller parts", f"{fmt.duration(rest)}  {fmt.percent(rest / whole)}", "", at, rest / whole, 0.0, False))
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
