"""Which records does a file of Chrome's trace format hold? Object form, bare list, list without its end; sound or salvaged."""

from __future__ import annotations

from pathlib import Path

from tracekit.errors import InputError
from tracekit.readers.chrome_records import File, Note, Records
from tracekit.readers.json_keys import conflicts
from tracekit.readers.json_repair import Repair
from tracekit.readers.json_text import BYTE_ORDER_MARK, Damaged, Decoded, as_utf8, decode, said
from tracekit.readers.salvage import is_bare, salvaged
from tracekit.reading import Reading

#: A record takes at least so many bytes: smaller files need no counting.
_LEAST = 3
#: Most brackets per record that are believed before decoding; an event and its arguments have two.
_BRACKETS = 4


def opened(data: bytes, path: Path, reading: Reading) -> tuple[File, tuple[Note, ...]]:
    """The records of a file, and what is to be said of its text.

    Args:
        data: the decompressed file.
        path: where it came from, for messages.
        reading: cap on records, time, and whether to salvage.

    Raises:
        InputError: the text is cut or malformed (with byte and line) and not to be salvaged, contradicts itself, or holds too many records.
    """
    deadline = reading.started()
    data = as_utf8(data)
    if len(data) > _LEAST * reading.max_events:
        _cap(max(data.count(b'"ph"'), data.count(b"{") // _BRACKETS), path, reading)
    try:
        file, notes = _sound(data, path, reading)
    except Damaged as damage:
        if not reading.salvage or damage.kind == "shape":
            raise
        file, notes = salvaged(data, path, reading, damage)
    _cap(len(file.events or []), path, reading)
    deadline.check(path)
    return file, notes


def _cap(records: int, path: Path, reading: Reading) -> None:
    if records > reading.max_events:
        raise InputError(f"holds more than {reading.max_events} events; raise --max-events, or record fewer steps", path)


def _sound(data: bytes, path: Path, reading: Reading) -> tuple[File, tuple[Note, ...]]:
    """The records of a text that is whole."""
    notes: tuple[Note, ...] = ()
    if is_bare(data):
        try:
            decoded = _of_list(decode(data, path, Records))
        except Damaged as damage:
            offset, data = len(data), _closed(data, damage)
            try:
                decoded = _of_list(decode(data, path, Records))
            except Damaged:
                raise damage from None
            says = "the list of events has no closing bracket, as some writers leave it; a writer that was killed leaves the same, so events may be missing"
            notes = (Note("list_not_closed", "warning", says, None, offset),)
    else:
        decoded = decode(data, path, File)
    notes += tuple(map(_noted, decoded.repairs))
    text = decoded.better.text if decoded.better else data.removeprefix(BYTE_ORDER_MARK)
    found = conflicts(text, decoded.value)
    if not found:
        return decoded.value, notes
    shift = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
    first = found[0]
    at = (decoded.better.original(first.at) if decoded.better else first.at) + shift
    says = f"the key {first.key!r} stands twice in one object with different values, the second time at byte {at}: nobody can tell which is meant"
    if not reading.salvage or any(c.record is None for c in found):
        further = f" ({len(found)} such objects)" if len(found) > 1 else ""
        raise InputError(f"{says}{further}; export the trace again", path, at)
    gone = {c.record for c in found}
    kept = [e for i, e in enumerate(decoded.value.events or []) if i not in gone]
    decoded.value.events = kept
    says += f". {len(gone)} such records were left out: the result is partial"
    return decoded.value, (*notes, Note("salvaged", "warning", says, len(gone), at))


def _of_list(decoded: Decoded[Records]) -> Decoded[File]:
    return Decoded(File(decoded.value), decoded.repairs, decoded.better)


def _closed(data: bytes, damage: Damaged) -> bytes:
    """A list of events that may lack only its closing bracket, with that bracket."""
    rest = data.rstrip().removesuffix(b",")
    if damage.kind != "truncated" or not rest.rstrip().endswith(b"}"):
        raise damage
    return rest + b"]"


def _noted(repair: Repair) -> Note:
    return Note(repair.what, "warning", said(repair), repair.number, repair.offset)
