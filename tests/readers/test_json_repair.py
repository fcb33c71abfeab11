"""What is put right in a JSON text, byte for byte, and that it agrees with going through the text one character at a time."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.readers.json_repair import Repair, depths, repaired, strings

#: What tells the inside of texts from their outside, and what may stand in either.
PIECES = st.lists(st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b"a", b"u12", b",", b":", b"\n", b"\x01", b"\xff", b"\xc3\xa9"]), max_size=40).map(
    b"".join
)


def one_by_one(text: bytes) -> tuple[list[int], list[int], list[int]]:
    """Escapes, quotes and brackets outside of texts, found by walking."""
    escapes, quotes, brackets, inside, at = [], [], [], False, 0
    while at < len(text):
        if text[at : at + 1] == b"\\":
            escapes.append(at)
            at += text[at + 1 : at + 2] in (b"\\", b'"')
        elif text[at : at + 1] == b'"':
            quotes.append(at)
            inside = not inside
        elif text[at : at + 1] in (b"{", b"}", b"[", b"]") and not inside:
            brackets.append(at)
        at += 1
    return escapes, quotes, brackets


@given(PIECES)
def test_texts_are_found_as_by_walking(text: bytes) -> None:
    view = np.frombuffer(text, np.uint8)
    found, (brackets, _) = strings(view), depths(view)
    assert (found.escapes.tolist(), found.quotes.tolist(), brackets.tolist()) == one_by_one(text)


@pytest.mark.parametrize(
    ("text", "better", "repairs"),
    [
        (b'["a\x01b\n"]', ["a\x01b\n"], [("control_characters", 3, 2)]),
        (b'["C:\\path\\q"]', ["C:\\path\\q"], [("escapes", 4, 2)]),
        (b'["\\u12", "\\uZZZZ"]', ["\\u12", "\\uZZZZ"], [("escapes", 2, 2)]),
        (b'["caf\xe9"]', ["caf\ufffd"], [("not_utf8", 5, 1)]),
        (b'["\\ud83d", "\\ud83d\\ude00"]', ["\ufffd", "\U0001f600"], [("surrogates", 2, 1)]),
        (b"[NaN, -Infinity, inf, -nan, N/A, 1e400]", [""] * 6, [("no_numbers", 1, 6)]),
        (b"[" + b"9" * 5000 + b", -" + b"1" * 400 + b", 0." + b"3" * 500 + b"]", ["", "", 1 / 3], [("no_numbers", 1, 2)]),
        (b"[1, {},]", [1, {}], [("last_commas", 6, 1)]),
        (b'["\\\x01"]', ["\\\x01"], [("escapes", 2, 1), ("control_characters", 3, 1)]),
        (b'["\x01\\p"]', ["\x01\\p"], [("control_characters", 2, 1), ("escapes", 3, 1)]),
    ],
)
def test_what_was_meant_is_kept(text: bytes, better: list[object], repairs: list[tuple[str, int, int]]) -> None:
    got = repaired(text)
    assert got is not None
    assert json.loads(got.text) == better
    assert sorted(got.repairs, key=lambda r: r.offset) == [Repair(*r) for r in repairs]


@pytest.mark.parametrize("text", [b"", b'["a\\\\", "\\"", "\\u00e9", "\xc3\xa9", "NaN, inf,]"]', b"[1e10, -2.5E+3, null, true]", b'{"nan": 1}'])
def test_sound_text_is_left_alone(text: bytes) -> None:
    assert repaired(text) is None


@given(st.binary(max_size=12).filter(lambda b: not set(b) & {0x22, 0x5C}))
def test_bytes_that_are_no_characters_are_those_that_python_finds(body: bytes) -> None:
    text = b'["' + body + b'"]'
    got = repaired(text)
    meant = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in body.decode("utf-8", "surrogateescape"))
    assert json.loads(got.text if got else text) == [meant]


#: Characters of a name as some writer may put them into a text without further thought, and what each means.
CHARACTERS = {
    b"a": "a",
    b"\x07": "\x07",
    b"\n": "\n",
    b"\\p": "\\p",
    b"\\u0": "\\u0",
    b"\\n": "\n",
    b"\\\\": "\\",
    b'\\"': '"',
    b"\xff": "\ufffd",
    b"\xe2\x82": "\ufffd\ufffd",
    "\u20ac".encode(): "\u20ac",
    b"\\udc00": "\ufffd",
    b"\\ud83d\\ude00": "\U0001f600",
}


@given(st.lists(st.lists(st.sampled_from(sorted(CHARACTERS)), max_size=6), min_size=1, max_size=4))
def test_names_of_any_make_are_read_as_they_were_meant(names: list[list[bytes]]) -> None:
    # a high half directly in front of a low half would be a pair
    text = b"[" + b", ".join(b'"' + b"-".join(name) + b'"' for name in names) + b"]"
    got = repaired(text)
    assert json.loads(got.text if got else text) == ["-".join(CHARACTERS[c] for c in name) for name in names]


@given(st.lists(st.sampled_from(["1", "-2.5", "NaN", "-Infinity", "inf", "N/A", "1e999", "1e3"]), min_size=1, max_size=6))
def test_what_is_no_number_is_nothing(written: list[str]) -> None:
    text = ("[" + ", ".join(written) + "]").encode()
    got = repaired(text)
    values = json.loads(got.text if got else text)
    assert [v == "" for v in values] == [w == "N/A" or not math.isfinite(float(w)) for w in written]


@given(PIECES)
def test_every_byte_of_the_better_text_knows_where_it_was(text: bytes) -> None:
    got = repaired(text)
    if got is not None:
        places = [got.original(at) for at in range(len(got.text))]
        assert places == sorted(places) and {p for p in places if p < len(text)} == set(range(len(text)))
