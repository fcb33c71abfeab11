"""How do backward ranges come to nest with autograd's own? Their edges are moved to the edge of the node they fall into.

A layer's backward begins and ends in hooks, and hooks run inside ``autograd::engine::evaluate_function: …``. As
recorded, the range so begins a little inside one node and ends a little inside another: it overlaps both and nests in
neither, which trace viewers draw wrongly and which would give the second node to the wrong layer. The exported trace
is therefore corrected once: an edge inside a node that the range does not hold moves to that node's start.
"""

from __future__ import annotations

import gzip
import os
import re
from bisect import bisect_right
from pathlib import Path

_EVENT = rb'"name": "(?P<name>%s)",\s*"pid": (?P<pid>[^,\n]+),\s*"tid": (?P<tid>[^,\n]+),\s*"ts": (?P<ts>[\d.]+),\s*"dur": (?P<dur>[\d.]+)'
_NODE = re.compile(rb'"cat": "cpu_op",\s*' + _EVENT % rb"autograd::engine::evaluate_function: [^\"]*")
_BACKWARD = re.compile(rb'"cat": "user_annotation",\s*' + _EVENT % rb"[\w.]+\.backward")
_TRACE_NAME = re.compile(rb'"traceName": "[^"]*"')

Thread = tuple[bytes, bytes]


def compress(source: Path, target: Path) -> None:
    """Write Kineto's JSON file ``source`` to the gzip file ``target`` with backward ranges nested, whole or not at all.

    The compression level is 6: level 9, which torch uses, takes three times as long for three per cent.
    """
    text = nest(source.read_bytes())
    text = _TRACE_NAME.sub(b'"traceName": "%s"' % target.name.encode(), text, count=1) if b'"traceName"' in text[-4096:] else text
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with temporary.open("wb") as file, gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as out:
        out.write(text)
    temporary.replace(target)


def nest(text: bytes) -> bytes:
    """The same trace, the edges of ``….backward`` ranges moved where they cut an autograd node; all other bytes as they are."""
    ranges = list(_BACKWARD.finditer(text))
    if not ranges:
        return text
    nodes = _nodes(text, {(m["pid"], m["tid"]) for m in ranges})
    parts, done = [], 0
    for m in ranges:
        start, end = _ns(m["ts"]), _ns(m["ts"]) + _ns(m["dur"])
        new_start, new_end = nested(start, end, nodes.get((m["pid"], m["tid"]), []))
        parts += [text[done : m.start("ts")], _us(new_start), text[m.end("ts") : m.start("dur")], _us(new_end - new_start)]
        done = m.end("dur")
    parts.append(text[done:])
    return b"".join(parts)


def nested(start: int, end: int, nodes: list[tuple[int, int]]) -> tuple[int, int]:
    """The range ``[start, end)`` with its edges moved to the starts of the nodes they cut.

    ``nodes`` are sorted by start; a node inside another (re-entrant backward) stands after it.

    >>> nested(5, 25, [(0, 10), (12, 18), (20, 30)])
    (0, 20)
    >>> nested(5, 8, [(0, 10)])
    (5, 8)
    """
    first = [s for s, e in _holding(start, nodes) if s < start and e < end]
    last = [s for s, e in _holding(end, nodes) if s > start and e > end]
    return min(first, default=start), min(last, default=end)


def _holding(at: int, nodes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Nodes that hold a point inside them. Only nested nodes can hold it beside the last one, so the walk back is short."""
    found = []
    i = bisect_right(nodes, (at, -1)) - 1
    steps = 0
    while i >= 0 and steps < 64:
        if nodes[i][0] < at < nodes[i][1]:
            found.append(nodes[i])
        i, steps = i - 1, steps + 1
    return found


def _nodes(text: bytes, threads: set[Thread]) -> dict[Thread, list[tuple[int, int]]]:
    """Spans of autograd nodes by thread, sorted by start."""
    nodes: dict[Thread, list[tuple[int, int]]] = {thread: [] for thread in threads}
    for m in _NODE.finditer(text):
        thread = (m["pid"], m["tid"])
        if thread in nodes:
            start = _ns(m["ts"])
            nodes[thread].append((start, start + _ns(m["dur"])))
    for spans in nodes.values():
        spans.sort()
    return nodes


def _ns(us: bytes) -> int:
    """Decimal microseconds to ns, without a float on the way.

    >>> _ns(b"5122249159215.577"), _ns(b"12")
    (5122249159215577, 12000)
    """
    whole, _, rest = us.partition(b".")
    return int(whole) * 1000 + int((rest + b"000")[:3])


def _us(ns: int) -> bytes:
    """Ns to decimal microseconds as Kineto writes them.

    >>> _us(5122249159215577)
    b'5122249159215.577'
    """
    return b"%d.%03d" % divmod(ns, 1000)
