"""Are pickles read as plain data alone, exactly, and without ever running what they ask for?"""

from __future__ import annotations

import collections
import gzip
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.readers import pickles
from tracekit.reading import DEFAULT, Reading

PATH = Path("dump.pickle")
DUMP = {"version": "2.9", "entries": [{"seq": 1, "group": ("0", "default_pg")}, {"seq": 2, "group": ("0", "default_pg")}]}
SNAPSHOT = {"segments": [{"address": 1 << 46, "pool": (0, 0)}] * 2, "device_traces": [[{"size": 2**k} for k in range(40)]], "ratio": 0.5}
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(), inner, max_size=5) | st.lists(inner, max_size=5).map(tuple),
    max_leaves=30,
)


def load(data: bytes, **caps: Any) -> Any:
    return pickles.load(data, PATH, Reading(**caps)).value


@given(plain, st.integers(3, 5))
@example({"a": "x" * 70_000, "b": 2**70, "c": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4))}, 2)
@settings(max_examples=200)
def test_plain_values_come_back_exactly(value: Any, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol)) == value


def test_half_a_character_is_replaced_for_nothing_can_write_it() -> None:
    assert load(pickle.dumps(["\ud800", "\u00fc"], 4)) == ["\ufffd" * 3, "\u00fc"]


@pytest.mark.parametrize("value", [DUMP, SNAPSHOT])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_both_ways_of_reading_agree(value: Any, protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(value, protocol)
    quick = pickles.load(data, PATH, DEFAULT)
    monkeypatch.setattr(pickles, "_plain_end", lambda *_: None)
    assert pickles.load(data, PATH, DEFAULT) == quick == (value, len(data), None)


class _Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch RAN",)


class _Object:
    pass


@pytest.mark.parametrize(
    ("data", "opcode"),
    [
        (pickle.dumps(_Runs(), 2), "GLOBAL"),
        (pickle.dumps(_Runs(), 4), "STACK_GLOBAL"),
        (pickle.dumps({"entries": [_Runs()]}, 4), "STACK_GLOBAL"),
        (pickle.dumps(_Object(), 2), "GLOBAL"),
        (pickle.dumps(collections.OrderedDict(a=1), 4), "STACK_GLOBAL"),
        (pickle.dumps({1}, 4), "EMPTY_SET"),
        (pickle.dumps(frozenset({1}), 4), "FROZENSET"),
        (pickle.dumps(bytearray(b"x"), 5), "BYTEARRAY8"),
        (b"\x80\x02(ios\nsystem\n.", "INST"),
        (b"\x80\x02(X\x01\x00\x00\x00ao.", "OBJ"),
        (b"\x80\x02}X\x01\x00\x00\x00aR.", "REDUCE"),
        (b"\x80\x02}}b.", "BUILD"),
        (b"\x80\x02})\x81.", "NEWOBJ"),
        (b"\x80\x04})}\x92.", "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x00.", "EXT2"),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x80\x02P1\n.", "PERSID"),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x02]2a.", "DUP"),
    ],
)
def test_everything_but_plain_data_is_refused_by_name_and_byte(data: bytes, opcode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"asks for {opcode} at byte \d+.* nothing in it was run") as refusal:
        load(data)
    at = next(place for op, _, place in pickletools.genops(data) if op.name == opcode)
    assert refusal.value.offset == at and f"at byte {at}," in str(refusal.value) and "\n" not in str(refusal.value)
    assert not (tmp_path / "RAN").exists()


def test_a_few_bytes_that_unfold_without_end_are_refused() -> None:
    bomb: Any = []
    for _ in range(50):
        bomb = [bomb] * 2
    data = pickle.dumps(bomb, 2)
    assert len(data) < 500
    with pytest.raises(InputError, match="unfold to more than"):
        load(data)
    wide: Any = ["x"]
    for _ in range(8):
        wide = [wide] * 100
    with pytest.raises(InputError, match="unfold to more than"):
        load(pickle.dumps({"entries": wide}, 4))


def test_what_holds_itself_is_refused() -> None:
    inside: list[Any] = []
    inside.append(inside)
    table: dict[str, Any] = {}
    table["entries"] = [table]
    for value in (inside, table):
        for protocol in (2, 4):
            with pytest.raises(InputError, match="inside itself"):
                load(pickle.dumps(value, protocol))


