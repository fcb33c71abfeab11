"""How does a RankTrace get into a Parquet file and out again, unchanged? One file per rank and capture.

The rows of all tables stand one below the other in one Parquet table, each table in row groups of its own: column ``table``
says which table a row is of; columns of events keep their names (``ts``, ``dur``, ``name``), those of other tables carry the
table's (``samples.ts``, ``records.kind``) and are null elsewhere. So any Parquet tool can ask ``SELECT name, sum(dur) FROM f
WHERE "table" = 'events' GROUP BY name``, and a window is read by its row groups. Everything that is no table (meta, findings,
row counts, categories) is one JSON text in the file's metadata, under the key ``tracekit``. Each page carries a checksum, and so
does the JSON text, which holds one of all rows: a damaged file is refused, never read as other numbers.
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit import schema
from tracekit.errors import InputError
from tracekit.numbers import LATEST
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

SCHEMA = "tracekit.trace/1"
MAGIC = b"PAR1"
_KEY, _SUM = b"tracekit", b"tracekit.crc32"
_ROWS_PER_GROUP = 1 << 17
_TEXT = pa.dictionary(pa.int32(), pa.string())
_ARROW = {"int64": pa.int64(), "int32": pa.int32(), "bool": pa.bool_(), "Int64": pa.int64(), "Int32": pa.int32()}
_ARROW |= {"UInt64": pa.uint64(), "boolean": pa.bool_(), "Float64": pa.float64()}
_RANKS = re.compile(r"\d{1,9}(,\d{1,9})*")


def save(trace: RankTrace, path: str | Path) -> Path:
    """Write a trace to a file, whole or not at all.

    To be read back as an input, it should be what a reader gave: the passes run again then.

    Args:
        trace: any RankTrace.
        path: the file; its folder must exist.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(dump(trace))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def load(path: str | Path, reading: Reading = DEFAULT) -> RankTrace:
    """Read a trace back, equal to what was saved.

    Raises:
        InputError: it is no such file, was written by a later tracekit, is damaged, or is larger than a cap of ``reading``.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path) from error
    return restore(data, path, reading)


def dump(trace: RankTrace) -> bytes:
    """The file's bytes."""
    tables = {"events": trace.events, "samples": trace.samples, **{name: schema.conform(trace.stated[name], schema.STATED[name]) for name in trace.stated}}
    about = {
        "schema": SCHEMA,
        "meta": asdict(trace.meta),
        "findings": [dict(f) for f in trace.findings],
        "rows": {name: len(frame) for name, frame in tables.items()},
        "groups": {name: -(-len(frame) // _ROWS_PER_GROUP) for name, frame in tables.items()},
        "categories": {name: _categories(frame) for name, frame in tables.items()},
    }
    layout = pa.schema([("table", _TEXT), *((_label(name, c), _arrow(column)) for name in tables for c, column in _columns(name).items())])
    out = io.BytesIO()
    with pq.ParquetWriter(out, layout, compression="zstd", write_page_checksum=True, store_schema=False) as writer:
        for name, frame in tables.items():
            for start in range(0, len(frame), _ROWS_PER_GROUP):
                writer.write_table(_group(name, frame.iloc[start : start + _ROWS_PER_GROUP], layout))
        written = out.getbuffer()
        whole = {"bytes": len(written), "crc32": zlib.crc32(written), "columns": layout.names}
        text = json.dumps(about | {"written": whole}).encode()
        written.release()
        writer.add_key_value_metadata({_KEY: text, _SUM: str(zlib.crc32(text))})
    return out.getvalue()


def restore(data: bytes, path: Path, reading: Reading = DEFAULT) -> RankTrace:
    """The trace that a file's bytes hold; ``path`` is for messages."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        about = _about(file, path)
        _check_whole(data, file.schema_arrow.names, about.get("written"))
        _within_caps(file, path, reading)
        strings = [name for name, field in zip(file.schema_arrow.names, file.schema_arrow.types, strict=True) if pa.types.is_string(field)]
        # as codes and distinct texts: a page may repeat a long text a million times
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=strings, page_checksum_verification=True)
        return _trace(file, about)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InputError(f"a damaged Parquet file ({' '.join(str(error).split())[:120]}); copy it again or save the trace anew", path) from error


def columns_of(data: bytes) -> list[str] | None:
    """Names of the columns of any Parquet file; None where it cannot be opened."""
    try:
        return [str(name) for name in pq.ParquetFile(pa.BufferReader(data)).schema_arrow.names]
    except (pa.ArrowException, OSError, ValueError):
        return None


def is_ours(data: bytes) -> bool:
    """Whether a Parquet file that can be opened is one of tracekit's."""
    try:
        return _KEY in (pq.ParquetFile(pa.BufferReader(data)).metadata.metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return False


def _about(file: Any, path: Path) -> dict[str, Any]:
    """The JSON text of the metadata, whole and of a version that is known."""
    metadata = file.metadata.metadata or {}
    text = metadata[_KEY]
    if metadata.get(_SUM) != str(zlib.crc32(text)).encode():
        raise ValueError("the checksum of its metadata differs")
    about = json.loads(text)
    if about["schema"] != SCHEMA:
        raise InputError(f"was written in the form {str(about['schema'])[:40]!r}, which this tracekit does not know ({SCHEMA}); use a later one", path)
    return dict(about)


def _check_whole(data: bytes, columns: list[str], written: Mapping[str, Any] | None) -> None:
    """Hold the rows and the names of columns against what was written: a damaged page may no longer say that it has a checksum.

    Early files tell nothing of it (None).
    """
    if written is not None and (zlib.crc32(memoryview(data)[: written["bytes"]]) != written["crc32"] or columns != written["columns"]):
        raise ValueError("what was written has another checksum, or other columns")


def _within_caps(file: Any, path: Path, reading: Reading) -> None:
    metadata = file.metadata
    if metadata.num_rows > reading.max_events:
        raise InputError(f"holds {metadata.num_rows} rows, more than {reading.max_events}; raise --max-events", path)
    # what stands in the file as one run of equal values takes its full width in memory
    wide = 8 * metadata.num_rows * len(schema.EVENTS)
    size = max(wide, sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)))
    if size > reading.max_bytes:
        raise InputError(f"unpacks to {size} bytes, more than {reading.max_bytes}; raise --max-bytes", path)


def _trace(file: Any, about: Mapping[str, Any]) -> RankTrace:
    frames: dict[str, pd.DataFrame] = {}
    first = 0
    for name, rows in about["rows"].items():
        groups = range(first, first + int(about["groups"][name]))
        first = groups.stop
        frames[name] = _frame(file, name, groups, int(rows), about["categories"].get(name) or {})
    if first != file.metadata.num_row_groups:
        raise ValueError("row groups are missing")
    events, samples = frames.pop("events"), frames.pop("samples")
    _check(events, samples)
    return RankTrace(events, samples, meta_of(about["meta"]), tuple(about["findings"]), frames)


def meta_of(written: Mapping[str, Any]) -> RankMeta:
    """The meta that JSON holds, as ``asdict`` made it.

    Raises:
        msgspec.ValidationError: it is none.
    """
    meta: RankMeta = msgspec.convert(written, RankMeta, strict=False)
    groups = {name: {**group, "ranks": tuple(group.get("ranks") or ())} for name, group in meta.groups.items()}
    return RankMeta(**{**{f: getattr(meta, f) for f in meta.__dataclass_fields__}, "groups": groups})


def _check(events: pd.DataFrame, samples: pd.DataFrame) -> None:
    """What every pass takes for granted of events: order, sane times, rows that exist, kinds that are known."""
    ts, dur, thread = (events[c].to_numpy(np.int64) for c in ("ts", "dur", "thread"))
    if len(events) and (np.abs(ts).max() >= LATEST or dur.min() < 0 or (ts + dur).max() >= LATEST):
        raise ValueError("times out of range")
    order = np.lexsort((-dur, ts, thread))
    if not (order == np.arange(len(order))).all():
        raise ValueError("events out of order")
    for frame, columns in ((events, ("parent", "launch")), (samples, ("event",))):
        for column in columns:
            rows = frame[column].dropna()
            if len(rows) and not (rows.ge(0) & rows.lt(len(events))).all():
                raise ValueError(f"{column} points outside the events")
    if not set(events["kind"].cat.categories) <= set(Kind):
        raise ValueError("an event of unknown kind")
    if not all(_RANKS.fullmatch(str(text)) for text in events["group_ranks"].cat.categories):
        raise ValueError("group_ranks are no ranks")


def _columns(name: str) -> schema.Table:
    return {"events": schema.EVENTS, "samples": schema.SAMPLES, **schema.STATED}[name]


def _label(table: str, column: str) -> str:
    return column if table == "events" else f"{table}.{column}"


def _arrow(column: schema.Column) -> pa.DataType:
    return _ARROW.get(column.dtype, _TEXT)


def _categories(frame: pd.DataFrame) -> dict[str, Any]:
    """Categories that are not just the sorted values in use, by column, and the type of those without any."""
    out: dict[str, Any] = {}
    for column in frame.columns[frame.dtypes.eq("category")]:
        categories = frame[column].cat.categories
        values = [str(c) for c in categories]
        used = sorted({values[code] for code in np.unique(frame[column].cat.codes) if code >= 0})
        if values != used or str(categories.dtype) != "str" or frame[column].cat.ordered:
            out[str(column)] = {"values": values, "dtype": str(categories.dtype), "ordered": bool(frame[column].cat.ordered)}
    return out


def _group(name: str, frame: pd.DataFrame, layout: pa.Schema) -> pa.Table:
    """One row group: the table's own columns, nulls in all others."""
    n = len(frame)
    own = {_label(name, c): _to_arrow(frame[c], column) for c, column in _columns(name).items()}
    table = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([name]))
    return pa.table([table if f.name == "table" else own[f.name] if f.name in own else pa.nulls(n, f.type) for f in layout], schema=layout)


