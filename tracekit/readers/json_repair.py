"""What in a JSON text is against the rules but leaves no doubt about what was meant? It is put right, and counted.

Nothing is guessed: a raw control character in a string is that character, a byte that is no UTF-8 is a character nobody
can know (U+FFFD), a backslash that begins no escape is a backslash (as in ``C:\\path``), NaN and infinity are no number,
and a comma after the last element separates nothing. What opens or ends a string wrongly is never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.columns import Mask, Rows

Bytes = npt.NDArray[np.uint8]

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_ESCAPES = np.frombuffer(b'"\\/bfnrtu', np.uint8)
_HEX = np.full(256, -1, np.int64)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_HEX[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
#: What stands where a number should and is none: of C, of Python and JavaScript, Kineto's ``N/A``, and numbers past every float,
#: or longer than Python turns into an integer.
_NO_NUMBER = re.compile(rb"(?:[-+]?(?:nan|inf(?:inity)?|n/a)|-?\d[\d.]*e\+?\d{3,}|-?\d{400,})(?=[\s,}\]])", re.IGNORECASE)
#: Most digits in a row that are read as a number.
_LONGEST = 399
_BEFORE_NUMBER = np.zeros(256, bool)
_BEFORE_NUMBER[np.frombuffer(b" \t\r\n:,[+-", np.uint8)] = True
_DIGIT = np.zeros(256, bool)
_DIGIT[np.frombuffer(b"0123456789", np.uint8)] = True
_LAST_COMMA = re.compile(rb",(?=\s*[\]}])")


class Repair(NamedTuple):
    """One kind of repair: what it is called, the byte of the first (in the text as it was), and how many there were."""

    what: str
    offset: int
    number: int


@dataclass(frozen=True)
class Repaired:
    """A text that was put right.

    Attributes:
        text: as it is now.
        repairs: what was done, one row per kind.
        inserted: bytes of the text as it was in front of which a byte was put in, ascending.
    """

    text: bytes
    repairs: tuple[Repair, ...]
    inserted: Rows

    def original(self, offset: int) -> int:
        """Where a byte of the text as it is now stood before."""
        put_in = self.inserted + np.arange(len(self.inserted))
        return offset - int(np.searchsorted(put_in, offset, "left"))


class Strings(NamedTuple):
    """Where the strings of a text are.

    Attributes:
        escapes: backslashes that begin an escape.
        quotes: quotes that open or close a string, alternately.
    """

    escapes: Rows
    quotes: Rows

    def inside(self, at: Rows) -> Mask:
        """Whether bytes (quotes excepted) stand inside a string."""
        out: Mask = np.searchsorted(self.quotes, at) % 2 == 1
        return out


def strings(text: Bytes) -> Strings:
    """Escapes and quotes of a text, as far as its first stray quote."""
    slashes = np.flatnonzero(text == _BACKSLASH)
    first = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)  # of each run of backslashes
    place = np.arange(len(slashes)) - np.repeat(first, np.diff(first, append=len(slashes)))
    escapes = slashes[place % 2 == 0]
    quotes = np.flatnonzero(text == _QUOTE)
    after_slash = np.flatnonzero((quotes > 0) & (text[np.maximum(quotes - 1, 0)] == _BACKSLASH))
    return Strings(escapes, np.delete(quotes, after_slash[np.isin(quotes[after_slash] - 1, escapes, kind="sort")]))


def depths(text: Bytes) -> tuple[Rows, Rows]:
    """Bytes of the brackets outside strings, and how many are open after each."""
    brackets = np.flatnonzero((text == ord("{")) | (text == ord("}")) | (text == ord("[")) | (text == ord("]")))
    brackets = brackets[~strings(text).inside(brackets)]
    opens = (text[brackets] == ord("{")) | (text[brackets] == ord("["))
    return brackets, np.cumsum(np.where(opens, 1, -1))


def repaired(data: bytes | memoryview) -> Repaired | None:
    """The text put right; None where there is nothing to do.

    Only what stands before the first stray quote is judged rightly: behind one, inside and outside of strings change
    places. Such a text is refused afterwards, or read by pieces that begin anew.

    >>> repaired(b'{"name": "C:\\\\path", "dur": NaN}').text
    b'{"name": "C:\\\\\\\\path", "dur": "" }'
    """
    text = np.frombuffer(data, np.uint8)
    found = strings(text)
    changes = [_controls(text, found), _not_utf8(text, found), *_escapes(text, found), *_outside(data, found)]
    done = tuple(Repair(c.what, int(c.at[0]), len(c.at)) for c in changes if len(c.at))
    if not done:
        return None
    out = text.copy()
    for change in changes:
        out[change.write_at] = change.write
    # what is put behind a byte comes before what is put in front of the next one: escapes are the last that put in
    put_at, put = np.concatenate([c.put_at for c in changes]), np.concatenate([c.put for c in changes])
    order = np.argsort(put_at, kind="stable")
    put_at = put_at[order]
    return Repaired(np.insert(out, put_at, put[order]).tobytes(), done, put_at)


class _Change(NamedTuple):
    """Where something is put right (``at``), which bytes are overwritten, and which put in before which byte."""

    what: str
    at: Rows
    write_at: Rows
    write: Bytes
    put_at: Rows
    put: Bytes


_NOWHERE = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.uint8)


def _controls(text: Bytes, found: Strings) -> _Change:
    """Control characters inside strings: written out as ``\\u00XX``."""
    at = np.flatnonzero(text < 0x20)
    at = at[found.inside(at)]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    put = np.empty((len(at), 5), np.uint8)
    put[:, :3] = np.frombuffer(b"u00", np.uint8)
    put[:, 3], put[:, 4] = digits[text[at] >> 4], digits[text[at] & 15]
    return _Change("control_characters", at, at, np.full(len(at), _BACKSLASH, np.uint8), np.repeat(at + 1, 5), put.ravel())


def _not_utf8(text: Bytes, found: Strings) -> _Change:
    """Bytes inside strings that belong to no UTF-8 character: U+FFFD."""
    high = np.flatnonzero(text >= 0x80)
    high = high[found.inside(high)]
    padded = np.concatenate((text, np.zeros(3, np.uint8)))
    lead, second = padded[high], padded[high + 1]
    least, most = np.full(len(high), 0x80, np.uint8), np.full(len(high), 0xBF, np.uint8)
    # no over-long forms, no surrogates, nothing past U+10FFFF (RFC 3629, section 4)
    least[lead == 0xE0], least[lead == 0xF0], most[lead == 0xED], most[lead == 0xF4] = 0xA0, 0x90, 0x9F, 0x8F
    length = np.select([(lead >= 0xC2) & (lead <= 0xDF), (lead >= 0xE0) & (lead <= 0xEF), (lead >= 0xF0) & (lead <= 0xF4)], [2, 3, 4], 0)
    length[(second < least) | (second > most)] = 0
    for further in (2, 3):
        length[(length > further) & (padded[high + further] & 0xC0 != 0x80)] = 0
    sound = np.zeros(len(padded), bool)
    for place in range(4):
        sound[high[length > place] + place] = True
    at = high[~sound[high]]
    put = np.tile(np.frombuffer(b"\xbf\xbd", np.uint8), len(at))
    return _Change("not_utf8", at, at, np.full(len(at), 0xEF, np.uint8), np.repeat(at + 1, 2), put)


def _escapes(text: Bytes, found: Strings) -> tuple[_Change, _Change]:
    """Backslashes inside strings that begin no escape, kept as they are; halves of a surrogate pair: U+FFFD."""
    at = found.escapes[found.inside(found.escapes)]
    padded = np.concatenate((text, np.zeros(6, np.uint8)))
    sound = np.isin(padded[at + 1], _ESCAPES)
    long = padded[at + 1] == ord("u")
    digits = np.stack([_HEX[padded[at + place]] for place in range(2, 6)])
    sound &= ~long | (digits >= 0).all(axis=0)
    code = np.where(sound & long, digits[0] << 12 | digits[1] << 8 | digits[2] << 4 | digits[3], 0)
    high, low = (code >= 0xD800) & (code < 0xDC00), (code >= 0xDC00) & (code < 0xE000)
    pair = np.flatnonzero(high[:-1] & low[1:] & (np.diff(at) == 6))
    lone = high | low
    lone[pair], lone[pair + 1] = False, False
    halves = at[lone]
    unknown = np.tile(np.frombuffer(b"fffd", np.uint8), len(halves))
    broken = at[~sound]
    return (
        _Change("escapes", broken, _NOWHERE, _NO_BYTES, broken, np.full(len(broken), _BACKSLASH, np.uint8)),
        _Change("surrogates", halves, (halves[:, None] + np.arange(2, 6)).ravel(), unknown, _NOWHERE, _NO_BYTES),
    )


def _outside(data: bytes | memoryview, found: Strings) -> tuple[_Change, _Change]:
    """Between strings: what stands for a number and is none becomes ``""``, which no number is read from; last commas go."""
    spans = [m.span() for start in _odd_numbers(data, found) if (m := _NO_NUMBER.match(data, start))]
    at, end = np.array(spans, np.int64).reshape(-1, 2).T
    length = end - at
    where = np.repeat(at, length) + np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    place = where - np.repeat(at, length)
    commas = np.array([m.start() for m in _LAST_COMMA.finditer(data)], np.int64)
    commas = commas[~found.inside(commas)]
    return (
        _Change("no_numbers", at, where, np.where(place < 2, _QUOTE, ord(" ")).astype(np.uint8), _NOWHERE, _NO_BYTES),
        _Change("last_commas", commas, commas, np.full(len(commas), ord(" "), np.uint8), _NOWHERE, _NO_BYTES),
    )


def _odd_numbers(data: bytes | memoryview, found: Strings) -> list[int]:
    """Where, between strings, something begins that may be no number: a word in n or i, a number with a large exponent or of very many digits."""
    text = np.frombuffer(data, np.uint8)
    padded = np.concatenate((np.full(2, ord(" "), np.uint8), text, np.zeros(4, np.uint8)))
    small = text | 0x20
    words = np.flatnonzero(((small == ord("n")) | (small == ord("i"))) & _BEFORE_NUMBER[padded[1:-5]])
    words = words[~found.inside(words)]
    signed = np.isin(padded[words + 1], np.frombuffer(b"+-", np.uint8))
    powers = np.flatnonzero((small == ord("e")) & (_DIGIT[padded[1:-5]] | (padded[1:-5] == ord("."))))
    powers = powers[~found.inside(powers)]
    digits = powers + 3 + (padded[powers + 3] == ord("+"))
    powers = powers[_DIGIT[padded[digits]] & _DIGIT[padded[digits + 1]] & _DIGIT[padded[np.minimum(digits + 2, len(padded) - 1)]]]
    breaks = np.concatenate(([-1], np.flatnonzero(~_DIGIT[text]), [len(text)]))
    long = breaks[np.flatnonzero(np.diff(breaks) > _LONGEST)] + 1
    long = long[~found.inside(long)]
    return sorted({*(words - signed).tolist(), *(_number_start(data, p) for p in (*powers.tolist(), *long.tolist()))})


def _number_start(data: bytes | memoryview, at: int) -> int:
    while at and data[at - 1] in b"0123456789.-":
        at -= 1
    return at


__all__ = ["Bytes", "Repair", "Repaired", "Strings", "depths", "repaired", "strings"]
