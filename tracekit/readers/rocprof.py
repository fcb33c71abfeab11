"""What does a rocprofiler-sdk JSON (rocprofv3 --output-format json) say? Kernels and copies of each GPU of a process, and its HIP calls.

One process per section of ``rocprofiler-sdk-tool``. Times are ns of the host's own clock, not of the epoch; names of kernels stand
in ``kernel_symbols``, those of calls in ``strings``. It knows neither steps nor ranks nor process groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.errors import InputError
from tracekit.numbers import LATEST, natural, numbers
from tracekit.readers.json_text import decode, said
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

_GPU = 2
#: Tables of records, and what their rows are.
_READ = {"kernel_dispatch": Kind.COMPUTE, "memory_copy": Kind.MEMCPY, "hip_api": Kind.LAUNCH}


class _Handle(msgspec.Struct, gc=False):
    handle: Any = None


class _Correlation(msgspec.Struct, gc=False):
    internal: Any = None


class _Dispatch(msgspec.Struct, gc=False):
    agent: _Handle | None = msgspec.field(name="agent_id", default=None)
    queue: _Handle | None = msgspec.field(name="queue_id", default=None)
    kernel: Any = msgspec.field(name="kernel_id", default=None)


class _Record(msgspec.Struct, gc=False):
    kind: Any = None
    operation: Any = None
    thread: Any = msgspec.field(name="thread_id", default=None)
    correlation: _Correlation | None = msgspec.field(name="correlation_id", default=None)
    start: Any = msgspec.field(name="start_timestamp", default=None)
    end: Any = msgspec.field(name="end_timestamp", default=None)
    dispatch: _Dispatch | None = msgspec.field(name="dispatch_info", default=None)
    stream: _Handle | None = msgspec.field(name="stream_id", default=None)
    to: _Handle | None = msgspec.field(name="dst_agent_id", default=None)
    source: _Handle | None = msgspec.field(name="src_agent_id", default=None)
    nbytes: Any = msgspec.field(name="bytes", default=None)


class _Agent(msgspec.Struct, gc=False):
    id: _Handle | None = None
    type: Any = None
    name: Any = None
    product: Any = msgspec.field(name="product_name", default=None)
    node: Any = msgspec.field(name="logical_node_type_id", default=None)


class _Symbol(msgspec.Struct, gc=False):
    kernel: Any = msgspec.field(name="kernel_id", default=None)
    formatted: Any = msgspec.field(name="formatted_kernel_name", default=None)
    name: Any = msgspec.field(name="kernel_name", default=None)


class _Section(msgspec.Struct, gc=False):
    metadata: Any = None
    agents: list[_Agent] = []
    symbols: list[_Symbol] = msgspec.field(name="kernel_symbols", default=[])
    strings: Any = None
    records: dict[str, list[_Record]] = msgspec.field(name="buffer_records", default={})


class _File(msgspec.Struct, gc=False):
    sections: list[_Section] = msgspec.field(name="rocprofiler-sdk-tool")


def sniff(head: bytes) -> bool:
    """Whether the first bytes are those of a rocprofiler-sdk JSON."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"rocprofiler-sdk-tool"' in head


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """One trace for each process that recorded device work.

    Raises:
        InputError: the text is cut or malformed, or holds no device work, or more than ``reading.max_events`` records.
    """
    decoded = decode(data, path, _File)
    sections = decoded.value.sections
    count = sum(len(s.records.get(name, ())) for s in sections for name in _READ)
    if count > reading.max_events:
        raise InputError(f"holds {count} records, more than {reading.max_events}; raise --max-events", path)
    traces = tuple(_trace(s, path) for s in sections if s.records.get("kernel_dispatch") or s.records.get("memory_copy"))
    if not traces:
        raise InputError("holds no kernel and no copy; record with rocprofv3 --kernel-trace --memory-copy-trace --output-format json", path)
    for repair in decoded.repairs:
        traces = tuple(t.with_finding(repair.what, "warning", said(repair), file=str(path), count=repair.number, offset=repair.offset) for t in traces)
    return traces


