"""What does an Nsight Systems export (sqlite) say? Kernels, copies, CUDA graphs, CUDA calls and NVTX ranges, one RankTrace per process.

``nsys export --type sqlite`` writes one table per kind of record; which tables and columns there are differs by version and by
what was traced. Times are ns since the session began; the session's start makes them ns since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, Rows, integers
from tracekit.errors import InputError
from tracekit.numbers import LATEST, in_range
from tracekit.readers import nvtx
from tracekit.readers.sqlite_tables import MAGIC, Tables
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_KERNEL, _GRAPH, _CALLS = f"{_CUPTI}KERNEL", f"{_CUPTI}GRAPH_TRACE", (f"{_CUPTI}RUNTIME", f"{_CUPTI}DRIVER")
_NVTX = "NVTX_EVENTS"
_TABLES = (_KERNEL, f"{_CUPTI}MEMCPY", f"{_CUPTI}MEMSET", _GRAPH, *_CALLS, _NVTX)
#: CUPTI's kinds of copies.
_COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_TIMES = ("start", "end")
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid")
#: Lower bits of a global thread id that number the thread within its process.
_THREAD_BITS, _LOW = 24, (1 << 24) - 1
#: No machine has more devices; and the bits of a stream's number that tell streams apart.
_MOST_DEVICES, _STREAM_BITS = 1 << 16, 46
#: Times past this are no session's but ns since the epoch: ``nsys export --ts-normalize`` writes them so.
_EPOCH = 10**17
#: Names of work that has none of its own.
_WHOLE, _NAMELESS = "CUDA graph", "kernel without a name"
#: What every row of the host and of a device has, before it is an event.
_COLUMNS = ("start", "end", "kind", "name", "process", "thread", "device", "stream", "correlation", "sequence", "fwd_thread")


def sniff(head: bytes) -> bool:
    """Whether the first bytes are those of an SQLite database."""
    return head.startswith(MAGIC)


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """The ranks of an export: each process that owns device work, else each that owns ranges or calls.

    Args:
        data: the whole database.
        path: for messages.
        reading: caps, and whether to salvage.

    Returns:
        One RankTrace per process, in order of their first device. Of several processes the rank is that order, for no export
        states it; of one it is left open.

    Raises:
        InputError: the database is cut or damaged, is no export, or holds no record.
    """
    tables = Tables(data, path, reading)
    try:
        if not set(_TABLES) & tables.columns.keys():
            names = ", ".join(sorted(tables.columns)[:4]) or "none"
            raise InputError(f"an SQLite database, but no Nsight Systems export (its tables: {names}); write one with nsys export --type sqlite", path)
        return _Export(tables, str(path)).traces()
    finally:
        tables.close()


@dataclass(frozen=True)
class _Rows:
    """Rows of one kind, and what had to be left out of it."""

    frame: pd.DataFrame
    dropped: int = 0


class _Export:
    """The tables of one export, read once."""

    def __init__(self, tables: Tables, file: str) -> None:
        self.tables, self.file = tables, file
        strings = tables.read("StringIds", ("id",), ("value",))
        self.strings = pd.Series(strings["value"].to_numpy(object), index=strings["id"].to_numpy(np.int64, na_value=-1))
        self.strings = self.strings[~self.strings.index.duplicated()]

    def traces(self) -> tuple[RankTrace, ...]:
        """One RankTrace per process."""
        graphs = self._device_rows(_GRAPH, Kind.GRAPH, ("graphId",))
        kernels = self._device_rows(_KERNEL, Kind.COMPUTE, ("demangledName", "shortName"))
        parts = {
            "kernels": kernels,
            "copies": self._device_rows(f"{_CUPTI}MEMCPY", Kind.MEMCPY, ("copyKind",)),
            "memsets": self._device_rows(f"{_CUPTI}MEMSET", Kind.MEMSET, ()),
            "graphs": replace(graphs, frame=_without_nodes(graphs.frame, kernels.frame)),
        }
        host = [self._calls(table) for table in _CALLS] + [self._ranges()]
        device = _joined([r.frame for r in parts.values()])
        calls = _joined([r.frame for r in host])
        device = device.assign(process=_owners(device, calls))
        owners = _in_order_of_device(device) or sorted(int(p) for p in calls["process"].dropna().unique())
        if not owners:
            raise InputError("the export holds no kernel, no CUDA call and no NVTX range; record with nsys profile --trace=cuda,nvtx", self.file)
        dropped = sum(r.dropped for r in (*parts.values(), *host))
        names, base = self._thread_names(), self._base(device, calls)
        return tuple(self._trace(number, owners, calls, device, names, base, dropped) for number in range(len(owners)))

    def _trace(self, number: int, owners: list[int], calls: pd.DataFrame, device: pd.DataFrame, names: Mapping[int, str], base: int, dropped: int) -> RankTrace:
        own, work = (f[f["process"].eq(owners[number]).fillna(False)] for f in (calls, device))
        events, threads = _events(_joined([own, work]), names, base)
        meta = RankMeta(
            rank=number if len(owners) > 1 else None,
            device_type="gpu" if len(work) else None,
            device_names=self._device_names(),
            files=(self.file,),
            threads=threads,
            versions=self._versions(),
        )
        return self._judged(RankTrace(events=events, meta=meta), number, owners, work, dropped)

    def _judged(self, trace: RankTrace, number: int, owners: list[int], work: pd.DataFrame, dropped: int) -> RankTrace:
        """The trace with what the export lacks, where a figure needs it."""
        trace = _lacks(trace, work, self.tables, self.file)
        if number == 0 and len(owners) > 1:
            pids = ", ".join(f"process {_pid(p)} is rank {i}" for i, p in enumerate(owners[:8])) + (", …" if len(owners) > 8 else "")
            says = f"an export names no rank: its {len(owners)} processes are numbered by their first GPU ({pids})"
            trace = trace.with_finding("rank_inferred", "info", says, file=self.file, count=len(owners))
        if number == 0 and dropped:
            says = f"{dropped} records without a usable time or device were left out (a range that was still open when recording stopped has no end)"
            trace = trace.with_finding("records_dropped", "warning", says, file=self.file, count=dropped)
        if number == 0 and self.tables.damaged:
            says = f"the database is cut or damaged in {', '.join(self.tables.damaged)}: every figure is of the rows before the damage"
            trace = trace.with_finding("export_partial", "warning", says, file=self.file)
        return trace

    def _device_rows(self, table: str, kind: Kind, more: tuple[str, ...]) -> _Rows:
        """Work on a device."""
        rows = self.tables.read(table, (*_TIMES, *_PLACE, *more))
        rows = rows.rename(columns={"deviceId": "device", "streamId": "stream", "correlationId": "correlation"})
        if kind == Kind.COMPUTE:
            long, short = self._named(rows["demangledName"]), self._named(rows["shortName"])
            name = long.where(long.notna(), short)
        elif kind == Kind.MEMCPY:
            name = _texts([f"Memcpy {_COPIES.get(int(k), k)}" if pd.notna(k) else "Memcpy" for k in rows["copyKind"]])
        elif kind == Kind.GRAPH:
            name = _texts([f"{_WHOLE} {i}" if pd.notna(i) else _WHOLE for i in rows["graphId"]])
        else:
            name = _texts(["Memset"] * len(rows))
        known = name.notna().to_numpy()
        place = {c: rows[c].fillna(0) for c in ("device", "stream")}
        kinds = np.where(known, str(kind), str(Kind.GRAPH))
        return _usable(rows.assign(**place, process=_process(rows["globalPid"]), name=name.where(known, _NAMELESS), kind=kinds))

    def _calls(self, table: str) -> _Rows:
        """CUDA calls."""
        rows = self.tables.read(table, (*_TIMES, "globalTid", "correlationId", "nameId")).rename(columns={"correlationId": "correlation"})
        name = self._named(rows["nameId"])
        return _usable(_on_host(rows.assign(name=name.where(name.notna(), "CUDA call"), kind=str(Kind.LAUNCH))))

    def _ranges(self) -> _Rows:
        """NVTX ranges; marks and the names of things are no ranges."""
        rows = self.tables.read(_NVTX, (*_TIMES, "eventType", "textId", "globalTid", "endGlobalTid", "domainId"), ("text",))
        pushed, started = (rows["eventType"].isin(types).to_numpy(bool) for types in (nvtx.PUSH_POP, nvtx.START_END))
        rows = rows.assign(loose=started)[pushed | started].reset_index(drop=True)
        meant = nvtx.named(rows["text"].where(rows["text"].notna(), self._named(rows["textId"])).to_numpy(object))
        # a library's domain holds its own calls, no operators of the framework
        operator = meant["operator"].to_numpy(bool) & rows["domainId"].fillna(0).eq(0).to_numpy(bool)
        found = _usable(_on_host(rows.assign(name=meant["name"], sequence=meant["sequence"], fwd_thread=meant["fwd_thread"], operator=operator)))
        kept, loose = found.frame, found.frame["loose"].to_numpy(bool)
        thread, start, end = (integers(kept[c]) for c in ("thread", "start", "end"))
        kind = nvtx.kinds(kept["operator"].to_numpy(bool), loose, thread, start, end)
        elsewhere = loose & kept["endGlobalTid"].ne(kept["globalTid"]).fillna(False).to_numpy(bool)
        kind = np.array([str(k) for k in np.where(elsewhere, Kind.ASYNC_RANGE, kind)], object)
        return replace(found, frame=kept.assign(kind=kind, name=kept["name"].fillna("range without a name")))

    def _named(self, ids: pd.Series[Any]) -> pd.Series[Any]:
        """Texts by their numbers; None where there is none."""
        return _texts(self.strings.reindex(integers(ids)).to_numpy(object))

    def _base(self, *rows: pd.DataFrame) -> int:
        """What makes times of the session ns since the epoch; 0 where they are already, or where the export does not tell."""
        told = self.tables.read("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"].dropna()
        latest = max((int(r["end"].max()) for r in rows if len(r)), default=0)
        return int(told.iloc[0]) if len(told) and _EPOCH < int(told.iloc[0]) < LATEST // 2 and latest < _EPOCH else 0

    def _versions(self) -> dict[str, str]:
        rows = self.tables.read("META_DATA_EXPORT", (), ("name", "value"))
        found = rows.loc[rows["name"].eq("EXPORT_PRODUCT_VERSION"), "value"].dropna()
        return {"nsight_systems": str(found.iloc[0])} if len(found) else {}

    def _device_names(self) -> tuple[str, ...]:
        rows = self.tables.read("TARGET_INFO_GPU", ("id",), ("name",)).sort_values("id", kind="stable")
        return tuple(str(n) for n in rows["name"] if n is not None)

    def _thread_names(self) -> dict[int, str]:
        rows = self.tables.read("ThreadNames", ("nameId", "globalTid")).dropna(subset=["globalTid"])
        return {int(t): str(n) for t, n in zip(rows["globalTid"], self._named(rows["nameId"]), strict=True) if n is not None}


def _pid(global_id: int) -> int:
    """The operating system's number of the process in a global id."""
    return (int(global_id) >> _THREAD_BITS) & _LOW


