"""How is a part of a timeline written as Perfetto's own protobuf, one track per lane?

A trace is a sequence of ``TracePacket`` messages (google/perfetto, protos/perfetto/trace/trace_packet.proto): descriptors of tracks,
then a begin and an end per slice. Names and categories are interned: each is written once and referred to by number. Lanes whose
slices nest are one track; elsewhere every stored track is one of its own, so nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.columns import Rows, integers
from tracekit.timeline.chrome import thread_of
from tracekit.timeline.selection import Selection

# fields of TracePacket, TrackDescriptor, ProcessDescriptor, TrackEvent, InternedData, EventName and DebugAnnotation
_PACKET, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 1, 8, 10, 11, 12, 13, 60
_UUID, _NAME, _PROCESS, _PARENT, _ORDER, _RANK = 1, 2, 3, 5, 11, 12
_PID, _PROCESS_NAME = 1, 6
_CATEGORIES, _ANNOTATIONS, _TYPE, _NAME_ID, _TRACK = 3, 4, 9, 10, 11
_EVENT_CATEGORIES, _EVENT_NAMES = 1, 2
_ANNOTATION_INT, _ANNOTATION_TEXT, _ANNOTATION_NAME = 4, 6, 10
_BEGIN, _END = 1, 2
_CLEARED, _NEEDS = 1, 2
_EXPLICIT = 3
#: Columns that are shown beside a slice.
_SHOWN = ("step", "phase", "layer", "stage", "microbatch", "collective", "group_desc", "seq", "nbytes", "correlation")


def perfetto(parts: Sequence[Selection]) -> Iterator[bytes]:
    """The bytes of a trace, piece by piece.

    Args:
        parts: what ``selection.select`` cut out.
    """
    for number, part in enumerate(parts):
        yield from _part(part, number)


def _part(part: Selection, number: int) -> Iterator[bytes]:
    events, member = part.events, part.member
    tracks = integers(events["track"])
    sequence = _number(_SEQUENCE, number + 1)
    process = (number + 1) << 32
    capture = f", capture {member.capture}" if member.capture else ""
    about = _message(_PROCESS, _number(_PID, number + 1) + _text(_PROCESS_NAME, f"rank {member.rank}{capture}"))
    yield _packet(sequence + _message(_DESCRIPTOR, _number(_UUID, process) + about + _number(_ORDER, _EXPLICIT)))
    uuids = {}
    for track in np.unique(tracks[tracks >= 0]).tolist():
        tid, name = thread_of(part.lane(track), track)
        uuids[track] = process + tid
        described = _number(_UUID, process + tid) + _text(_NAME, name) + _number(_PARENT, process) + _number(_RANK, tid)
        yield _packet(sequence + _message(_DESCRIPTOR, described))
    names, kinds = events["name"].cat, events["kind"].astype("category").cat
    interned = b"".join(_message(_EVENT_CATEGORIES, _number(1, i + 1) + _text(2, str(c))) for i, c in enumerate(kinds.categories))
    interned += b"".join(_message(_EVENT_NAMES, _number(1, i + 1) + _text(2, str(c))) for i, c in enumerate(names.categories))
    yield _packet(sequence + _number(_FLAGS, _CLEARED | _NEEDS) + _message(_INTERNED, interned))
    yield from _slices(part, tracks, {t: _number(_TRACK, u) for t, u in uuids.items()}, sequence + _number(_FLAGS, _NEEDS))


def _slices(part: Selection, tracks: Rows, uuids: dict[int, bytes], before: bytes) -> Iterator[bytes]:
    """A begin and an end per slice, in an order in which the slices of a track open and close like brackets."""
    events = part.events
    rows = np.flatnonzero(tracks >= 0)
    depth, start, end = tracks[rows], part.start_ns[rows], part.start_ns[rows] + part.dur_ns[rows]
    at = np.concatenate((start, end))
    begins = np.repeat([True, False], len(rows))
    lasting = np.tile(end > start, 2)
    index = np.tile(np.arange(len(rows)), 2)
    # at one time: first the ends of what lasted, innermost first; then begins, outermost first, what has no length closed at once
    late = begins | ~lasting
    nesting = np.where(late, np.tile(depth, 2), -np.tile(depth, 2))
    order = np.lexsort((~begins, np.where(late, index, 0), nesting, late, at))
    notes = _annotations(events.iloc[rows])
    track = [uuids[t] for t in depth.tolist()]
    name, kind = (_encoded(field, column.iloc[rows]) for field, column in ((_NAME_ID, events["name"]), (_CATEGORIES, events["kind"].astype("category"))))
    opened, closed = _number(_TYPE, _BEGIN), _number(_TYPE, _END)
    for first in range(0, len(order), 8192):
        out = []
        places = order[first : first + 8192]
        for i, opens, when in zip(index[places].tolist(), begins[places].tolist(), at[places].tolist(), strict=True):
            event = track[i] + opened + name[i] + kind[i] + notes[i] if opens else track[i] + closed
            out.append(_packet(_number(_TIMESTAMP, when) + before + _message(_EVENT, event)))
        yield b"".join(out)


def _encoded(field: int, column: pd.Series[Any]) -> list[bytes]:
    """The number of each value's category, counted from 1, as a field."""
    words = [_number(field, i + 1) for i in range(len(column.cat.categories))]
    return [words[code] if code >= 0 else b"" for code in column.cat.codes.tolist()]


def _annotations(events: pd.DataFrame) -> list[bytes]:
    """What stands beside each slice; each distinct value of a column is encoded once."""
    columns: list[list[bytes]] = []
    for column in (c for c in _SHOWN if c in events):
        values, before = events[column], _text(_ANNOTATION_NAME, column)
        if isinstance(values.dtype, pd.CategoricalDtype):
            words = [*(_message(_ANNOTATIONS, before + _text(_ANNOTATION_TEXT, str(c))) for c in values.cat.categories), b""]
            columns.append([words[code] for code in values.cat.codes])
        else:
            numbers = values.astype("Int64").to_numpy(np.int64, na_value=0)
            distinct, place = np.unique(numbers, return_inverse=True)
            words = [_message(_ANNOTATIONS, before + _number(_ANNOTATION_INT, v)) for v in distinct.tolist()]
            columns.append([words[p] if k else b"" for p, k in zip(place.tolist(), values.notna().tolist(), strict=True)])
    return [b"".join(row) for row in zip(*columns, strict=True)] if columns else [b""] * len(events)


def _packet(content: bytes) -> bytes:
    return _message(_PACKET, content)


def _message(field: int, content: bytes) -> bytes:
    """A field that holds bytes."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8", "replace"))


def _number(field: int, value: int) -> bytes:
    """A field that holds an integer; negative ones as 64 bits, as protobuf does."""
    return _varint(field << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first.

    >>> _varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
