"""What the Kineto reader takes from a file, to the nanosecond, and how it refuses what it cannot read."""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import document, kernel, memory, op, read
from tracekit import readers
from tracekit.errors import InputError
from tracekit.readers import kineto
from tracekit.vocabulary import Kind


def test_times_are_exact_where_a_float_would_lose_nanoseconds() -> None:
    trace = kineto.read(
        b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 5100000123524.377, "dur": 0.001}]}',
        Path("t.json"),
    )
    assert trace.events[["ts", "dur"]].to_numpy().tolist() == [[1790857026000000000 + 5100000123524377, 1]]


@given(st.decimals(min_value=0, max_value=10**14, places=3, allow_nan=False))
def test_decimal_text_becomes_nanoseconds(value: Decimal) -> None:
    got, usable = kineto.nanoseconds([str(value).encode()])
    assert usable.all() and got[0] == int(value * 1000)


@given(st.integers(0, 10**9), st.text("0123456789", min_size=4, max_size=12))
def test_digits_below_a_nanosecond_round_half_to_even(whole: int, fraction: str) -> None:
    got, _ = kineto.nanoseconds([f"{whole}.{fraction}".encode()])
    assert got[0] == int((Decimal(f"{whole}.{fraction}") * 1000).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize(
    ("text", "ns"), [(b"1632843000000001", 1632843000000001000), (b"5.1e3", 5_100_000), (b'"7"', 7000), (b"-2.5", -2500), (b"1e400", None), (b"NaN", None)]
)
def test_numbers_of_every_form(text: bytes, ns: int | None) -> None:
    values, usable = kineto.nanoseconds([text])
    assert (values[0] if usable[0] else None) == ns


def test_categories_become_kinds_and_devices() -> None:
    trace = read(
        [op("aten::mm", 0, 1), kernel("gemm", 5, 9, 1, device=3, stream=20), kernel("Memcpy DtoH", 9, 10, 2, cat="gpu_memcpy"), op("x", 0, 1, cat="overhead")]
    )
    rows = trace.events[["name", "kind", "device", "stream"]].astype(object).values.tolist()
    assert sorted((n, k) for n, k, *_ in rows) == [("Memcpy DtoH", Kind.MEMCPY), ("aten::mm", Kind.OPERATOR), ("gemm", Kind.COMPUTE), ("x", Kind.OTHER)]
    assert [(d, s) for n, _, d, s in rows if n == "gemm"] == [(3, 20)]


def test_the_size_of_a_nccl_call_is_the_larger_side() -> None:
    meta = {
        "Collective name": "_allgather_base",
        "In msg nelems": 10,
        "Out msg nelems": 40,
        "dtype": "BFloat16",
        "Process Group Ranks": "[0, 1, 2, 3]",
        "Seq": 7,
    }
    row = read([kernel("ncclDevKernel_AllGather", 0, 1, 1, **meta)]).events.iloc[0]
    assert (row["nbytes"], row["group_ranks"], row["seq"]) == (80, "0,1,2,3", 7)


def test_a_cut_list_of_ranks_is_unknown_and_not_a_shorter_list() -> None:
    assert read([kernel("n", 0, 1, 1, **{"Process Group Ranks": "[0, 1, ...]"})]).events["group_ranks"].isna().all()


def test_memory_events_become_samples_in_order_of_time() -> None:
    samples = read([op("a", 0, 9), memory(5, -64, 0, 1), memory(2, 64, 64, 1)]).samples
    assert samples[["ts", "nbytes", "allocated"]].values.tolist() == [[2000, 64, 64], [5000, -64, 0]]


def test_records_without_a_usable_time_are_counted_not_used() -> None:
    text = b'{"traceEvents": [{"ph":"X","name":"a","ts":1,"dur":2},{"ph":"X","name":"b","ts":1,"dur":NaN},{"ph":"X","name":"c","ts":1}]}'
    trace = kineto.read(text.replace(b"NaN", b'"NaN"'), Path("t.json"))
    assert trace.events["name"].tolist() == ["a"]
    assert [(f["code"], f["count"]) for f in trace.findings] == [("records_dropped", 2)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (json.dumps(document([op("a", 0, 1)])).encode()[:-20], "truncated"),
        (b'{"traceEvents": []}', "0 events"),
        (b'{"traceEvents": [{"ph": "X", oops}]}', "byte 29"),
        (b"hello", "not a trace I know"),
        (b"", "empty"),
        (gzip.compress(json.dumps(document([op("a", 0, 1)])).encode())[:-12], "ends early"),
        (b"\x1f\x8b\x08\x00 and then rubbish", "gzip"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line_with_the_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        readers.read(path)
    message = str(refusal.value)
    assert says in message and str(path) in message and "\n" not in message and refusal.value.exit_code == 4
