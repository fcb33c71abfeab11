"""Does a saved trace come back unchanged, whatever it holds, and is any other or damaged Parquet refused?"""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.builders import document, kernel, launch, memory, op, read
from tracekit import analyze, readers, schema, store
from tracekit.errors import InputError, TracekitError
from tracekit.passes import run_passes
from tracekit.reading import Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

PATH = Path("rank0.parquet")
EVENTS = [
    op("ProfilerStep#1", 0, 100, cat="user_annotation"),
    op("aten::mm", 1, 20, **{"Sequence number": 3}),
    launch(2, 3, 7),
    kernel("gemm", 4.001, 30.123, 7),
    memory(5, 512, 512, 2**63 - 1),
]


def again(trace: RankTrace) -> RankTrace:
    return store.restore(store.dump(trace), PATH)


def same(a: RankTrace, b: RankTrace) -> None:
    """Equal in every table, type, category and word."""
    for left, right in ((a.events, b.events), (a.samples, b.samples), *((a.stated[n], b.stated[n]) for n in a.stated)):
        pd.testing.assert_frame_equal(left, right, check_exact=True)
        assert [str(t) for t in left.dtypes] == [str(t) for t in right.dtypes]
        for column in left.columns[left.dtypes.eq("category")]:
            assert left[column].cat.categories.equals(right[column].cat.categories)
            assert left[column].cat.categories.dtype == right[column].cat.categories.dtype
    assert (a.meta, a.findings, a.stated.keys()) == (b.meta, tuple(b.findings), b.stated.keys())


def test_a_trace_comes_back_as_it_was() -> None:
    trace = read(EVENTS, rank=3, world=8, base=1_700_000_000_000_000_000)
    trace = trace.with_finding("odd", "info", "something\nodd", offset=2**40)
    trace = replace(
        trace, meta=replace(trace.meta, groups={"1": {"desc": "mesh_tp", "ranks": (2, 3)}}, run={"mesh": {"tp": 2}, "lr": 1e-3}, memory_baseline=())
    )
    same(trace, again(trace))
    assert int(again(trace).samples["addr"].iloc[0]) == 2**63 - 1


def test_after_the_passes_too() -> None:
    trace = run_passes(read(EVENTS))
    same(trace, again(trace))


def test_a_trace_of_nothing_comes_back() -> None:
    same(RankTrace(), again(RankTrace()))


TEXT = st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=5)


def drawn(data: st.DataObject, table: schema.Table, n: int) -> pd.DataFrame:
    """A table of n rows with anything its types may hold."""
    columns: dict[str, Any] = {}
    for name, column in table.items():
        if column.dtype in ("category", "object"):
            values = data.draw(st.lists(TEXT, min_size=n, max_size=n))
            if column.dtype == "object":
                columns[name] = pd.Series(values, dtype=object)
            else:
                extra = data.draw(st.lists(st.sampled_from(["unused", "a", ""]), max_size=2))
                categories = data.draw(st.permutations(list(dict.fromkeys([*(v for v in values if v is not None), *extra]))))
                columns[name] = pd.Categorical(values, categories=pd.Index(categories, dtype="str"))
        elif column.dtype == "bool":
            columns[name] = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
        elif column.dtype == "boolean":
            columns[name] = pd.array(data.draw(st.lists(st.none() | st.booleans(), min_size=n, max_size=n)), dtype="boolean")
        elif column.dtype == "Float64":
            columns[name] = pd.array(data.draw(st.lists(st.none() | st.floats(allow_nan=False), min_size=n, max_size=n)), dtype="Float64")
        else:
            limits = np.iinfo(column.dtype.lower())
            values = data.draw(st.lists(st.integers(int(limits.min), int(limits.max)), min_size=n, max_size=n))
            kept = np.array(values, column.dtype.lower())
            null = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
            columns[name] = kept if column.dtype.islower() else pd.arrays.IntegerArray(np.where(null, kept.dtype.type(1), kept), null)
    return schema.conform(pd.DataFrame(columns, index=range(n)), table)


@settings(max_examples=20)
@given(st.data(), st.integers(0, 4))
def test_every_type_survives(data: st.DataObject, n: int) -> None:
    events = drawn(data, schema.EVENTS, n)
    rows = pd.arrays.IntegerArray(np.arange(n)[::-1].copy(), np.arange(n) % 2 == 0)
    sane = {"ts": np.arange(n) - 2, "dur": np.arange(n), "thread": np.zeros(n, np.int32), "parent": rows, "launch": rows}
    ranks = pd.Categorical(["0,1", None, "12", "0"][:n])
    events = events.assign(**sane, kind=pd.Categorical(list(Kind)[:n], categories=list(Kind)), group_ranks=ranks)
    samples = drawn(data, schema.SAMPLES, n).assign(event=pd.array([None, *range(n)][:n], dtype="Int64"))
    stated = {name: drawn(data, table, data.draw(st.integers(0, 3))) for name, table in schema.STATED.items()}
    trace = RankTrace(events, samples, RankMeta(rank=data.draw(st.none() | st.integers(0, 9)), host=data.draw(TEXT)), stated=stated)
    same(trace, again(trace))


def test_tables_longer_than_one_row_group_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_ROWS_PER_GROUP", 2)
    trace = read([op(f"op{i % 3}", i, i + 1) for i in range(7)] + [memory(i, 8, 8, i) for i in range(3)])
    same(trace, again(trace))


