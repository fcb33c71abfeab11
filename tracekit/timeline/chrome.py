"""How is a part of a timeline written as a Chrome trace, so that every viewer and tracekit itself read it back?

One process per rank and capture. Lanes whose slices nest are one thread; elsewhere each track is a thread of its own, because viewers draw
slices of one thread wrongly, or not at all, where they overlap without nesting (google/perfetto#4280, pytorch/kineto#1191). Times
are exact to the nanosecond, in microseconds with three decimals, on the reference rank's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import integers
from tracekit.timeline.lanes import DEVICE_RANGES, Lane
from tracekit.timeline.selection import Selection
from tracekit.vocabulary import Kind
from tracekit.widths import element_bytes

#: Kineto's category of each kind; on a device, and on the host.
CATEGORIES = {
    Kind.OPERATOR: "cpu_op",
    Kind.RANGE: "user_annotation",
    Kind.PYTHON: "python_function",
    Kind.LAUNCH: "cuda_runtime",
    Kind.COMPUTE: "kernel",
    Kind.COMMUNICATION: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.GRAPH: "kernel",
    Kind.ASYNC_RANGE: "user_annotation",
    Kind.DEVICE_RANGE: "gpu_user_annotation",
    Kind.OTHER: "overhead",
}
_HOST = {Kind.COMPUTE: "user_annotation", Kind.COMMUNICATION: "user_annotation", Kind.GRAPH: "user_annotation"}
#: Columns that are written under the names that Kineto gives them.
_ARGUMENTS = {
    "external_id": "External id",
    "correlation": "correlation",
    "sequence": "Sequence number",
    "fwd_thread": "Fwd thread id",
    "device": "device",
    "stream": "stream",
    "collective": "Collective name",
    "group": "Process Group Name",
    "group_desc": "Process Group Description",
    "group_size": "Group size",
    "seq": "Seq",
    "dtype": "dtype",
}
#: Columns that only tracekit has, for whoever reads them in a viewer.
_OURS = ("step", "phase", "layer", "stage", "action", "microbatch", "nbytes")


def chrome(parts: Sequence[Selection], title: str = "") -> Iterator[bytes]:
    """The JSON text of a Chrome trace, piece by piece.

    Args:
        parts: what ``selection.select`` cut out; of a single rank, the file says which, and its slices are read back as they were.
        title: what the file says of itself.
    """
    base = min((int(p.start_ns.min()) for p in parts), default=0)
    ranks = sorted({p.member.rank for p in parts})
    head: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base, "tracekit": title[:400]}
    if len(ranks) == 1:
        head["distributedInfo"] = {"rank": ranks[0]}
    yield (json.dumps(head)[:-1] + ', "traceEvents": [\n').encode()
    before = ""
    for number, part in enumerate(parts, start=1):
        for text in _records(part, base, number):
            yield (before + text).encode("utf-8", "replace")
            before = ",\n"
    yield b"\n]}\n"


def _records(part: Selection, base: int, pid: int) -> Iterator[str]:
    """The metadata and slices of one part, a process of its own, in pieces of some thousand."""
    member, events = part.member, part.events
    tracks = integers(events["track"])
    lanes = [part.lane(int(t)) for t in np.unique(tracks[tracks >= 0])]
    threads = {int(t): thread_of(lane, int(t)) for t, lane in zip(np.unique(tracks[tracks >= 0]), lanes, strict=True)}
    capture = f", capture {member.capture}" if member.capture else ""
    yield ",\n".join(
        [
            _metadata("process_name", pid, 0, {"name": f"rank {member.rank}{capture}"}),
            _metadata("process_sort_index", pid, 0, {"sort_index": pid}),
            *(_metadata("thread_name", pid, tid, {"name": name}) for tid, name in sorted(set(threads.values()))),
            *(_metadata("thread_sort_index", pid, tid, {"sort_index": tid}) for tid, _ in sorted(set(threads.values()))),
        ]
    )
    drawn = np.flatnonzero(tracks >= 0)
    names = [json.dumps(str(c)) for c in events["name"].cat.categories]
    code = events["name"].cat.codes.to_numpy(np.int64)
    category = _categories(events)
    arguments = _arguments(events)
    start, dur = part.start_ns - base, part.dur_ns
    for first in range(0, len(drawn), 4096):
        rows = drawn[first : first + 4096].tolist()
        lines = (
            f'{{"ph":"X","cat":"{category[i]}","name":{names[code[i]]},"pid":{pid},"tid":{threads[int(tracks[i])][0]},"ts":{_us(int(start[i]))},'
            f'"dur":{_us(int(dur[i]))},"args":{arguments(i)}}}'
            for i in rows
        )
        yield ",\n".join(lines)


def thread_of(lane: Lane, track: int) -> tuple[int, str]:
    """(number, name) of the thread that a track is written as: the lane's, or its own where the lane's slices do not nest."""
    if lane.nested and lane.what != DEVICE_RANGES:
        return lane.first + 1, lane.name
    depth = track - lane.first
    return track + 1, lane.name if depth == 0 else f"{lane.name} ({depth + 1})"


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args})


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with three decimals.

    >>> _us(1_234_567)
    '1234.567'
    """
    return f"{ns // 1000}.{ns % 1000:03d}"


