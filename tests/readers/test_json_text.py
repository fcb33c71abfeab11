"""Where a JSON text is cut, malformed, glued or too deep, in one line with byte and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.readers.json_text import Damaged, as_utf8, decode, line_of

HERE = Path("rank0.json")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=4), c, max_size=3),
    max_leaves=8,
)


def fault(text: bytes) -> tuple[str, int | None, str]:
    """Kind, byte and message of a refusal."""
    with pytest.raises(Damaged) as refusal:
        decode(text, HERE, object)
    assert "\n" not in str(refusal.value) and str(refusal.value).startswith("rank0.json: ")
    return refusal.value.kind, refusal.value.offset, str(refusal.value)


@pytest.mark.parametrize(
    ("text", "kind", "at", "says"),
    [
        (b'{"a": [1, 2', "truncated", 11, "truncated: the JSON ends early at byte 11, line 1"),
        (b"", "truncated", 0, "byte 0"),
        (b'{"a": "f("x")"}', "malformed", 10, "a quote inside a name or text is not escaped"),
        (b'{"a": 1,\n "b": oops}', "malformed", 15, "byte 15, line 2"),
        (b'{"a": 1}\n{"a": 2}', "extra", 9, "extra data at byte 9, line 2, after a whole document; did several ranks or runs export to the same path?"),
        (b'{"a": 1}\x00\x00', "extra", 8, "extra data at byte 8"),
        (b'\xef\xbb\xbf{"a": 1', "truncated", 10, "byte 10"),
        (b"[" * 5000, "deep", 256, "nested too deeply at byte 256"),
        (b'{"a": "x\x01", "b": "y"z"}', "malformed", 20, "byte 20"),
    ],
)
def test_damage_is_placed(text: bytes, kind: str, at: int, says: str) -> None:
    assert fault(text)[:2] == (kind, at) and says in fault(text)[2]


@given(VALUES, st.data())
def test_a_text_cut_anywhere_is_truncated_at_its_end(value: Any, data: st.DataObject) -> None:
    text = json.dumps([value]).encode()
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert fault(cut)[:2] == ("truncated", len(cut))


@given(VALUES, VALUES, st.sampled_from([b"", b" ", b"\n\n"]))
def test_two_texts_in_one_are_told_where_the_second_begins(one: Any, other: Any, between: bytes) -> None:
    first = json.dumps([one]).encode()
    assert fault(first + between + json.dumps({"b": other}).encode())[:2] == ("extra", len(first + between))


@given(VALUES)
def test_sound_text_is_read_as_it_is(value: Any) -> None:
    assert decode(json.dumps([value]).encode(), HERE, object) == ([value], (), None)
    assert decode(as_utf8(json.dumps([value]).encode("utf-16")), HERE, object).value == [value]


def test_lines_count_from_one() -> None:
    assert [line_of(b"a\nb\n", at) for at in (0, 1, 2, 4)] == [1, 1, 2, 3]