def _trace(section: _Section, path: Path) -> RankTrace:
    rows = [(kind, r) for name, kind in _READ.items() for r in section.records.get(name, ())]
    times = [(natural(r.start), natural(r.end)) for _, r in rows]
    sound = [s is not None and e is not None and s <= e < LATEST for s, e in times]
    kept = [(kind, r, s or 0, e or 0) for (kind, r), (s, e), ok in zip(rows, times, sound, strict=True) if ok]
    devices, strangers = _devices(section, [r for _, r, _, _ in kept])
    names = _Names(section)
    place = [_place(kind, r, devices) for kind, r, _, _ in kept]
    streams = _streams([r for _, r, _, _ in kept])
    codes: dict[Any, int] = {}
    tracks = [("thread", str(r.thread)) if kind == Kind.LAUNCH else ("device", p, s) for (kind, r, _, _), p, s in zip(kept, place, streams, strict=True)]
    ts = np.array([s for _, _, s, _ in kept], np.int64)
    columns: dict[str, Any] = {
        "ts": ts,
        "dur": np.array([e for *_, e in kept], np.int64) - ts,
        "kind": pd.Categorical([kind for kind, *_ in kept], categories=list(Kind)),
        "name": pd.Categorical([names.of(kind, r) for kind, r, _, _ in kept]),
        "thread": np.array([codes.setdefault(track, len(codes)) for track in tracks], np.int32),
        "device": numbers(place, "Int32"),
        "stream": numbers([None if kind == Kind.LAUNCH else s for (kind, *_), s in zip(kept, streams, strict=True)], "Int64"),
        "correlation": numbers([natural(r.correlation.internal) if r.correlation else None for _, r, _, _ in kept], "Int64"),
        "nbytes": numbers([natural(r.nbytes) if kind == Kind.MEMCPY else None for kind, r, _, _ in kept], "Int64"),
        "recompute": np.zeros(len(kept), bool),
    }
    frame = schema.conform(pd.DataFrame(columns), schema.EVENTS)
    order = np.lexsort((-frame["dur"].to_numpy(), ts, frame["thread"].to_numpy()))
    node = section.metadata.get("node") if isinstance(section.metadata, dict) else None
    host = node.get("hostname") if isinstance(node, dict) else None
    meta = RankMeta(
        host=str(host) if host else None,
        device_type="gpu",
        device_names=tuple(str(a.product or a.name) for a in section.agents if a.type == _GPU),
        files=(str(path),),
        threads={code: " ".join(str(part) for part in track if part is not None) for track, code in codes.items()},
    )
    trace = RankTrace(frame.iloc[order].reset_index(drop=True), meta=meta)
    if len(kept) < len(rows):
        lost = len(rows) - len(kept)
        trace = trace.with_finding("records_dropped", "warning", f"{lost} records without a usable start and end were left out", file=str(path), count=lost)
    unnamed = sum(1 for kind, r, _, _ in kept if kind == Kind.COMPUTE and names.of(kind, r).startswith("kernel "))
    if unnamed:
        says = f"{unnamed} kernels have no name in kernel_symbols: whether they communicate is not known, and they count as compute"
        trace = trace.with_finding("kernels_unnamed", "warning", says, file=str(path), count=unnamed)
    if strangers:
        says = f"{strangers} devices ran kernels and are not listed among the agents: they are numbered after the listed ones"
        trace = trace.with_finding("devices_unlisted", "warning", says, file=str(path), count=strangers)
    others = {name: len(records) for name, records in section.records.items() if records and name not in _READ}
    if others:
        told = ", ".join(f"{n} of {name}" for name, n in sorted(others.items()))
        trace = trace.with_finding("records_not_read", "info", f"other records are not read: {told}", file=str(path), count=sum(others.values()))
    return trace


class _Names:
    """Names of kernels by their number, and of calls by kind and operation."""

    def __init__(self, section: _Section) -> None:
        self._kernels = {natural(s.kernel): str(s.formatted or s.name) for s in section.symbols if s.formatted or s.name}
        strings = section.strings if isinstance(section.strings, Mapping) else {}
        listed = strings.get("buffer_records")
        kinds = [k.get("operations") if isinstance(k, dict) else None for k in listed] if isinstance(listed, list) else []
        self._calls: list[list[Any]] = [k if isinstance(k, list) else [] for k in kinds]

    def of(self, kind: Kind, record: _Record) -> str:
        """Name of a record; that of an unknown kernel is its number."""
        if kind == Kind.COMPUTE:
            number = natural(record.dispatch.kernel) if record.dispatch else None
            return self._kernels.get(number, f"kernel {number}")
        group, operation = natural(record.kind), natural(record.operation)
        if group is None or operation is None or group >= len(self._calls) or operation >= len(self._calls[group]):
            return "hip call" if kind == Kind.LAUNCH else "memory copy"
        return str(self._calls[group][operation])


def _id(handle: _Handle | None) -> int | None:
    return None if handle is None else natural(handle.handle)


def _devices(section: _Section, records: list[_Record]) -> tuple[dict[int | None, int | None], int]:
    """Number of each GPU by its agent, and how many agents of kernels are not listed: those are numbered after the others."""
    devices = {_id(a.id): natural(a.node) for a in section.agents if a.type == _GPU}
    listed = len(devices)
    for handle in dict.fromkeys(_id(r.dispatch.agent) for r in records if r.dispatch):
        devices.setdefault(handle, max((d for d in devices.values() if d is not None), default=-1) + 1)
    return devices, len(devices) - listed


def _place(kind: Kind, record: _Record, devices: Mapping[int | None, int | None]) -> int | None:
    """The GPU a record ran on; of a copy, the one it writes to, or reads from."""
    if kind == Kind.COMPUTE:
        return devices.get(_id(record.dispatch.agent)) if record.dispatch else None
    return None if kind == Kind.LAUNCH else next((d for h in (record.to, record.source) if (d := devices.get(_id(h))) is not None), None)


def _streams(records: list[_Record]) -> list[int | None]:
    """HIP streams, or where the recorder does not tell them (all 0) hardware queues."""
    streams = [_id(r.stream) for r in records]
    return streams if any(streams) else [_id(r.dispatch.queue) if r.dispatch else s for r, s in zip(records, streams, strict=True)]
