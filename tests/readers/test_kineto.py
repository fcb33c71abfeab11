"""What the Kineto reader takes from a file, to the nanosecond, and how it refuses what it cannot read."""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import document, kernel, memory, op, passed, read, span
from tracekit import readers
from tracekit.errors import InputError
from tracekit.numbers import nanoseconds
from tracekit.readers import kineto
from tracekit.vocabulary import Kind


def test_times_are_exact_where_a_float_would_lose_nanoseconds() -> None:
    trace = kineto.read(
        b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 5100000123524.377, "dur": 0.001}]}',
        Path("t.json"),
    )[0]
    assert trace.events[["ts", "dur"]].to_numpy().tolist() == [[1790857026000000000 + 5100000123524377, 1]]


@given(st.decimals(min_value=0, max_value=10**14, places=3, allow_nan=False))
def test_decimal_text_becomes_nanoseconds(value: Decimal) -> None:
    got, usable = nanoseconds([str(value).encode()])
    assert usable.all() and got[0] == int(value * 1000)


@given(st.integers(0, 10**9), st.text("0123456789", min_size=4, max_size=12))
def test_digits_below_a_nanosecond_round_half_to_even(whole: int, fraction: str) -> None:
    got, _ = nanoseconds([f"{whole}.{fraction}".encode()])
    assert got[0] == int((Decimal(f"{whole}.{fraction}") * 1000).to_integral_value(ROUND_HALF_EVEN))


#: Texts of odd forms, and the nanoseconds that each stands for.
ODD = {
    "1e3": 1_000_000,
    '"1.5"': 1500,
    "0.0005": 0,
    "0.0015": 2,
    "8999999999999999.999": 8_999_999_999_999_999_999,
    "9000000000000000": None,
    "NaN": None,
    "": None,
    ".": None,
    "1.2.3": None,
    "[1,\n2]": None,
}


@given(st.lists(st.from_regex(r"-?[0-9]{1,15}(\.[0-9]{1,6})?", fullmatch=True) | st.sampled_from(sorted(ODD)), max_size=8))
def test_texts_of_all_forms_may_stand_in_one_column(texts: list[str]) -> None:
    values, usable = nanoseconds([t.encode() for t in texts])
    want = [ODD[t] if t in ODD else int((Decimal(t) * 1000).to_integral_value(ROUND_HALF_EVEN)) for t in texts]
    assert [int(v) if ok else None for v, ok in zip(values, usable, strict=True)] == want


@pytest.mark.parametrize(
    ("text", "ns"), [(b"1632843000000001", 1632843000000001000), (b"5.1e3", 5_100_000), (b'"7"', 7000), (b"-2.5", -2500), (b"1e400", None), (b"NaN", None)]
)
def test_numbers_of_every_form(text: bytes, ns: int | None) -> None:
    values, usable = nanoseconds([text])
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
    text = b'[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":2},{"ph":"X","cat":"cpu_op","name":"b","ts":1,"dur":"NaN"},{"ph":"X","name":"c","ts":1}]'
    trace = kineto.read(text, Path("t.json"))[0]
    assert trace.events["name"].tolist() == ["a"]
    assert [(f["code"], f["count"]) for f in trace.findings] == [("records_dropped", 2)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (json.dumps(document([op("a", 0, 1)])).encode()[:-20], "truncated"),
        (b'{"traceEvents": []}', "0 events"),
        (b'{"traceEvents": [{"ph": "X", oops}]}', "byte 29"),
        (b'{"traceEvents": [{"ph": "X"}]}\xff', "byte 30, line 1"),
        (b'{"traceEvents": [{"ph": "X", "pid": ' + b"[" * 10**5 + b"]" * 10**5 + b"}]}", "nested too deeply"),
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


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document([op("a", 0, 1)])).encode())
    assert readers.read(path)[0].events["name"].tolist() == ["a"]


def test_a_thread_may_be_written_in_any_way() -> None:
    odd: list[dict[str, Any]] = [{"pid": {"x": 1}}, {"pid": {"x": 1}}, {"pid": [1], "tid": None}]
    events = [{**op(name, 0, 9), **where} for name, where in zip("abc", odd, strict=True)]
    threads = passed([*events, {**memory(1, 8, 8, 1), "tid": []}]).events.set_index("name")["thread"]
    assert threads["a"] == threads["b"] != threads["c"]


BIG = 10**30


@pytest.mark.parametrize(
    ("event", "column"),
    [
        (op("c10d::allreduce_", 0, 1, **{"Input Dims": [[2**40, 2**40]], "Input type": ["float"]}), "nbytes"),
        (op("c10d::allreduce_", 0, 1, **{"Input Dims": {"a": 1}, "Input type": 7, "Concrete Inputs": {}}), "nbytes"),
        (kernel("ncclKernel", 0, 1, 1, **{"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 2**62}), "nbytes"),
        (op("a", 0, 1, **{"Sequence number": 1e300}), "sequence"),
        (op("a", 0, 1, **{"External id": BIG}), "external_id"),
        (kernel("gemm", 0, 1, device=BIG), "device"),
        (kernel("gemm", 0, 1, device=2**40), "device"),
        (kernel("gemm", 0, 1, stream=BIG), "stream"),
        (span(f"ProfilerStep#{BIG}", 0, 1), "step"),
        (span(f"PP:{BIG}F0", 0, 1), "stage"),
        (span(f"Forward {BIG}", 0, 1), "microbatch"),
    ],
)
def test_a_number_that_no_column_holds_is_unknown(event: dict[str, Any], column: str) -> None:
    assert passed([event]).events[column].isna().all()


def test_numbers_beside_an_absent_one_keep_every_digit() -> None:
    assert read([op("a", 0, 1, **{"External id": 2**53 + 1}), op("b", 0, 1)]).events["external_id"].dropna().tolist() == [2**53 + 1]
    samples = read([memory(1, 8, 8, 2**53 + 1), {**memory(2, 8, 8, 1), "args": {}}]).samples
    assert samples["addr"].tolist() == [2**53 + 1]


@pytest.mark.parametrize("base", [2**63 - 5, BIG, [1], "soon"])
def test_a_base_time_that_cannot_be_used_is_said(base: object) -> None:
    trace = read([op("a", 1, 2)], base=base)
    assert trace.events["ts"].tolist() == [1000] and [f["code"] for f in trace.findings] == ["time_base_unusable"]


def test_a_time_that_would_not_fit_is_dropped_and_counted() -> None:
    trace = read([op("a", 8 * 10**15, 8 * 10**15 + 1), op("b", 1, 2)], base=4 * 10**18)
    assert trace.events["name"].tolist() == ["b"] and [(f["code"], f["count"]) for f in trace.findings] == [("records_dropped", 1)]


def test_a_rank_or_world_that_no_job_has_is_unknown() -> None:
    meta = read([op("a", 0, 1)], rank=2**62, world=2**62).meta
    assert (meta.rank, meta.world_size) == (None, None)


def test_a_trace_of_memory_events_alone_is_read() -> None:
    assert passed([memory(1, 8, 8, 1)]).samples["event"].isna().all()