def test_deep_nesting_is_refused() -> None:
    deep = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    with pytest.raises(InputError, match="64 deep"):
        load(deep)
    keys = b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."
    with pytest.raises(InputError, match="does not fit"):
        load(keys)


def test_memo_places_that_were_never_written_cost_nothing() -> None:
    assert load(b"\x80\x02]r\xff\xff\xff\xff.") == []
    with pytest.raises(InputError, match="refers to value 7, which was not written") as refusal:
        load(b"\x80\x02]h\x07a.")
    assert refusal.value.offset == 3


@pytest.mark.parametrize("value", [DUMP, SNAPSHOT])
@pytest.mark.parametrize("protocol", [2, 4])
def test_every_cut_says_where(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    for end in range(2, len(data)):
        with pytest.raises(InputError, match=rf"cut pickle: it ends at byte {end}|not a pickle") as refusal:
            load(data[:end])
        assert refusal.value.offset is not None and refusal.value.offset <= end


@pytest.mark.parametrize("protocol", [2, 4])
def test_salvage_gives_the_whole_records_before_every_cut(protocol: int) -> None:
    value = {"version": "2.9", "entries": [{"seq": k, "ranks": [0, 1], "frames": [{"line": k}]} for k in range(5)]}
    data = pickle.dumps(value, protocol)
    counts = []
    for end in range(5, len(data)):
        got = pickles.load(data[:end], PATH, Reading(salvage=True)) if end > 15 else None
        if got is None or not isinstance(got.value, dict):
            continue
        assert got.cut is not None and got.cut <= end
        entries = got.value.get("entries", [])
        assert entries == value["entries"][: len(entries)]
        counts.append(len(entries))
    assert counts == sorted(counts) and counts[-1] == 5 and set(counts) == set(range(6))


def test_salvage_runs_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="asks for"):
        load(pickle.dumps([1, _Runs()], 2), salvage=True)
    assert not (tmp_path / "RAN").exists()


def test_caps_hold() -> None:
    with pytest.raises(InputError, match="more than 10 containers and texts"):
        load(pickle.dumps([[] for _ in range(2 << 20)], 4), max_events=10)
    with pytest.raises(InputError, match="longer than 0 s"):
        load(pickle.dumps(DUMP), max_seconds=0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"not a pickle", b"\x80\x06.", b"(lp0\n."])
def test_other_bytes_are_no_pickle(data: bytes) -> None:
    assert not pickles.is_pickle(data)
    with pytest.raises(InputError, match="not a pickle of protocol 2 to 5"):
        load(data)


@pytest.mark.parametrize("data", [b"\x80\x02.", b"\x80\x02N(.", b"\x80\x02(\x85e.", b"\x80\x02Na.", b"\x80\x02}(Nu.", b"\x80\x02\xff."])
def test_a_stack_that_does_not_fit_is_damage(data: bytes) -> None:
    with pytest.raises(InputError, match="damaged pickle"):
        load(data)


@given(st.data())
@settings(max_examples=300)
def test_changed_bytes_give_plain_data_or_one_line(data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps(data.draw(st.sampled_from([DUMP, SNAPSHOT])), data.draw(st.sampled_from([2, 4]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(2, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        got = pickles.load(bytes(whole), PATH, Reading(salvage=data.draw(st.booleans())))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(got, pickles.Loaded)


def test_bytes_after_the_end_are_left(shared: Path) -> None:
    data = pickle.dumps(DUMP)
    assert pickles.load(data + b"junk", PATH, DEFAULT).end == len(data)


def test_real_dumps_and_snapshots_come_back_exactly(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [*(shared / "traces" / "nvrx").glob("*/_dump_*"), *(shared / "traces").glob("memsnap_[ns]*/*")]
    assert len(files) > 30
    for quick in (True, False):
        if not quick:
            monkeypatch.setattr(pickles, "_plain_end", lambda *_: None)
        for file in files:
            data = file.read_bytes()
            data = gzip.decompress(data) if file.suffix == ".gz" else data
            assert pickles.load(data, file, DEFAULT) == (pickle.loads(data), len(data), None)
