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
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

_EVENT = rb'"name": "(?P<name>%s)",\s*"pid": (?P<pid>[^,\n]+),\s*"tid": (?P<tid>[^,\n]+),\s*"ts": (?P<ts>[\d.]+),\s*"dur": (?P<dur>[\d.]+)'
_NODE = re.compile(rb'"cat": "cpu_op",\s*' + _EVENT % rb"autograd::engine::evaluate_function: [^\"]*")
_BACKWARD = re.compile(rb'"cat": "user_annotation",\s*' + _EVENT % rb"[\w.]+\.backward")
_TRACE_NAME = re.compile(rb'"traceName": "[^"]*"')

Thread = tuple[bytes, bytes]


def compress(source: Path, target: Path, names: Mapping[str, str] | None = None) -> None:
    """Write Kineto's JSON file ``source`` to the gzip file ``target`` with backward ranges nested, whole or not at all.

    The compression level is 6: level 9, which torch uses, takes three times as long for three per cent.

    Args:
        source: what torch exported.
        target: where it goes.
        names: events to rename, old name to new: what an event turned out to be is known only at its end.
    """
    text = nest(source.read_bytes())
    for old, new in (names or {}).items():
        text = text.replace(b'"name": "%s"' % old.encode(), b'"name": "%s"' % new.encode())
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

    ``nodes`` are sorted by start. A hook runs before its node's own work, so the node it runs in is the last that
    started; nodes around that one (re-entrant backward) hold the range whole, because it ends with the inner backward.

    >>> nested(5, 25, [(0, 10), (12, 18), (20, 30)])
    (0, 20)
    >>> nested(5, 8, [(0, 10)])
    (5, 8)
    """
    first, last = _started_last(start, nodes), _started_last(end, nodes)
    return (
        first[0] if first is not None and start < first[1] < end else start,
        last[0] if last is not None and start < last[0] and end < last[1] else end,
    )


def _started_last(at: int, nodes: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The last node that started before a point."""
    i = bisect_left(nodes, (at, -1)) - 1
    return nodes[i] if i >= 0 else None


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
