"""Does an object of a Chrome trace state one key twice, with different values? Then nobody can know which is meant.

A decoder silently takes the last. So the keys of events are counted in the text: where there are more than the decoded
records account for, the records themselves are looked at one by one. No profiler writes such text; a merge of two
records, or of two files, does.
"""

from __future__ import annotations

import json
import re
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tracekit.readers.chrome_records import Args, Event, File

#: Keys of an event, by the four bytes with which each begins in the text.
_KEYS = {key: np.frombuffer(f'"{key}"'.encode()[:4], "<u4")[0] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")}
_EVENTS = b'"traceEvents"'


class Conflict(NamedTuple):
    """A key that an object states twice with different values.

    Attributes:
        record: which record it is in; None: the top-level object.
        key: the key.
        at: byte at which it stands the second time.
    """

    record: int | None
    key: str
    at: int


class _Texts(msgspec.Struct, gc=False):
    """The file with its records left as text."""

    events: list[msgspec.Raw] | None = msgspec.field(name="traceEvents", default=None)


def conflicts(text: bytes, file: File) -> list[Conflict]:
    """Objects of a (sound) text that contradict themselves, in order of the text.

    Args:
        text: the text, of either form.
        file: what it was decoded to.

    >>> text = b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "dur": 3}]}'
    >>> conflicts(text, msgspec.json.decode(text, type=File))
    [Conflict(record=0, key='dur', at=61)]
    """
    events = [e for e in file.events or [] if type(e) is Event]
    suspects = [f'"{key}"'.encode() for key, pattern in _KEYS.items() if _count(text, pattern) > _expected(key, events, file)]
    begins = text.find(_EVENTS)
    found = _in_head(text[: max(begins, 0)])
    if not suspects:
        return found
    bare = text.lstrip().startswith(b"[")
    again = -1 if bare else text.find(_EVENTS, begins + 1)
    found += [Conflict(None, "traceEvents", again)] if again >= 0 else []
    records = msgspec.json.decode(text, type=list[msgspec.Raw]) if bare else msgspec.json.decode(text, type=_Texts).events
    for number, raw in enumerate(map(bytes, records or [])):
        if any(raw.count(key) > 1 for key in suspects) and (key := _contradiction(raw)) is not None:
            found.append(Conflict(number, key, text.find(raw) + _second(raw, key)))
    return found


def _count(text: bytes, pattern: np.uint32) -> int:
    """How often four bytes occur: once over the text in words, for each of the four ways to cut it into words."""
    cuts = (np.frombuffer(text, "<u4", (len(text) - cut) // 4, cut) for cut in range(4) if len(text) - cut >= 4)
    return sum(int(np.count_nonzero(words == pattern)) for words in cuts)


def _expected(key: str, events: list[Event], file: File) -> int:
    """How often a key stands in the text if every object states it once; less costs time, never an answer."""
    if key in ("ts", "dur"):
        return len(events) - list(map(bytes, map(attrgetter(key), events))).count(b"")
    stated = len(events) - list(map(attrgetter(key), events)).count(None)
    if key == "name":
        args = [e.args.thread_name for e in events if type(e.args) is Args]
        stated += len(args) - args.count(None) + (len(file.devices) if isinstance(file.devices, list) else 0)
    return stated


def _contradiction(raw: bytes) -> str | None:
    """A key that one of a record's objects states twice with different values."""
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        found.extend(key for key, value in items if out.setdefault(key, value) != value)
        return out

    try:
        json.loads(raw, object_pairs_hook=pairs, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):  # deeper than Python goes: left as the decoder took it
        return None
    return found[0] if found else None


def _second(raw: bytes, key: str) -> int:
    places = [m.start() for m in re.finditer(rb'"%b"\s*:' % re.escape(json.dumps(key)[1:-1].encode()), raw)]
    return places[1] if len(places) > 1 else 0


def _in_head(head: bytes) -> list[Conflict]:
    """The same for what stands in front of the events."""
    for key in ("baseTimeNanoseconds", "distributedInfo"):
        if head.count(f'"{key}"'.encode()) > 1 and _contradiction(head + _EVENTS + b":[]}") is not None:
            return [Conflict(None, key, _second(head, key))]
    return []


__all__ = ["Conflict", "conflicts"]