def _to_arrow(values: pd.Series, column: schema.Column) -> pa.Array:
    if column.dtype == "category":
        codes = values.cat.codes.to_numpy().astype(np.int32)
        texts = pa.array([str(c) for c in values.cat.categories], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts)
    if column.dtype == "object":
        return pa.array(values.astype(object).where(values.notna(), None).tolist(), pa.string()).dictionary_encode().cast(_TEXT)
    return pa.array(values, type=_ARROW[column.dtype], from_pandas=False)


def _frame(file: Any, name: str, groups: range, rows: int, categories: Mapping[str, Any]) -> pd.DataFrame:
    """One table back; columns that the file does not have yet are null."""
    present = set(file.schema_arrow.names)
    table = _columns(name)
    wanted = [c for c in table if _label(name, c) in present]
    read = file.read_row_groups(list(groups), columns=[_label(name, c) for c in wanted]).unify_dictionaries()
    if read.num_rows != rows:
        raise ValueError(f"{read.num_rows} rows of {name}, want {rows}")
    index = pd.RangeIndex(rows)
    out = {c: _to_pandas(read.column(_label(name, c)), table[c], categories.get(c), index) for c in wanted}
    return schema.conform(pd.DataFrame(out, index=index), table) if len(wanted) < len(table) else pd.DataFrame(out, index=index)