def test_other_tools_see_events_as_a_plain_table() -> None:
    table = pq.read_table(io.BytesIO(store.dump(read(EVENTS)))).to_pandas()
    rows = table[table["table"] == "events"]
    assert rows.sort_values("ts")[["name", "dur"]].values.tolist()[0] == ["ProfilerStep#1", 100_000]
    assert table["table"].tolist().count("samples") == 1
    assert table.loc[table["table"] == "samples", "samples.nbytes"].tolist() == [512]


def test_a_saved_trace_is_an_input_like_the_trace_itself(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [kernel("gemm", 0, 10 + rank), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10 + rank, 20)]
        path = tmp_path / "json" / f"rank{rank}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document(events, rank=rank, world=2)))
        (tmp_path / "parquet").mkdir(exist_ok=True)
        store.save(readers.read(path)[0], tmp_path / "parquet" / f"{rank}.bin")
    first, second = (analyze(tmp_path / kind, workers=1).to_dict() for kind in ("json", "parquet"))
    assert first["metrics"] == second["metrics"]
    assert second["run"]["ranks"] == [0, 1]
    assert sorted(p.name for p in (tmp_path / "parquet").iterdir()) == ["0.bin", "1.bin"]


def test_public_traces_come_back(shared: Path) -> None:
    for name in ("hta/nccl_parser_config__nccl_data.json.gz", "sidnb13/transformer__dc3b0e7228dd_851.1752215573993169006.pt.trace.json.gz"):
        (trace,) = readers.read(shared / "traces" / name)
        same(trace, again(trace))


# --- what is refused


def refused(data: bytes, **caps: Any) -> str:
    with pytest.raises(InputError) as error:
        readers.parquet.read(data, PATH, Reading(**caps))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_parquet_of_another_program_is_named() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"loss": [1.0], "step": [1]}), out)
    assert "a Parquet file that tracekit did not write (columns loss, step)" in refused(out.getvalue())


def test_a_cut_file_is_refused() -> None:
    data = store.dump(read(EVENTS))
    assert "cut or damaged" in refused(data[:-20])
    assert "cut or damaged" in refused(data[: len(data) // 2])


def test_caps_hold_before_anything_is_read() -> None:
    data = store.dump(read(EVENTS))
    assert "--max-events" in refused(data, max_events=3)
    assert "--max-bytes" in refused(data, max_bytes=100)


def test_a_later_form_is_refused_and_says_so() -> None:
    assert "'tracekit.trace/2', which this tracekit does not know" in refused(rewritten(lambda about: {**about, "schema": "tracekit.trace/2"}))


def rewritten(change: Any = lambda about: about, events: Any = lambda events: events, without: tuple[str, ...] = ()) -> bytes:
    """A file whose metadata, events or columns were changed by hand, its checksum made to fit; like early files, it tells of none of its rows."""
    trace = read(EVENTS)
    data = store.dump(replace(trace, events=events(trace.events)))
    about = json.loads(pq.ParquetFile(io.BytesIO(data)).metadata.metadata[b"tracekit"])
    del about["written"]
    table, text = pq.read_table(io.BytesIO(data)).drop_columns(list(without)), json.dumps(change(about)).encode()
    out, at = io.BytesIO(), 0
    with pq.ParquetWriter(out, table.schema, store_schema=False) as writer:
        for rows in filter(None, about["rows"].values()):
            writer.write_table(table.slice(at, rows))
            at += rows
        writer.add_key_value_metadata({"tracekit": text, "tracekit.crc32": str(zlib.crc32(text))})
    return out.getvalue()


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (lambda e: e.assign(launch=pd.array([99] * len(e), dtype="Int64")), "launch points outside"),
        (lambda e: e.assign(dur=-e["dur"]), "times out of range"),
        (lambda e: e.iloc[::-1].reset_index(drop=True), "out of order"),
        (lambda e: e.assign(kind=pd.Categorical(["kernel"] * len(e))), "unknown kind"),
        (lambda e: e.assign(group_ranks=pd.Categorical(["0,x"] * len(e))), "no ranks"),
    ],
)
def test_events_that_no_pass_could_bear_are_refused(events: Any, says: str) -> None:
    assert says in refused(rewritten(events=events))


def test_metadata_that_does_not_fit_is_refused() -> None:
    assert "rows of events" in refused(rewritten(lambda about: {**about, "rows": {**about["rows"], "events": 2}}))
    assert "damaged" in refused(rewritten(lambda about: {**about, "meta": {"rank": "three"}}))
    assert "damaged" in refused(rewritten(lambda about: {**about, "rows": {"events": 4, "nothing": 1}}))
    assert "damaged" in refused(rewritten(lambda about: 5))


def test_a_column_that_the_file_does_not_have_yet_is_null() -> None:
    trace = store.restore(rewritten(without=("layer", "samples.event")), PATH)
    assert trace.events["layer"].isna().all() and trace.samples["event"].isna().all()
    assert "damaged" in refused(rewritten(without=("ts",)))


WHOLE = store.dump(read(EVENTS))
TRACE = read(EVENTS)


@settings(max_examples=200)
@example(WHOLE.index(b"ProfilerStep#1") + 10, 1, 2)  # a letter, and what says that its page has a checksum
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.integers(0, 3))
def test_a_changed_byte_is_noticed_or_changes_nothing(at: int, flip: int, more: int) -> None:
    data = bytearray(WHOLE)
    for k in range(more + 1):
        data[(at + k * 37) % len(data)] ^= flip
    try:
        (trace,) = readers.parquet.read(bytes(data), PATH)
    except TracekitError:
        return
    same(TRACE, trace)
