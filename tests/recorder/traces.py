"""Reads a recorded trace back for the tests: whole ns, sorted, nested."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tracekit.vocabulary import PIPELINE_ACTION, parse_module_span


class Slice(NamedTuple):
    name: str
    category: str
    thread: Any
    start: int
    end: int
    args: dict[str, Any]


def slices(path: Path, threads: str = "all") -> list[Slice]:
    """All complete CPU slices, sorted by (thread, start, -end); gloo's asynchronous annotations are left out."""
    with gzip.open(path, "rt") as file:
        document = json.load(file, parse_float=Decimal)
    found = []
    for e in document["traceEvents"]:
        if e.get("ph") != "X" or not isinstance(e["tid"], int) or e["name"].startswith("gloo:"):
            continue
        start, length = int(Decimal(e["ts"]) * 1000), int(Decimal(e["dur"]) * 1000)
        found.append(Slice(e["name"], e["cat"], e["tid"], start, start + length, e.get("args", {})))
    return sorted(found, key=lambda s: (s.thread, s.start, -s.end))


def parents(events: list[Slice]) -> list[int | None]:
    """Row of the innermost slice that holds each one whole.

    Raises:
        AssertionError: a range or an autograd node overlaps another slice without holding it.
    """
    rows: list[int | None] = []
    stack: list[int] = []
    for i, e in enumerate(events):
        while stack and (events[stack[-1]].thread != e.thread or events[stack[-1]].end <= e.start):
            stack.pop()
        if stack:
            outer = events[stack[-1]]
            assert e.end <= outer.end, f"{e.name} [{e.start}, {e.end}) cuts {outer.name} [{outer.start}, {outer.end})"
        rows.append(stack[-1] if stack else None)
        stack.append(i)
    return rows


def outline(events: list[Slice], step: int) -> list[str]:
    """The recorder's ranges of one step in order, indented by how deep they stand in each other."""
    rows = parents(events)
    depth: list[int] = []
    inside: list[bool] = []
    lines = []
    for e, parent in zip(events, rows, strict=True):
        mine = e.category == "user_annotation" and (parse_module_span(e.name) or PIPELINE_ACTION.match(e.name)) is not None
        above = depth[parent] if parent is not None else 0
        inside.append(e.name == f"ProfilerStep#{step}" or (parent is not None and inside[parent]))
        depth.append(above + mine)
        if mine and inside[-1]:
            lines.append("  " * above + e.name)
    return lines


def chain(events: list[Slice], rows: list[int | None], i: int) -> list[str]:
    """Names of the slices that hold one, innermost first."""
    names = []
    parent = rows[i]
    while parent is not None:
        names.append(events[parent].name)
        parent = rows[parent]
    return names
