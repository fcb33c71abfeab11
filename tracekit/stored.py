"""How does an analysis get onto the disk and back, the same numbers in the same types? A folder: one document, one Parquet file per table.

``document.json`` holds everything that is no table (health, run, summaries, reasons, notes), the tables stand beside it, and
``manifest.json`` names every file with its size and checksum and is written last. The folder is made beside its place and
renamed into it, so one that is there is whole; a file that differs from the manifest is refused, never read as other numbers.
"""

from __future__ import annotations

import io
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.analysed import Analysed
from tracekit.analysis import document_of, plain
from tracekit.durable import sync
from tracekit.errors import InputError
from tracekit.metrics import METRICS, Metric, Result

SCHEMA = "tracekit.analysis/1"
DOCUMENT, MANIFEST = "document.json", "manifest.json"


def save(analysis: Analysed, folder: str | Path, partial: bool = False, extras: Mapping[str, Result] | None = None) -> Path:
    """Store an analysis, whole or not at all.

    Args:
        analysis: of any job; every metric is computed.
        folder: where it will stand; it must not exist, its parent must.
        partial: ranks are still being read, so more will be known.
        extras: results that are no metric, by name (``what_if``).

    Returns:
        The folder.

    Raises:
        FileExistsError: the folder is there already.
    """
    from tracekit import __version__

    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; an analysis is never written over another")
    beside = folder.with_name(f".{folder.name}.{uuid4().hex}")
    beside.mkdir()
    try:
        files: dict[str, list[int]] = {}
        results = {f"metric.{m.name}": analysis.result(m.name) for m in analysis.metrics} | {f"extra.{n}": r for n, r in (extras or {}).items()}
        stated = {name: _stated(result, name, beside, files) for name, result in results.items()}
        document = {
            "schema": SCHEMA,
            "tracekit": __version__,
            "partial": partial,
            "health": plain(analysis.health()),
            "run": analysis.run(),
            "steady_steps": sorted(analysis.steady_steps),
            "results": stated,
        }
        _write(beside / DOCUMENT, json.dumps(document, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass"), files)
        for name in files:
            sync(beside / name)  # all of them are written by now: the first call takes most others along
        _write(beside / MANIFEST, json.dumps({"schema": SCHEMA, "files": files}).encode(), {})
        sync(beside / MANIFEST)
        sync(beside)
        beside.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return folder


def load(folder: str | Path) -> StoredAnalysis:
    """Open a stored analysis; tables are read when they are first asked for.

    Raises:
        InputError: there is none, it is damaged, or it was written by a later tracekit.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        _known(manifest, folder)
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in manifest["files"].items()}
        document = json.loads(_read(folder, DOCUMENT, files).decode("utf-8", "surrogatepass"))
        _known(document, folder)
        missing = [name for name in files if not (folder / name).is_file()]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return StoredAnalysis(folder, document, files)
    except FileNotFoundError as error:
        raise InputError("holds no stored analysis; analyse the traces again", folder) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(folder, error) from error


@dataclass(frozen=True)
class StoredAnalysis:
    """An analysis read back: the surface of :class:`tracekit.analysis.Analysis`, without the job behind it.

    Attributes:
        folder: where it stands.
        document: what stands in ``document.json``.
        files: size and checksum of each file, by name.
    """

    folder: Path
    document: Mapping[str, Any] = field(repr=False)
    files: Mapping[str, tuple[int, int]] = field(repr=False)
    _results: dict[str, Result] = field(default_factory=dict, repr=False, compare=False)

    @property
    def partial(self) -> bool:
        """Whether ranks were still being read when it was stored."""
        return bool(self.document["partial"])

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric there is, in the order of the report."""
        return METRICS

    @property
    def steady_steps(self) -> frozenset[int]:
        """The steps over which means are taken: complete on every rank, and no warm-up."""
        return frozenset(int(s) for s in self.document["steady_steps"])

    @property
    def held_bytes(self) -> int:
        """About the memory that it takes: its document, and the tables that were read so far."""
        read = [r.tables for r in list(self._results.values())]
        return sum(t.held_bytes for t in read if isinstance(t, _Tables)) + 8 * self.files[DOCUMENT][0]

    def result(self, name: str) -> Result:
        """A metric's answer; one that tracekit gained after the analysis was stored is unavailable and says so.

        Its tables are read when they are asked for; one that is damaged or gone by then raises InputError.

        Raises:
            KeyError: there is no metric of that name.
        """
        if name not in {m.name for m in METRICS}:
            raise KeyError(f"no metric {name!r}; there are {', '.join(m.name for m in METRICS)}")
        found = self._result(f"metric.{name}")
        return found or Result(available=False, reason="this analysis was stored before tracekit had this metric; analyse the traces again")

    def extra(self, name: str) -> Result | None:
        """A result that is no metric, as it was given to :func:`save`; None where none was."""
        return self._result(f"extra.{name}")

    def health(self) -> dict[str, Any]:
        """Verdict and findings; comes before any number."""
        return dict(_copy(self.document["health"]))

    def run(self) -> dict[str, Any]:
        """What ran: ranks, world size, mesh, steps, sources."""
        return dict(_copy(self.document["run"]))

    def to_dict(self) -> dict[str, Any]:
        """The report document (schema ``tracekit.report/1``), equal to that of the analysis that was stored."""
        return document_of(self) | {"tracekit": self.document["tracekit"]}

    def to_json(self, indent: int | None = None) -> str:
        """The report document as strict JSON (no NaN, no Infinity)."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def _result(self, key: str) -> Result | None:
        stated = self.document["results"].get(key)
        if stated is None:
            return None
        known = self._results.get(key)
        if known is None:
            tables = _Tables(self.folder, self.files, stated["tables"])
            known = Result(stated["summary"], tables, stated["available"], stated["reason"], tuple(stated["notes"]))
            self._results[key] = known
        return known


class _Tables(Mapping[str, pd.DataFrame]):
    """The tables of a result, each read when it is first asked for: a page shows a few of them."""

    def __init__(self, folder: Path, files: Mapping[str, tuple[int, int]], stated: Mapping[str, Any]) -> None:
        self._folder, self._files, self._stated = folder, files, stated
        self._read: dict[str, tuple[pd.DataFrame, int]] = {}

    @property
    def held_bytes(self) -> int:
        """About the memory that what was read takes: texts are shared between rows, so a column of them takes little more than its references."""
        return sum(nbytes for _, nbytes in list(self._read.values()))

    def __getitem__(self, name: str) -> pd.DataFrame:
        known = self._read.get(name)
        if known is None:
            about = self._stated[name]
            try:
                table = _restored(_read(self._folder, about["file"], self._files), about)
            except (OSError, ValueError, KeyError, TypeError, RecursionError, pa.ArrowException) as error:
                raise _damaged(self._folder, error) from error
            known = self._read[name] = table, sum(table[c].nbytes for c in table)
        return known[0]

    def __contains__(self, name: object) -> bool:
        return name in self._stated

    def __iter__(self) -> Iterator[str]:
        return iter(self._stated)

    def __len__(self) -> int:
        return len(self._stated)


def _stated(result: Result, key: str, folder: Path, files: dict[str, list[int]]) -> dict[str, Any]:
    """What the document says of a result; its tables are written."""
    tables = {}
    for number, (name, table) in enumerate(result.tables.items()):
        file = f"{key}.{number}.parquet"
        arrays, columns = [], []
        for column in table.columns:
            array, how = _packed(table[column])
            arrays.append(array)
            columns.append([str(column), *how])
        out = io.BytesIO()
        packed = pa.table(arrays, names=[str(i) for i in range(len(arrays))])
        pq.write_table(packed, out, compression="zstd", write_statistics=False, store_schema=False)
        _write(folder / file, out.getvalue(), files)
        tables[name] = {"file": file, "rows": len(table), "columns": columns}
    return {
        "available": result.available,
        "reason": result.reason,
        "notes": list(result.notes),
        "summary": plain(dict(result.summary)),
        "tables": tables,
    }


def _packed(column: pd.Series[Any]) -> tuple[pa.Array, tuple[str, str]]:
    """A column as Arrow has it, its dtype, and how its values are written: as they are, or each as JSON."""
    dtype = str(column.dtype)
    if dtype == "category":
        raise TypeError(f"column {column.name!r} of a result is categorical; results hold plain columns")
    if dtype != "object":
        return pa.array(column, from_pandas=dtype != "float64"), (dtype, "value")
    if pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty"):
        return _texts(column.where(column.notna(), None).tolist()), (dtype, "value")
    values = [plain(v) for v in column.tolist()]
    return _texts([None if v is None else json.dumps(v, ensure_ascii=True) for v in values]), (dtype, "json")


def _texts(values: list[str | None]) -> pa.Array:
    """Texts; what is no Unicode (lone surrogates of a hostile name) is written as it would be read from a report."""
    try:
        return pa.array(values, pa.string()).dictionary_encode()
    except UnicodeEncodeError:
        safe = [None if v is None else v.encode("utf-8", "replace").decode("utf-8") for v in values]
        return pa.array(safe, pa.string()).dictionary_encode()


def _restored(data: bytes, about: Mapping[str, Any]) -> pd.DataFrame:
    """A table back, every column in its own type."""
    read = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    if read.num_rows != about["rows"] and about["columns"]:
        raise ValueError(f"{read.num_rows} rows, want {about['rows']}")
    columns = {i: _column(read.column(i), dtype, how) for i, (_, dtype, how) in enumerate(about["columns"])}
    frame = pd.DataFrame(columns, index=pd.RangeIndex(about["rows"]))
    return frame.set_axis([name for name, *_ in about["columns"]], axis=1)


def _column(values: pa.ChunkedArray, dtype: str, how: str) -> Any:
    """An array, or a series where pandas would make something else of an array."""
    if dtype != "object":
        kind: Any = pd.api.types.pandas_dtype(dtype)
        if isinstance(kind, pd.api.extensions.ExtensionDtype) and hasattr(kind, "__from_arrow__"):
            return kind.__from_arrow__(values)
        return values.to_numpy().astype(dtype, copy=False)
    encoded = values.combine_chunks() if values.num_chunks else pa.array([], pa.string())
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.cast(pa.string()).dictionary_encode()
    distinct = [json.loads(t) if how == "json" else t for t in encoded.dictionary.to_pylist()]
    return pd.Series([None if code is None else distinct[code] for code in encoded.indices.to_pylist()], dtype=object)


def _write(path: Path, data: bytes, files: dict[str, list[int]]) -> None:
    with path.open("xb") as out:
        out.write(data)
    files[path.name] = [len(data), zlib.crc32(data)]


def _read(folder: Path, name: str, files: Mapping[str, tuple[int, int]]) -> bytes:
    if "/" in name or name not in files:
        raise ValueError(f"{name!r} is not in the manifest")
    data = (folder / name).read_bytes()
    if (len(data), zlib.crc32(data)) != files[name]:
        raise ValueError(f"the checksum of {name} differs")
    return data


def _known(about: Mapping[str, Any], folder: Path) -> None:
    if about["schema"] != SCHEMA:
        raise InputError(f"was stored in the form {str(about['schema'])[:40]!r}, which this tracekit does not know ({SCHEMA}); use a later one", folder)


def _damaged(folder: Path, error: Exception) -> InputError:
    return InputError(f"a damaged stored analysis ({' '.join(str(error).split())[:120]}); analyse the traces again", folder)


def _copy(value: Any) -> Any:
    """A JSON value of which the caller may change anything."""
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value