def _categories(events: pd.DataFrame) -> list[str]:
    kinds = [str(k) for k in events["kind"].astype(object)]
    on_device = events["device"].notna().tolist() if "device" in events else [False] * len(events)
    return [CATEGORIES[Kind(k)] if there else _HOST.get(Kind(k), CATEGORIES[Kind(k)]) for k, there in zip(kinds, on_device, strict=True)]


def _arguments(events: pd.DataFrame) -> Callable[[int], str]:
    """The arguments of a row as JSON text; only what is known."""
    columns: list[tuple[str, list[str | None]]] = [(json.dumps(word), _texts(events[name])) for name, word in _ARGUMENTS.items() if name in events]
    columns += [(json.dumps(name), _texts(events[name])) for name in _OURS if name in events]
    if "group_ranks" in events:
        ranks = [None if text is None else json.dumps(f"[{', '.join(json.loads(text).split(','))}]") for text in _texts(events["group_ranks"])]
        columns.append(('"Process Group Ranks"', ranks))
    if "nbytes" in events:
        columns += _sizes(events)
    if "peer" in events:
        columns += _peers(events)

    def of(row: int) -> str:
        return "{" + ",".join(f"{word}:{values[row]}" for word, values in columns if values[row] is not None) + "}"

    return of


def _sizes(events: pd.DataFrame) -> list[tuple[str, list[str | None]]]:
    """The size of copies in bytes, that of communication in elements."""
    nbytes = [None if v is pd.NA else int(v) for v in events["nbytes"].astype("Int64").astype(object)]
    dtype = [None] * len(events) if "dtype" not in events else [v if isinstance(v, str) else None for v in events["dtype"].astype(object)]
    copies = events["kind"].isin([Kind.MEMCPY, Kind.MEMSET]).tolist()
    width = {d: element_bytes(d) for d in set(dtype)}
    elements = [str(n // w) if n is not None and (w := width[d]) else None for n, d in zip(nbytes, dtype, strict=True)]
    return [
        ('"bytes"', [str(n) if c and n is not None else None for n, c in zip(nbytes, copies, strict=True)]),
        *((word, [None if c else e for e, c in zip(elements, copies, strict=True)]) for word in ('"In msg nelems"', '"Out msg nelems"')),
    ]


def _peers(events: pd.DataFrame) -> list[tuple[str, list[str | None]]]:
    """The other end of sends and receives."""
    peer = _texts(events["peer"])
    received = (events["collective"].astype(object).eq("recv") if "collective" in events else pd.Series(False, events.index)).tolist()
    source = [p if r else None for p, r in zip(peer, received, strict=True)]
    target = [None if r else p for p, r in zip(peer, received, strict=True)]
    return [('"Src Rank"', source), ('"Dst Rank"', target)]


def _texts(column: pd.Series[Any]) -> list[str | None]:
    """Values as JSON texts, None where null; each category is written once."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        words: list[str | None] = [*(json.dumps(str(c)) for c in column.cat.categories), None]
        return [words[c] for c in column.cat.codes]
    return [None if value is pd.NA or value is None else str(int(value)) for value in column.astype(object)]
