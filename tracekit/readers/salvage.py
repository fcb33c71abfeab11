"""Which whole events does a damaged Chrome trace still hold? Those before the damage, and behind it from the next sound event on.

The text is read in windows that begin at an event, because behind a stray quote the inside and the outside of texts change
places: only from a new beginning are they known again. A window grows while all is well and is small again after damage, so
the work grows with the size of the file and not with the number of its wounds.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from tracekit.readers.chrome_records import Event, File, Note, Records
from tracekit.readers.json_repair import Repair, depths, repaired
from tracekit.readers.json_text import BYTE_ORDER_MARK, Damaged, Fault, collection_paused, decode, fault_of, line_of, may_help, said
from tracekit.reading import Reading

_SMALL, _LARGE = 1 << 15, 64 << 20
#: How much text is looked at to tell whether an event begins here: at first, and where the event is longer.
_GLANCES = (1 << 12, 1 << 18)
#: How often over the search for sound events may read the file, and what even a small file is worth (bytes).
_PATIENCE, _LEAST_PATIENCE = 16, 4 << 20
#: A fault so near to the end of a window (bytes) is that end: a number or an escape was cut.
_EDGE = 64
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_NEXT_LIST = re.compile(rb"\]\s*\[\s*\{")
_TAIL = re.compile(rb'\}\s*\](?=\s*,\s*")')
_BEHIND_EVENTS, _BEHIND_LIST = re.compile(rb'\s*(?:,\s*"|\}|$)'), re.compile(rb"\s*(?:[\[{]|$)")
_COMMA = re.compile(rb"\s*,\s*")
_OBJECT = re.compile(rb'\{\s*"')


class _Whole(NamedTuple):
    """What a window holds.

    Attributes:
        events: the whole records at its beginning.
        used: bytes that they take.
        fault: what comes behind them, at bytes of the window: truncated is its own end, extra the end of the list.
        repairs: what had to be put right.
    """

    events: Records
    used: int
    fault: Fault
    repairs: tuple[Repair, ...] = ()


def is_bare(data: bytes) -> bool:
    """Whether a text is a bare list of events."""
    return data[:4096].removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"[")


def salvaged(data: bytes, path: Path, reading: Reading, damage: Damaged) -> tuple[File, tuple[Note, ...]]:
    """The whole events of a damaged file, and what is to be said of it.

    Args:
        data: the text.
        path: where it came from, for messages.
        reading: the time that there is.
        damage: why it could not be read.

    Raises:
        Damaged: it holds no whole event.
        InputError: time is up.
    """
    deadline = reading.started()
    opening = None if is_bare(data) else _EVENTS.search(data)
    if opening is None and not is_bare(data):
        raise damage
    at = opening.end() if opening else data.index(b"[") + 1
    documents = [m.start() for m in (_EVENTS if opening else _NEXT_LIST).finditer(data, at)]
    file = _head(data[: opening.start()], path) if opening else File()
    events: Records = []
    wounds: list[int] = []
    repairs: dict[str, Repair] = {}
    size, patience = _SMALL, _PATIENCE * len(data) + _LEAST_PATIENCE
    with collection_paused():
        while True:
            deadline.check(path)
            end = min(at + size, len(data))
            whole, start = _whole(data, at, end, path), at
            events += whole.events
            at += whole.used
            _add(repairs, whole.repairs)
            if end < len(data) and (whole.fault.kind == "truncated" or start + whole.fault.at > end - _EDGE):
                size = min(size * 2, _LARGE) if whole.used else size * 2
                at = comma.end() if whole.used and (comma := _COMMA.match(data, at)) else at
                continue
            if whole.fault.kind == "extra" and _closes(data, at, opening is None):
                file = _with_tail(file, data[at + 1 :], path) if opening else file
                break
            wounds.append(start + whole.fault.at)
            from_here = at if whole.used else at + 1
            further = bisect_left(documents, from_here)
            until = documents[further] if further < len(documents) else len(data)
            found, patience = _next(data, from_here, until, patience, path)
            if found is None:
                file = _with_last_tail(file, data, at, path) if opening and damage.kind != "truncated" else file
                break
            at, size = found, _SMALL
    if not events:
        raise damage
    file.events = events
    given_up = at if patience <= 0 else None
    return file, (_summary(data, damage, wounds, len(events), given_up), *(Note(r.what, "warning", said(r), r.number, r.offset) for r in repairs.values()))


def _add(known: dict[str, Repair], more: tuple[Repair, ...]) -> None:
    for r in more:
        known[r.what] = known[r.what]._replace(number=known[r.what].number + r.number) if r.what in known else r


def _closes(data: bytes, at: int, bare: bool) -> bool:
    """Whether the bracket at a byte ends the list of events: what follows is the rest of the document, or another one."""
    return (_BEHIND_LIST if bare else _BEHIND_EVENTS).match(data, at + 1) is not None


def _summary(data: bytes, damage: Damaged, wounds: list[int], kept: int, given_up: int | None) -> Note:
    at = damage.offset if damage.offset is not None else wounds[0]
    more = len(wounds) - 1 if damage.kind not in ("extra", "shape") else 0
    place = f"byte {at}, line {line_of(data, at)}" + (f", and in {more} more places" if more > 0 else "")
    rest = "; what follows belongs to another document and was left out" if damage.kind == "extra" else ""
    rest += "" if given_up is None else f"; behind byte {given_up} there is too much damage to search for more"
    says = f"partial: the text is damaged at {place}, and {kept} whole events around that were kept{rest}; every figure is a lower bound of what was recorded"
    return Note("salvaged", "warning", says, kept, at)


def _whole(data: bytes, start: int, end: int, path: Path) -> _Whole:
    """The whole records with which a window begins."""
    text = b"[" + data[start:end]
    fault = _fault(text)
    if fault.kind == "extra":
        last = text.rindex(b"]", 0, fault.at)
    elif fault.kind == "none":
        last, fault = text.rindex(b"]"), Fault("extra", len(text))
    else:
        last = _end_of_last(text, fault.at)
    if not last:
        return _Whole([], 0, fault._replace(at=fault.at - 1))
    try:
        decoded = decode(text[:last] + b"]", path, Records)
    except Damaged as damage:  # sound as text, and yet too deep or too large for objects
        return _Whole([], 0, Fault("malformed", max((damage.offset or 0) - 1, 0)))
    repairs = tuple(r._replace(offset=r.offset - 1 + start) for r in decoded.repairs)
    return _Whole(decoded.value, last - 1, fault._replace(at=fault.at - 1), repairs)


def _fault(text: bytes) -> Fault:
    """Where a list of records ends or breaks, repairs apart."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        return Fault("none", len(text))
    except (msgspec.DecodeError, RecursionError) as error:
        fault = fault_of(error, text)
    better = repaired(text) if fault.kind == "malformed" and may_help(fault) else None
    if better is None:
        return fault
    try:
        msgspec.json.decode(better.text, type=msgspec.Raw)
        return Fault("none", len(text))
    except (msgspec.DecodeError, RecursionError) as error:
        fault = fault_of(error, better.text)
        return fault._replace(at=better.original(fault.at))