def _texts(values: Any) -> pd.Series[Any]:
    """A column of texts and None."""
    out = np.empty(len(values), object)
    out[:] = [v if type(v) is str else None for v in values]
    return pd.Series(out)


def _process(thread: pd.Series[Any]) -> pd.Series[Any]:
    """Process of a global thread id (of a global process id: itself)."""
    return thread // (1 << _THREAD_BITS) * (1 << _THREAD_BITS)


def _on_host(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(thread=rows["globalTid"], process=_process(rows["globalTid"]))


def _usable(rows: pd.DataFrame) -> _Rows:
    """Rows with a start and an end that is no earlier, on a device that there can be."""
    start, end = integers(rows["start"]), integers(rows["end"])
    good = (rows["start"].notna() & rows["end"].notna()).to_numpy() & (end >= start) & in_range(start, LATEST // 2) & in_range(end, LATEST // 2)
    if "device" in rows:
        good &= rows["device"].between(0, _MOST_DEVICES - 1).fillna(False).to_numpy(bool)
    missing: dict[str, Any] = {c: pd.array([None] * len(rows), "Int64") for c in _COLUMNS if c not in rows}
    return _Rows(rows.assign(**missing)[good].reset_index(drop=True), int((~good).sum()))


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of all parts; their common columns."""
    kept = [p[list(_COLUMNS)] for p in parts if len(p)]
    return pd.concat(kept, ignore_index=True) if kept else parts[0][list(_COLUMNS)]


def _without_nodes(graphs: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Whole graphs, without those whose kernels were recorded one by one: a graph's launch and its kernels share a correlation id."""
    keys = [pd.MultiIndex.from_arrays([integers(f["process"]), integers(f["correlation"])]) for f in (graphs, kernels)]
    return graphs[~(keys[0].isin(keys[1]) & graphs["correlation"].notna().to_numpy())]


def _owners(device: pd.DataFrame, calls: pd.DataFrame) -> pd.Series:
    """Process of each piece of device work: as stated, else that of the call with its correlation id, else the only one there is."""
    owner = device["process"].astype("Int64")
    if not owner.isna().any():
        return owner
    ids = calls.dropna(subset=["correlation", "process"]).drop_duplicates(["correlation", "process"]).drop_duplicates("correlation", keep=False)
    by_call = ids.set_index("correlation")["process"].reindex(device["correlation"]).array
    owner = owner.fillna(pd.Series(by_call, index=owner.index).astype("Int64"))
    known = pd.concat([owner.dropna(), calls["process"].dropna()]).unique()
    return owner.fillna(int(known[0]) if len(known) else 0)


def _in_order_of_device(device: pd.DataFrame) -> list[int]:
    """Processes with device work, by the number of their first device."""
    first = device.groupby(device["process"].astype("int64"))["device"].min() if len(device) else pd.Series(dtype="int64")
    return [int(p) for p in first.index[np.lexsort((first.index.to_numpy(), first.to_numpy(np.int64)))]]


def _events(rows: pd.DataFrame, names: Mapping[int, str], base: int) -> tuple[pd.DataFrame, dict[int, str]]:
    """Rows of ``schema.EVENTS`` and the names of their threads."""
    device, stream, thread = (integers(rows[c]) for c in ("device", "stream", "thread"))
    on_device: Mask = rows["thread"].isna().to_numpy() & (device >= 0)
    # a stream of a device is a thread of its own; its key is below 0, where no thread's id lies
    key = np.where(on_device, -1 - (device << _STREAM_BITS | stream & ((1 << _STREAM_BITS) - 1)), np.maximum(thread, 0))
    keys, first, code = np.unique(key, return_index=True, return_inverse=True)
    start: Rows = rows["start"].to_numpy(np.int64)
    frame = pd.DataFrame(
        {
            "ts": start + base,
            "dur": rows["end"].to_numpy(np.int64) - start,
            "kind": pd.Categorical(rows["kind"].astype(str), categories=list(Kind)),
            "name": pd.Categorical(rows["name"].astype(str)),
            "thread": code.astype(np.int32),
            "device": rows["device"].astype("Int32"),
            "stream": rows["stream"],
            "correlation": rows["correlation"].mask(rows["correlation"].eq(0).fillna(False)),
            "sequence": rows["sequence"],
            "fwd_thread": rows["fwd_thread"],
            "recompute": False,
        }
    )
    order = np.lexsort((-frame["dur"].to_numpy(), frame["ts"].to_numpy(), frame["thread"].to_numpy()))
    where = ((int(d), int(t)) for d, t in zip(device[first], stream[first], strict=True))
    threads = {
        i: f"GPU {d} stream {t}" if k < 0 else names.get(int(k)) or f"{_pid(k)}/{int(k) & _LOW}" for i, (k, (d, t)) in enumerate(zip(keys, where, strict=True))
    }
    return schema.conform(frame, schema.EVENTS).iloc[order].reset_index(drop=True), threads


def _lacks(trace: RankTrace, work: pd.DataFrame, tables: Tables, file: str) -> RankTrace:
    """Findings on what was not recorded."""
    whole = work["kind"].eq(str(Kind.GRAPH))
    graphs, nameless = whole & ~work["name"].eq(_NAMELESS), whole & work["name"].eq(_NAMELESS)
    if graphs.any():
        says = (
            f"{graphs.sum()} launches of CUDA graphs were recorded as one piece each: busy time is known, how it divides into compute and "
            "communication is not; record with nsys profile --cuda-graph-trace=node"
        )
        trace = trace.with_finding("graphs_whole", "warning", says, file=file, count=int(graphs.sum()))
    if nameless.any():
        says = f"{nameless.sum()} kernels have no name (table StringIds lacks it): busy time is known, how it divides into compute and communication is not"
        trace = trace.with_finding("kernels_nameless", "warning", says, file=file, count=int(nameless.sum()))
    if not len(work):
        says = "the export holds no GPU work (no table of kernels, copies or graphs): record with nsys profile --trace=cuda,nvtx"
        return trace.with_finding("no_device_work", "warning", says, file=file)
    stepped = trace.events["name"].astype(str).str.startswith("ProfilerStep").any()
    if stepped and not any(t in tables.columns for t in _CALLS):
        says = "the export holds no CUDA calls: device work cannot be tied to the call, range or step that launched it; record with --trace=cuda,nvtx"
        trace = trace.with_finding("launches_missing", "warning", says, file=file)
    if _NVTX not in tables.columns:
        says = "the export holds no NVTX ranges, so no steps: record with --trace=cuda,nvtx and torch.cuda.nvtx.range_push('ProfilerStep#3') around each"
        trace = trace.with_finding("ranges_missing", "info", says, file=file)
    return trace
