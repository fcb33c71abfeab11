"""Which JSON objects does a file of one object per line hold? Whole lines only; numbers with a point stay decimal text.

Also read: a list with one object per line (commas behind them, brackets around), as NCCL's example plugin writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec

from tracekit.errors import InputError
from tracekit.numbers import LATEST
from tracekit.reading import Reading
from tracekit.trace import RankTrace

_EVERY = 1 << 14


@dataclass
class Damage:
    """Lines that are no whole object: the last one, and others."""

    cut: int | None = None
    lines: list[int] = field(default_factory=list)

    def told(self, trace: RankTrace, path: Path) -> RankTrace:
        """The trace with a finding for what could not be read."""
        if self.cut is not None:
            trace = trace.with_finding(
                "last_line_cut", "warning", "the last line is cut off and was left out", file=str(path), offset=self.cut, count=1, rank=None
            )
        if self.lines:
            says = f"{len(self.lines)} lines are no JSON objects and were left out"
            trace = trace.with_finding("lines_unreadable", "warning", says, file=str(path), offset=self.lines[0], count=len(self.lines), rank=None)
        return trace


def objects(data: bytes, path: Path, reading: Reading, damage: Damage) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects, each with the byte at which it begins; ``damage`` is filled in passing.

    Raises:
        InputError: more lines than ``reading.max_events``, or more time than ``reading.max_seconds``.
    """
    clock, at, number = reading.started(), 0, 0
    decoder = msgspec.json.Decoder(float_hook=Decimal)
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at:end].strip().strip(b"\x00").rstrip(b",")
        if line.startswith(b"[{"):
            line = line[1:]
        if line and line not in (b"[", b"]", b"{}]", b"{}"):
            if number % _EVERY == 0:
                clock.check(path)
            if number >= reading.max_events:
                raise InputError(f"more than {reading.max_events} records; raise --max-events, or cut the file into parts", path, at)
            number += 1
            try:
                decoded = decoder.decode(line.removesuffix(b"]") if line.endswith(b"}]") else line)
            except (msgspec.DecodeError, InvalidOperation, RecursionError, UnicodeDecodeError):
                decoded = None
            if isinstance(decoded, dict):
                yield at, decoded
            elif end >= len(data) - 1:
                damage.cut = at
            else:
                damage.lines.append(at)
        at = end + 1


def microseconds(value: Any) -> int | None:
    """A time in µs as ns, exactly; None where it is no number, not above 0, or out of range.

    >>> microseconds(Decimal("8993953357171.293")), microseconds(0), microseconds("x")
    (8993953357171293, None, None)
    """
    exact = _decimal(value)
    scaled = 0 if exact is None else int((exact * 1000).to_integral_value())
    return scaled if 0 < scaled < LATEST else None


def whole(value: Any) -> int | None:
    """A whole number, not negative, that fits int64; None for everything else, however many digits it has.

    >>> whole(7), whole(Decimal("7.0")), whole(-1), whole(Decimal("1e99999999")), whole("7")
    (7, 7, None, None, None)
    """
    exact = _decimal(value)
    return int(exact) if exact is not None and exact >= 0 else None


def number(value: Any) -> float | None:
    """A number as float; None where it is none."""
    exact = _decimal(value)
    return None if exact is None else float(exact)


def _decimal(value: Any) -> Decimal | None:
    """A number of ordinary size, exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    exact = Decimal(value) if isinstance(value, Decimal) or abs(value) < LATEST else Decimal("NaN")
    # the exponent first: arithmetic on 1e999999999 overflows
    return exact if exact.is_finite() and exact.adjusted() < 19 and exact.copy_abs() < LATEST else None


def part(record: dict[str, Any], name: str) -> dict[str, Any]:
    """An object inside an object; an empty one where there is none."""
    inner = record.get(name)
    return inner if isinstance(inner, dict) else {}


def text(value: Any) -> str | None:
    """A short text as it is; None for everything else."""
    return value if isinstance(value, str) and 0 < len(value) <= 256 else None
