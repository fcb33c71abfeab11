"""Which number does this text or value stand for, exactly? Times in ns, and nullable columns of integers.

What is written in a trace may be any JSON: whatever is no number, or does not fit, becomes null and never another number.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

#: The last ns that a time may reach: sums of two still fit int64.
LATEST = 1 << 62


def nanoseconds(texts: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Microseconds as decimal text -> int64 ns, exactly; digits below a nanosecond are rounded half-even.

    Returns the values and a mask of the texts that were plain decimals in range; the others are 0.

    >>> values, usable = nanoseconds([b"5100000123524.376", b"12", b'"1.5"', b"NaN"])
    >>> values.tolist(), usable.tolist()
    ([5100000123524376, 12000, 1500, 0], [True, True, True, False])
    """
    if not texts:
        return np.empty(0, np.int64), np.empty(0, bool)
    values, usable = _plain(texts)
    other = np.flatnonzero(~usable)
    if len(other):
        values[other], usable[other] = _any_form([texts[i] for i in other])
    return values, usable


def _plain(texts: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """All at once, digit by digit from the right: digits alone, at most 16 of them and 3 behind a point, as all profilers write."""
    flat = np.frombuffer(b"\n".join([*texts, b""]).replace(b'"', b""), np.uint8)
    ends = np.flatnonzero(flat == ord("\n"))
    points = np.flatnonzero(flat == ord("."))
    values, usable = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    if len(ends) != len(texts):  # something in several lines is no number
        return values, usable
    digit = (flat - np.uint8(ord("0"))).astype(np.int64)
    odd = np.searchsorted(ends, np.flatnonzero((digit > 9) & (flat != ord(".")) & (flat != ord("\n"))))
    starts, whole_ends = np.concatenate(([0], ends[:-1] + 1)), ends.copy()
    of = np.searchsorted(ends, points)
    whole_ends[of] = points
    length, fraction = whole_ends - starts, np.maximum(ends - whole_ends - 1, 0)
    for place in range(min(int(length.max()), 16)):
        values += np.where(place < length, digit[np.maximum(whole_ends - 1 - place, 0)], 0) * 10**place
    usable = (length > 0) & (length <= 16) & (values < 9 * 10**15) & (fraction <= 3)
    usable[odd], usable[of[1:][np.diff(of) == 0]] = False, False
    values *= 1000
    for place in (1, 2, 3):
        values += np.where(place <= fraction, digit[np.minimum(whole_ends + place, len(flat) - 1)], 0) * 10 ** (3 - place)
    return np.where(usable, values, 0), usable


def _any_form(texts: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The same for texts of any form: signs, more digits, exponents."""
    series = pd.Series([t.strip(b'"').decode("ascii", "replace") for t in texts], dtype="str")
    plain = series.str.fullmatch(r"-?\d{1,15}(?:\.\d*)?|[1-8]\d{15}(?:\.\d*)?").to_numpy(bool, copy=True)
    whole, _, fraction = (c for _, c in series.where(plain, "0").str.partition(".").items())
    padded = fraction.str.pad(3, side="right", fillchar="0")
    sign = np.where(whole.str.startswith("-").to_numpy(bool), -1, 1)
    magnitude = whole.str.lstrip("-").to_numpy().astype(np.int64) * 1000 + padded.str.slice(0, 3).to_numpy().astype(np.int64)
    rest = padded.str.slice(3).to_numpy()
    if any(rest):
        magnitude += np.fromiter((_round_up(r, odd) for r, odd in zip(rest, magnitude & 1, strict=True)), np.int64, len(texts))
    values = sign * magnitude
    for i in np.flatnonzero(~plain):  # rare: an exponent, or no number at all
        value = _unusual(series.iloc[i])
        if value is not None:
            values[i], plain[i] = value, True
    return values, plain


def _unusual(text: str) -> int | None:
    """Nanoseconds of a number that is no plain decimal, such as 5.1e12; None where it is none or out of range."""
    try:
        value = Decimal(text) * 1000
    except InvalidOperation:
        return None
    return int(value.to_integral_value()) if value.is_finite() and abs(value) < 2**62 else None


def _round_up(rest: str, odd: int) -> int:
    """Whether the digits below a nanosecond round up, half to even."""
    if not rest or rest[0] < "5":
        return 0
    return 1 if rest[0] > "5" or rest[1:].strip("0") else int(odd)


def in_range(values: npt.NDArray[np.int64], more: int | npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the sums are times that int64 holds with room to spare."""
    inside: npt.NDArray[np.bool_] = np.abs(values.astype(np.float64) + more) < LATEST
    return inside


def numbers(values: list[int | None], dtype: str) -> pd.arrays.IntegerArray:
    """A nullable column, exact: a list with None would pass through float64. What the type does not hold is null."""
    kind = np.dtype(dtype.lower())
    least, most = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    known = np.fromiter((v is not None and least <= v <= most for v in values), bool, len(values))
    data = np.fromiter((v if k else 0 for v, k in zip(values, known, strict=True)), kind, len(values))
    return pd.arrays.IntegerArray(data, ~known)


def integer(value: Any) -> int | None:
    """A number written as int, float or text that fits int64; None for everything else.

    >>> integer("7"), integer(7.9), integer(1e300), integer([7])
    (7, 7, None, None)
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def natural(value: Any) -> int | None:
    """As :func:`integer`, None below 0."""
    number = integer(value)
    return None if number is None or number < 0 else number


def below(number: int | None, limit: int) -> int | None:
    """The number where it is below a limit."""
    return number if number is not None and number < limit else None
