"""Which events are kept of a damaged trace: all that are whole, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import kernel
from tracekit.errors import InputError
from tracekit.readers import kineto, salvage
from tracekit.reading import Reading
from tracekit.trace import RankTrace

SALVAGE = Reading(salvage=True)


def one(number: int, name: str = "k") -> bytes:
    """An event of 10 µs, named by its number."""
    return json.dumps(kernel(f"{name}{number}", 100 * number, 100 * number + 10)).encode()


def joined(events: list[bytes], head: bytes = b'{"distributedInfo": {"rank": 5}, "traceEvents": [', tail: bytes = b"]}") -> bytes:
    return head + b", ".join(events) + tail


def saved(text: bytes) -> RankTrace:
    return kineto.read(text, Path("rank0.json"), SALVAGE)[0]


def names(trace: RankTrace) -> list[str]:
    return sorted(trace.events["name"].astype(str))


def note(trace: RankTrace) -> dict[str, Any]:
    (found,) = [f for f in trace.findings if f["code"] == "salvaged"]
    return dict(found)


@given(st.integers(1, 6), st.data(), st.booleans())
def test_of_a_cut_trace_every_event_before_the_cut_is_kept(count: int, data: st.DataObject, bare: bool) -> None:
    events = [one(n) for n in range(count)]
    text = joined(events, b"[", b"") if bare else joined(events, tail=b"]")
    cut = text[: data.draw(st.integers(text.index(b"}}") + 2, len(text)))]
    whole = [f"k{n}" for n, event in enumerate(events) if text.index(event) + len(event) <= len(cut)]
    trace = saved(cut)
    assert names(trace) == whole and trace.meta.rank == (None if bare else 5)
    if {f["code"] for f in trace.findings} != {"list_not_closed"}:  # nothing is missing but the bracket
        assert (note(trace)["count"], note(trace)["offset"]) == (len(whole), len(cut))


#: What breaks the text of an event: a stray quote, its end or its comma lost, another text in between.
WOUNDS = st.sampled_from([b'"', b'""x', b'"\n"', b"\x00", b"{", b"}", b"]", b'{"a": ', b"@@@"])


@given(st.integers(1, 6), st.data())
def test_of_a_wounded_trace_every_other_event_is_kept(count: int, data: st.DataObject) -> None:
    events = [one(n) for n in range(count + 1)]
    hurt = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
    for n in hurt:
        at = events[n].index(b'"name": "') + len(b'"name": "') + 1
        events[n] = events[n][:at] + b'"' + data.draw(WOUNDS) + events[n][at:]
    trace = saved(joined(events))
    assert names(trace) == [f"k{n}" for n in range(count + 1) if n not in hurt] and trace.meta.rank == 5
    assert "partial" in note(trace)["message"] and "lower bound" in note(trace)["message"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (joined([one(0) + b" " + one(1), one(2)]), ["k0", "k1", "k2"]),
        (joined([one(0), b"rubbish " + one(1)]), ["k0", "k1"]),
        (joined([one(0) + b"]", one(1)]), ["k0", "k1"]),
        (joined([one(0)[:30] + one(1), one(2)]), ["k1", "k2"]),
        (joined([one(0), one(1)], head=b'{"a": oops, "traceEvents": ['), ["k0", "k1"]),
        (joined([one(0), one(1)], tail=b'], "b": oops}'), ["k0", "k1"]),
        (joined([one(0), b'{"ph": "X", "args": ' + b"[" * 5000 + b"]" * 5000 + b"}", one(1)]), ["k0", "k1"]),
        (joined([one(0)]) + joined([one(1)]), ["k0"]),
        (joined([one(0)], b"[", b"]\n") + joined([one(1)], b"[", b"]\n"), ["k0"]),
        (joined([one(0), one(1)[:20]], tail=b"") + joined([one(2)]), ["k0"]),
        (joined([one(0), one(1).replace(b"k1", b'k"1')], b"[", b"]") + joined([one(2)], b"[", b"]"), ["k0"]),
    ],
    ids=[
        "comma lost",
        "text between",
        "bracket too early",
        "overwritten",
        "head",
        "tail",
        "deep",
        "two files",
        "two lists",
        "cut and another file",
        "wound and another list",
    ],
)
def test_damage_of_every_kind(text: bytes, kept: list[str]) -> None:
    with pytest.raises(InputError):
        kineto.read(text, Path("rank0.json"))
    assert names(saved(text)) == kept


def test_what_stands_behind_the_events_is_read_too() -> None:
    text = joined([one(0), one(1).replace(b"k1", b'k"1')], b'{"traceEvents": [', b'], "distributedInfo": {"rank": 7}, "traceName": "x"}')
    assert saved(text).meta.rank == 7


def test_raw_characters_around_the_damage_are_kept_and_counted_once() -> None:
    text = joined([one(0, "a\x07").replace(b"\\u0007", b"\x07"), one(1).replace(b"k1", b'k"1'), one(2, "b\x07").replace(b"\\u0007", b"\x07")])
    trace = saved(text)
    assert names(trace) == ["a\x070", "b\x072"]
    assert [(f["count"], f["offset"]) for f in trace.findings if f["code"] == "control_characters"] == [(2, text.index(b"\x07"))]


def test_windows_cut_no_event_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_SMALL", 100)
    monkeypatch.setattr(salvage, "_LARGE", 300)
    events = [one(n, "long" * (n % 5)) for n in range(100)]
    hurt = [e if n % 7 else e.replace(b"kernel", b'ker"nel') for n, e in enumerate(events)]
    trace = saved(joined(hurt))
    assert len(trace.events) == sum(1 for n in range(100) if n % 7)
    assert f"in {sum(1 for n in range(100) if not n % 7) - 1} more places" in note(trace)["message"]


def test_the_search_for_more_is_given_up_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_PATIENCE", 0)
    monkeypatch.setattr(salvage, "_LEAST_PATIENCE", 100)
    hurt = one(1).replace(b"k1", b'k"1')
    trace = saved(joined([one(0), hurt, hurt, one(2)]))
    assert names(trace) == ["k0"] and "too much damage to search for more" in note(trace)["message"]


@pytest.mark.parametrize("text", [b'{"traceEvents": [{"ph": "X"', b'{"schemaVersion": 1, "tra', b'[{"ph": ', b'{"traceEvents": [oops'])
def test_where_nothing_is_whole_the_refusal_stands(text: bytes) -> None:
    with pytest.raises(InputError, match="byte"):
        saved(text)


def test_records_that_contradict_themselves_are_left_out() -> None:
    twice = one(1).replace(b'"dur": 10', b'"dur": 10, "dur": 11')
    text = joined([one(0), twice, one(2)])
    at = text.index(b'"dur": 11')
    with pytest.raises(InputError, match=f"'dur' stands twice .* at byte {at}"):
        kineto.read(text, Path("rank0.json"))
    assert names(saved(text)) == ["k0", "k2"] and note(saved(text))["count"] == 1