def _end_of_last(text: bytes, before: int) -> int:
    """Byte behind the last whole element of the list, in front of a byte; 0 where there is none."""
    view = np.frombuffer(text, np.uint8, min(before, len(text)))
    brackets, open_ones = depths(view)
    ends = brackets[(open_ones == 1) & (view[brackets] == ord("}"))]
    return int(ends[-1]) + 1 if len(ends) else 0


def _next(data: bytes, at: int, until: int, patience: int, path: Path) -> tuple[int | None, int]:
    """Where the next sound event begins, in front of the events of another document, and the patience that is left."""
    for candidate in _OBJECT.finditer(data, at, until):
        start = candidate.start()
        if patience <= 0:
            return None, patience
        for glance in _GLANCES:
            end = min(start + glance, len(data))
            patience -= end - start
            whole = _whole(data, start, end, path)
            if whole.events:
                if _is_event(whole.events[0]):
                    return start, patience
                break
            if whole.fault.kind != "truncated":
                break
    return None, patience


def _is_event(record: object) -> bool:
    return type(record) is Event and type(record.ph) is str and (bool(bytes(record.ts)) or record.ph == "M")


def _head(text: bytes, path: Path) -> File:
    """What stands in front of the events; nothing where it is damaged."""
    try:
        return decode(text + b'"traceEvents":[]}', path, File).value
    except Damaged:
        return File()


def _with_tail(file: File, text: bytes, path: Path) -> File:
    """With what stands behind the events, as far as the document goes."""
    try:
        tail = decode(b'{"":0' + text, path, File).value
    except Damaged as damage:
        if damage.kind != "extra" or damage.offset is None:
            return file
        tail = _with_tail(file, text[: damage.offset - 5], path)
    return File(None, *(getattr(file, f) if getattr(file, f) is not None else getattr(tail, f) for f in File.__struct_fields__[1:]))


def _with_last_tail(file: File, data: bytes, at: int, path: Path) -> File:
    """With what stands behind the events, where their end is found only by its looks."""
    tails = [m.end() for m in _TAIL.finditer(data, at)]
    return _with_tail(file, data[tails[-1] :], path) if tails and not _EVENTS.search(data, at) else file
