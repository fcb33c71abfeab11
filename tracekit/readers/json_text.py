"""What does this JSON text hold, or where is it damaged? Bytes -> objects, with every repair named and every refusal placed.

The text is decoded as it stands. Only if that fails is it looked at byte by byte: what leaves no doubt is put right
(``json_repair``) and counted, anything else is refused with the byte and the line. Places are those of the decompressed
file, its byte order mark included.
"""

from __future__ import annotations

import codecs
import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from tracekit.errors import InputError
from tracekit.readers.json_repair import Repair, Repaired, depths, repaired

T = TypeVar("T")

#: What Windows puts in front of a text.
BYTE_ORDER_MARK = codecs.BOM_UTF8
#: Deeper than any profiler writes; asked only where the decoder gave up.
_TOO_DEEP = 256
#: What a text that is cut may end with: a number that lacks its digits.
_CUT_NUMBER = re.compile(rb"[-+.eE\d]*\s*$")
_SAYS = {
    "control_characters": "control characters stand raw in names or other texts, and were kept",
    "not_utf8": "bytes in names or other texts are not UTF-8, and show as \ufffd",
    "escapes": "backslashes in names or other texts begin no escape (as in a Windows path), and were kept",
    "surrogates": "characters in names or other texts are cut in half, and show as \ufffd",
    "no_numbers": "numbers are NaN, infinite or none, and count as absent",
    "last_commas": "commas stand after the last element of a list or object, and were passed over",
}


class Damaged(InputError):
    """A JSON text that cannot be read as it is.

    Attributes:
        kind: truncated, extra (something follows a whole document), deep, shape, or malformed.
    """

    def __init__(self, message: str, path: str | Path | None = None, offset: int | None = None, kind: str = "malformed") -> None:
        super().__init__(message, path, offset)
        self.kind = kind


class Fault(NamedTuple):
    """Why and where a decoder gave up, in the text that it was given."""

    kind: str
    at: int
    says: str = ""


class Decoded(NamedTuple, Generic[T]):
    """What a JSON text holds.

    Attributes:
        value: its objects.
        repairs: what had to be put right, at bytes of the text as it was given.
        better: the text put right; None where it was sound.
    """

    value: T
    repairs: tuple[Repair, ...] = ()
    better: Repaired | None = None


def decode(data: bytes, path: Path, type: type[T]) -> Decoded[T]:
    """The objects that a JSON text holds, and what had to be put right.

    Args:
        data: UTF-8, with or without a byte order mark.
        path: where it came from, for messages.
        type: what msgspec shall make of it.

    Raises:
        Damaged: the text is cut, malformed, nested too deeply, or followed by something else.
    """
    skipped = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
    text = memoryview(data)[skipped:]
    with collection_paused():
        try:
            return Decoded(msgspec.json.decode(text, type=type))
        except (msgspec.DecodeError, RecursionError) as error:
            fault = fault_of(error, text)
        better = repaired(text) if may_help(fault) else None
        if better is not None:
            try:
                return Decoded(msgspec.json.decode(better.text, type=type), _moved(better.repairs, skipped), better)
            except (msgspec.DecodeError, RecursionError) as error:
                fault = _original(fault_of(error, better.text), better)
    raise _refusal(fault, data, skipped, path)


def as_utf8(data: bytes) -> bytes:
    """The text as UTF-8 where a byte order mark says that it is UTF-16 (PowerShell re-saves files so); else as it is.

    >>> as_utf8("{}".encode("utf-16"))
    b'{}'
    """
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data
    return data.decode("utf-16", "replace").encode("utf-8", "replace")


@contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: with millions of small objects and no cycles it doubles the time of decoding."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def fault_of(error: Exception, text: bytes | memoryview) -> Fault:
    """Where and why msgspec gave up."""
    if isinstance(error, RecursionError):
        brackets, open_ones = depths(np.frombuffer(text, np.uint8))
        deep = np.flatnonzero(open_ones > _TOO_DEEP)
        return Fault("deep", int(brackets[deep[0]]) if len(deep) else 0)
    says = str(error)
    if isinstance(error, msgspec.ValidationError):
        return Fault("malformed" if "out of range" in says else "shape", 0, says)
    found = re.search(r"byte (\d+)", says)
    if found is None:
        return Fault("malformed", 0, "not UTF-8") if "UTF-8" in says else Fault("truncated", len(text))
    at = int(found[1])
    if "trailing characters" in says:
        at = next((i for i in range(at - 1, len(text)) if text[i] not in b" \t\r\n"), at)
        return Fault("extra", at)
    if at >= len(text) - len(_CUT_NUMBER.search(bytes(text[-64:]))[0]):  # type: ignore[index]
        return Fault("truncated", len(text))
    return Fault("malformed", at, says.removeprefix("JSON is malformed: ").partition(" (byte")[0])


def may_help(fault: Fault) -> bool:
    """Whether a repair may be needed at the fault: not where all was well until a mark was missing.

    What is called truncated may be a half character.
    """
    return fault.kind == "truncated" or (fault.kind == "malformed" and not fault.says.startswith("expected"))


def line_of(data: bytes, at: int) -> int:
    """Number of the line, from 1, in which a byte stands."""
    return data.count(b"\n", 0, at) + 1


def said(repair: Repair) -> str:
    """A repair in words."""
    return f"{_SAYS[repair.what]}: {repair.number}, the first at byte {repair.offset}"


def _original(fault: Fault, better: Repaired) -> Fault:
    return fault._replace(at=better.original(fault.at))


def _moved(repairs: tuple[Repair, ...], by: int) -> tuple[Repair, ...]:
    return tuple(r._replace(offset=r.offset + by) for r in repairs)


def _refusal(fault: Fault, data: bytes, skipped: int, path: Path) -> Damaged:
    at = fault.at + skipped
    where = f"at byte {at}, line {line_of(data, at)}"
    if fault.kind == "truncated":
        says = f"truncated: the JSON ends early {where}; was the job killed while it wrote? Copy or record it again, or read what is whole with --salvage"
    elif fault.kind == "extra":
        another = data[at : at + 1] in (b"{", b"[")
        says = f"extra data {where}, after a whole document; " + (
            "did several ranks or runs export to the same path? Let each write a file of its own" if another else "export the trace again"
        )
    elif fault.kind == "deep":
        says = f"nested too deeply {where}, deeper than any trace; record or export the trace again"
    elif fault.kind == "shape":
        says = f"not the shape of a trace ({fault.says}); record or export the trace again"
    else:
        hint = ": a quote inside a name or text is not escaped" if fault.says.startswith("expected ','") and _after_quote(data, at) else ""
        says = f"not valid JSON {where} ({fault.says}{hint}); export the trace again, or read the records around it with --salvage"
    return Damaged(says, path, None if fault.kind == "shape" else at, fault.kind)


def _after_quote(data: bytes, at: int) -> bool:
    """Whether a text has just ended and no comma, colon or bracket follows it."""
    before: Any = data[max(at - 64, 0) : at].rstrip()
    return before.endswith(b'"') and data[at : at + 1] not in (b",", b":", b"}", b"]", b"")
