"""What does a Kineto (torch.profiler) JSON trace say? Bytes -> RankTrace, times exact to the nanosecond.

``ts`` and ``dur`` are kept as raw text while decoding and turned into int64 ns digit by digit: a float64 loses
nanoseconds past 2^53. Only complete slices (``ph`` X) and ``[memory]`` instants become rows.
"""

from __future__ import annotations

import gc
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.errors import InputError
from tracekit.numbers import LATEST, below, in_range, integer, nanoseconds, natural, numbers
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

KINDS = {
    **dict.fromkeys(("cpu_op", "Operator"), Kind.OPERATOR),
    "user_annotation": Kind.RANGE,
    "python_function": Kind.PYTHON,
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "mtia_runtime"), Kind.LAUNCH),
    **dict.fromkeys(("kernel", "Kernel"), Kind.COMPUTE),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), Kind.MEMCPY),
    **dict.fromkeys(("gpu_memset", "Memset"), Kind.MEMSET),
    "gpu_user_annotation": Kind.DEVICE_RANGE,
}
_ON_DEVICE = frozenset({Kind.COMPUTE, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_RANGE})
_GPU_WORK = frozenset({Kind.COMPUTE, Kind.MEMCPY, Kind.MEMSET})

#: Bytes per element by the names that Kineto and the profiler give to types.
WIDTHS = {
    **dict.fromkeys(("Float", "Int", "float", "int", "Float32", "float32", "int32"), 4),
    **dict.fromkeys(("BFloat16", "Half", "Short", "c10::BFloat16", "c10::Half", "short", "bfloat16", "float16"), 2),
    **dict.fromkeys(("Double", "Long", "double", "long int", "long", "ComplexFloat", "c10::complex<float>", "int64"), 8),
    **dict.fromkeys(("Byte", "Char", "Bool", "unsigned char", "signed char", "bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
}
_WITH_SHAPES = ("gloo:", "c10d::")
#: A field that is absent: an empty raw text.
_NOTHING = msgspec.Raw()
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: No job is wider; a damaged number must not become a list of so many ranks.
_MOST_RANKS = 1 << 20
_FULL_RANKS = re.compile(r"^\[[\d\s,]*\]$")


class _Args(msgspec.Struct, gc=False):
    """The arguments that are read; everything else stays in the file."""

    external_id: Any = msgspec.field(name="External id", default=None)
    correlation: Any = None
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    fwd_thread: Any = msgspec.field(name="Fwd thread id", default=None)
    device: Any = None
    stream: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_nelems: Any = msgspec.field(name="In msg nelems", default=None)
    out_nelems: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_desc: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    src: Any = msgspec.field(name="Src Rank", default=None)
    dst: Any = msgspec.field(name="Dst Rank", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)
    addr: Any = msgspec.field(name="Addr", default=None)
    nbytes: Any = msgspec.field(name="Bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device_id: Any = msgspec.field(name="Device Id", default=None)
    thread_name: Any = msgspec.field(name="name", default=None)


class _Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: _Args | None = None


class _File(msgspec.Struct, gc=False):
    """The top-level object."""

    events: list[_Event] | None = msgspec.field(name="traceEvents", default=None)
    base: Any = msgspec.field(name="baseTimeNanoseconds", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    host: Any = msgspec.field(name="host_name", default=None)
    profile_memory: Any = None
    with_modules: Any = None
    record_shapes: Any = None


def sniff(head: bytes) -> bool:
    """Whether the first bytes (decompressed) look like a Kineto trace."""
    start = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    return start.startswith(b"{") and (b'"traceEvents"' in head or b'"schemaVersion"' in head or b'"deviceProperties"' in head)


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """Decode one rank's trace.

    Args:
        data: the decompressed file.
        path: where it came from, for messages.
        reading: caps, and whether to salvage.

    Raises:
        InputError: the text is cut or malformed (with the byte), or holds no events.
    """
    file = _decode(data.removeprefix(_BYTE_ORDER_MARK), path)
    if not file.events:
        raise InputError("the trace holds 0 events; was the profiler's active window reached?", path, 0)
    slices = [e for e in file.events if e.ph == "X" and bytes(e.ts) and bytes(e.dur) and type(e.name) is str]
    base = integer(file.base)
    unplaced = file.base is not None and (base is None or abs(base) > LATEST)
    base = 0 if base is None or unplaced else base
    threads = _Threads()
    events, bad = _events(slices, base, threads)
    instants = [e for e in file.events if e.name == "[memory]" and bytes(e.ts) and e.args is not None]
    samples = _samples(instants, base, threads)
    trace = RankTrace(events, samples, _meta(file, path, events, threads))
    if unplaced:
        says = "baseTimeNanoseconds is no usable number: times count from an unknown beginning"
        trace = trace.with_finding("time_base_unusable", "warning", says, file=str(path))
    dropped = sum(1 for e in file.events if e.ph == "X") - len(slices) + bad
    if dropped:
        trace = trace.with_finding("records_dropped", "warning", f"{dropped} slices without a usable time or name were left out", file=str(path), count=dropped)
    if len(samples) < len(instants):
        says = f"{len(instants) - len(samples)} memory events lack an address or a total (old traces do): no lifetimes can be told from them"
        trace = trace.with_finding("memory_events_incomplete", "info", says, file=str(path), count=len(instants) - len(samples))
    return (trace,)


def _decode(data: bytes, path: Path) -> _File:
    was_on = gc.isenabled()
    gc.disable()  # millions of small objects and no cycles: collecting while decoding doubles the time
    try:
        return msgspec.json.decode(data, type=_File)
    except msgspec.ValidationError as error:
        raise InputError(f"a record has an unexpected shape ({error})", path) from error
    except RecursionError as error:
        raise InputError("nested too deeply to be a trace; record or export the trace again", path) from error
    except msgspec.DecodeError as error:
        if "UTF-8" in str(error):
            at = _first_bad_byte(data)
            raise InputError(f"not UTF-8 text at byte {at}; record or export the trace again", path, at) from error
        found = re.search(r"byte (\d+)", str(error))
        if found is None:
            raise InputError(
                f"truncated: the JSON ends early at byte {len(data)}; was the job killed while it wrote the trace? Copy or record it again",
                path,
                len(data),
            ) from error
        raise InputError(f"not valid JSON at byte {found[1]} ({error}); record or export the trace again", path, int(found[1])) from error
    finally:
        if was_on:
            gc.enable()


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


class _Threads:
    """Codes for (pid, tid) pairs, in order of appearance."""

    def __init__(self) -> None:
        self.codes: dict[tuple[Any, Any], int] = {}

    def code(self, pid: Any, tid: Any) -> int:
        return self.codes.setdefault(_thread(pid, tid), len(self.codes))


def _thread(pid: Any, tid: Any) -> tuple[Any, Any]:
    """A pair that can be looked up, whatever the two are."""
    return (pid if type(pid) is int else str(pid)), (tid if type(tid) is int else str(tid))


def _events(slices: list[_Event], base: int, threads: _Threads) -> tuple[pd.DataFrame, int]:
    """The events table of all slices with usable times, and how many were not usable."""
    ts, ts_ok = nanoseconds([bytes(e.ts) for e in slices])
    dur, dur_ok = nanoseconds([bytes(e.dur) for e in slices])
    good = ts_ok & dur_ok & (dur >= 0) & in_range(ts, base) & in_range(ts + base, dur)
    if not good.all():
        slices = [e for e, ok in zip(slices, good, strict=True) if ok]
        ts, dur = ts[good], dur[good]
    none = _Args()
    args = [e.args or none for e in slices]
    kinds = [KINDS.get(e.cat, Kind.OTHER) if type(e.cat) is str else Kind.OTHER for e in slices]
    shaped = [_payload(a) if e.name.startswith(_WITH_SHAPES) else (None, None, None) for e, a in zip(slices, args, strict=True)]
    on_device = [k in _ON_DEVICE for k in kinds]
    columns: dict[str, Any] = {
        "ts": ts + base,
        "dur": dur,
        "kind": pd.Categorical(kinds, categories=list(Kind)),
        "name": pd.Categorical([e.name for e in slices]),
        "thread": np.fromiter((threads.code(e.pid, e.tid) for e in slices), np.int32, len(slices)),
        "device": numbers([_place(a.device, e.pid) if d else None for e, a, d in zip(slices, args, on_device, strict=True)], "Int32"),
        "stream": numbers([_place(a.stream, e.tid) if d else None for e, a, d in zip(slices, args, on_device, strict=True)], "Int64"),
        "correlation": numbers([integer(a.correlation) for a in args], "Int64"),
        "external_id": numbers([integer(a.external_id) for a in args], "Int64"),
        "sequence": numbers([natural(a.sequence) for a in args], "Int64"),
        "fwd_thread": numbers([natural(a.fwd_thread) for a in args], "Int64"),
        "collective": _category([a.collective if type(a.collective) is str else None for a in args]),
        "group": _category([_text(a.group) for a in args]),
        "group_desc": _category([_text(a.group_desc) for a in args]),
        "group_ranks": _category([_ranks(a.group_ranks) for a in args]),
        "group_size": numbers([integer(a.group_size) for a in args], "Int64"),
        "seq": numbers([natural(a.seq) for a in args], "Int64"),
        "peer": numbers([_peer(a, s[2]) for a, s in zip(args, shaped, strict=True)], "Int64"),
        "nbytes": numbers([_message_bytes(a) if s[0] is None else s[0] for a, s in zip(args, shaped, strict=True)], "Int64"),
        "dtype": _category([_text(a.dtype) or s[1] for a, s in zip(args, shaped, strict=True)]),
        "recompute": np.zeros(len(slices), bool),
    }
    frame = schema.conform(pd.DataFrame(columns), schema.EVENTS)
    order = np.lexsort((-frame["dur"].to_numpy(), frame["ts"].to_numpy(), frame["thread"].to_numpy()))
    return frame.iloc[order].reset_index(drop=True), int((~good).sum())


def _place(stated: Any, track: Any) -> int | None:
    """Device or stream of device work: what it states, else the track on which it is drawn."""
    return integer(track if stated is None else stated)


def _samples(instants: list[_Event], base: int, threads: _Threads) -> pd.DataFrame:
    ts, ok = nanoseconds([bytes(e.ts) for e in instants])
    rows = [(e, e.args or _Args()) for e in instants]
    types = [integer(a.device_type) for _, a in rows]
    frame = pd.DataFrame(
        {
            "ts": ts + base,
            "thread": [threads.code(e.pid, e.tid) for e, _ in rows],
            "device_type": numbers(types, "Int64"),
            "device": numbers([None if t == 0 else natural(a.device_id) for (_, a), t in zip(rows, types, strict=True)], "Int64"),
            "addr": numbers([integer(a.addr) for _, a in rows], "UInt64"),
            "nbytes": numbers([integer(a.nbytes) for _, a in rows], "Int64"),
            "allocated": numbers([integer(a.allocated) for _, a in rows], "Int64"),
            "reserved": numbers([integer(a.reserved) for _, a in rows], "Int64"),
        },
        index=range(len(rows)),
    )
    frame = frame[ok & in_range(ts, base) & frame[["nbytes", "addr", "allocated"]].notna().all(axis=1).to_numpy()]
    return schema.conform(frame.sort_values("ts", kind="stable").reset_index(drop=True), schema.SAMPLES)


def _meta(file: _File, path: Path, events: pd.DataFrame, threads: _Threads) -> RankMeta:
    info = file.distributed if isinstance(file.distributed, dict) else {}
    devices = file.devices if isinstance(file.devices, list) else []
    names = {_thread(e.pid, e.tid): e.args.thread_name for e in file.events or [] if e.ph == "M" and e.name == "thread_name" and e.args}
    on_gpu = bool(events["kind"].isin(list(_GPU_WORK)).any())
    return RankMeta(
        rank=below(natural(info.get("rank")), _MOST_RANKS),
        world_size=below(natural(info.get("world_size")), _MOST_RANKS + 1),
        backend=_text(info.get("backend")),
        host=_text(file.host),
        device_type="gpu" if on_gpu else "cpu",
        device_names=tuple(str(d.get("name")) for d in devices if isinstance(d, dict)),
        files=(str(path),),
        groups=_groups(info.get("pg_config")),
        threads={code: str(names.get(key) or f"{key[0]}/{key[1]}") for key, code in threads.codes.items()},
        profile_memory=_flag(file.profile_memory),
        with_modules=_flag(file.with_modules),
        record_shapes=_flag(file.record_shapes),
    )


def _groups(config: Any) -> dict[str, dict[str, Any]]:
    """Process groups of ``distributedInfo.pg_config``: name -> description and ranks."""
    groups: dict[str, dict[str, Any]] = {}
    for entry in config if isinstance(config, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("ranks"), list):
            ranks = tuple(r for r in entry["ranks"] if type(r) is int and 0 <= r < _MOST_RANKS)
            groups[str(entry.get("pg_name"))] = {"desc": _text(entry.get("pg_desc")), "ranks": ranks}
    return groups


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _category(values: list[str | None]) -> pd.Categorical:
    return pd.Categorical(values)


def _ranks(value: Any) -> str | None:
    """``"[0, 1]"`` -> ``"0,1"``; None where the list is cut with dots or absent."""
    if isinstance(value, list):
        value = str(value)
    if not isinstance(value, str) or not _FULL_RANKS.match(value):
        return None
    numbers = sorted(int(n) for n in re.findall(r"\d+", value))
    return ",".join(map(str, numbers)) or None


def _message_bytes(a: _Args) -> int | None:
    """nccl-tests' size of a NCCL call: the larger side, but the send buffer of an all-to-all."""
    width = WIDTHS.get(a.dtype) if type(a.dtype) is str else None
    if width is None or a.collective is None:
        return None
    sizes = [natural(a.in_nelems), natural(a.out_nelems)]
    if "to_all" in str(a.collective) or "toall" in str(a.collective):
        sizes = sizes[:1]
    known = [s for s in sizes if s is not None]
    return max(known) * width if known else None


def _payload(a: _Args) -> tuple[int | None, str | None, int | None]:
    """Bytes of the largest tensor argument (lists added up), its type, and the peer of a send or receive."""
    if not bytes(a.dims) or not bytes(a.types):
        return None, None, None
    try:
        dims, types = msgspec.json.decode(a.dims), msgspec.json.decode(a.types)
        concrete = msgspec.json.decode(a.concrete) if bytes(a.concrete) else []
    except msgspec.DecodeError:
        return None, None, None
    dims, types, concrete = (v if isinstance(v, list) else [] for v in (dims, types, concrete))
    sizes = [_numel(d) for d in dims if isinstance(d, list) and d]
    name = next((t for t in types if isinstance(t, str) and t in WIDTHS), None)
    width = WIDTHS.get(name or "float") if sizes else None
    peer = natural(concrete[2]) if len(concrete) > 2 and concrete[2] != "" else None
    return (max(sizes) * width if sizes and width else None), name, peer


def _numel(dims: list[Any]) -> int:
    """Elements of a shape, or of a list of shapes added up."""
    if all(isinstance(d, int) for d in dims):
        return math.prod(dims)
    return sum(_numel(d) for d in dims if isinstance(d, list) and d)


def _peer(a: _Args, group_rank: int | None) -> int | None:
    """Rank at the other end, as a rank within the group."""
    for value in (a.src, a.dst):
        number = natural(value)
        if number is not None:
            return number
    return group_rank