def _to_pandas(values: pa.ChunkedArray, column: schema.Column, stated: Mapping[str, Any] | None, index: pd.Index) -> pd.Series:
    if column.dtype in ("category", "object"):
        codes, texts = _codes(values)
        if column.dtype == "object":
            return pd.Series(np.array([*texts, None], object)[codes], index=index, dtype=object)
        chosen = stated or {"values": sorted({texts[c] for c in np.unique(codes) if c >= 0}), "dtype": "str", "ordered": False}
        place = {text: i for i, text in enumerate(chosen["values"])}
        kept = pd.Index(chosen["values"], dtype=chosen["dtype"])
        moved = np.array([place.get(text, -2) for text in texts] + [-1], np.int64)[codes]
        if (moved == -2).any():
            raise ValueError("a value that is none of its categories")
        return pd.Series(pd.Categorical.from_codes(moved, categories=kept, ordered=chosen["ordered"]), index=index)
    if column.dtype in ("int64", "int32", "bool"):
        if values.null_count:
            raise ValueError("nulls where there can be none")
        return pd.Series(values.cast(_ARROW[column.dtype]).to_numpy(), index=index, dtype=column.dtype)
    dtype: Any = pd.api.types.pandas_dtype(column.dtype)
    return pd.Series(dtype.__from_arrow__(values.cast(_ARROW[column.dtype])), index=index)


def _codes(values: pa.ChunkedArray) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[str]]:
    """Code of each row, -1 for null, and the texts they stand for."""
    if not values.num_chunks:
        return np.empty(0, np.int64), []
    encoded = values.combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.cast(pa.string()).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [str(text) for text in encoded.dictionary.to_pylist()]
