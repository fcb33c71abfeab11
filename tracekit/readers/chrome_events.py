"""How do the slices and records of a Chrome trace become a rank's tables of events and memory samples?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Rows
from tracekit.numbers import in_range, integer, nanoseconds, natural, numbers
from tracekit.readers.chrome_comms import NO_PAYLOAD, Payload, cut_ranks, payload_bytes, payload_of, peer_of, ranks_of
from tracekit.readers.chrome_kinds import Kinds
from tracekit.readers.chrome_records import Args, Event, label
from tracekit.readers.chrome_slices import Slices

_WITH_SHAPES = ("gloo:", "c10d::")
#: The process under which torch's exporter from before Kineto draws kernels; its threads are devices.
_OLD_DEVICES = "CUDA functions"
_NUMBER_AT_END = re.compile(r"(\d+)\s*$")
_NO_ARGS = Args()


class Threads:
    """Codes for (pid, tid) pairs, in order of appearance."""

    def __init__(self) -> None:
        self.codes: dict[tuple[Any, Any], int] = {}

    def of(self, records: list[Event]) -> Rows:
        """Code of each record's thread."""
        codes = self.codes
        return np.fromiter((codes.setdefault(thread_key(e.pid, e.tid), len(codes)) for e in records), np.int64, len(records))


def thread_key(pid: Any, tid: Any) -> tuple[Any, Any]:
    """A pair that can be looked up, whatever the two are; a number is one also where it is written as text."""
    return (pid if type(pid) is int else _key(pid)), (tid if type(tid) is int else _key(tid))


def _key(value: Any) -> Any:
    text = str(value)
    return int(text) if type(value) is str and text.isdecimal() and len(text) < 20 else text


class Table(NamedTuple):
    """Rows made of records.

    Attributes:
        frame: the rows.
        unread: numbers in them that are too large for what they stand for, and so null.
    """

    frame: pd.DataFrame
    unread: int


def events_of(slices: Slices, kinds: Kinds, threads: Threads) -> Table:
    """The events of a rank (``schema.EVENTS``), in order."""
    records = slices.records
    args = [e.args if type(e.args) is Args else _NO_ARGS for e in records]
    column = _Columns()
    shaped = [payload_of(a, e.name) if e.name.startswith(_WITH_SHAPES) else NO_PAYLOAD for e, a in zip(records, args, strict=True)]
    rows = np.flatnonzero(kinds.on_device)
    placed = [(records[i], args[i], records[i].pid == _OLD_DEVICES) for i in rows.tolist()]
    device = [_track(a.device, e.tid if old else e.pid) for e, a, old in placed]
    stream = [_track(a.stream, None if old else e.tid) for e, a, old in placed]
    group_ranks = [a.group_ranks for a in args]
    columns: dict[str, Any] = {
        "ts": slices.ts,
        "dur": slices.dur,
        "kind": kinds.column,
        "name": pd.Categorical([e.name for e in records]),
        "thread": threads.of(records),
        "device": _spread(column.numbers(device, integer, "Int32"), rows, len(args)),
        "stream": _spread(column.numbers(stream, integer), rows, len(args)),
        "correlation": column.numbers([a.correlation for a in args], integer),
        "external_id": column.numbers([a.external_old if a.external_id is None else a.external_id for a in args], integer),
        "sequence": column.numbers([a.sequence for a in args], natural),
        "fwd_thread": column.numbers([a.fwd_thread for a in args], natural),
        "collective": column.texts([a.collective for a in args], lambda v: v if type(v) is str else None),
        "group": column.texts([a.group for a in args], label),
        "group_desc": column.texts([a.group_desc for a in args], label),
        "group_ranks": column.texts(group_ranks, ranks_of),
        "group_cut": column.texts(group_ranks, cut_ranks),
        "group_size": column.numbers([a.group_size for a in args], integer),
        "seq": column.numbers([a.seq for a in args], natural),
        "peer": column.numbers([peer_of(a, s.peer) if _has_peer(a) else s.peer for a, s in zip(args, shaped, strict=True)], natural),
        "nbytes": column.numbers([payload_bytes(a, s, k) if _sized(a, s) else None for a, s, k in zip(args, shaped, kinds.column, strict=True)], integer),
        "elements": column.numbers([s.elements if s.dtype is None else None for s in shaped], integer),
        "dtype": column.texts([label(a.dtype) or s.dtype for a, s in zip(args, shaped, strict=True)], label),
        "recompute": np.zeros(len(records), bool),
        "action": column.texts([a.action for a in args], lambda v: v if type(v) is str else None),
    }
    frame = schema.conform(pd.DataFrame(columns), schema.EVENTS)
    order = np.lexsort((-slices.dur, slices.ts, columns["thread"]))
    return Table(frame.iloc[order].reset_index(drop=True), column.unread)


def samples_of(instants: list[Event], base: int, threads: Threads) -> Table:
    """The memory events of a rank (``schema.SAMPLES``), in order of time. Old traces give neither addresses nor totals."""
    ts, ok = nanoseconds([bytes(e.ts) for e in instants])
    args = [e.args if type(e.args) is Args else _NO_ARGS for e in instants]
    column = _Columns()
    types = column.numbers([a.device_type for a in args], integer)
    on_cpu = pd.array(types).fillna(-1).to_numpy(np.int64) == 0
    frame = pd.DataFrame(
        {
            "ts": ts + base,
            "thread": threads.of(instants),
            "device_type": types,
            "device": column.numbers([None if cpu else a.device_id for a, cpu in zip(args, on_cpu.tolist(), strict=True)], natural),
            "addr": column.numbers([a.addr for a in args], integer, "UInt64"),
            "nbytes": column.numbers([a.nbytes for a in args], integer),
            "allocated": column.numbers([a.allocated for a in args], integer),
            "reserved": column.numbers([a.reserved for a in args], integer),
        },
        index=range(len(args)),
    )
    frame = frame[ok & in_range(ts, base) & frame["nbytes"].notna().to_numpy()]
    return Table(schema.conform(frame.sort_values("ts", kind="stable").reset_index(drop=True), schema.SAMPLES), column.unread)


class _Columns:
    """Makes nullable columns of raw values, and counts the numbers that did not fit."""

    def __init__(self) -> None:
        self.unread = 0

    def numbers(self, values: list[Any], read: Callable[[Any], int | None], dtype: str = "Int64") -> pd.arrays.IntegerArray:
        """Numbers as ``read`` takes them (``integer`` or ``natural``); null where there is none."""
        kinds = set(map(type, values))
        if kinds <= {int, type(None)}:
            fast = _whole_numbers(values, 0 if read is natural else None, dtype)
            if fast is not None:
                return fast
        found = numbers([read(v) for v in values], dtype)
        self.unread += sum(1 for v in np.asarray(_objects(values)[found.isna()]) if _too_large(v, dtype))
        return found

    def texts(self, values: list[Any], read: Callable[[Any], str | None]) -> pd.Categorical:
        """Texts as ``read`` takes them; it is asked once per distinct text."""
        if set(map(type, values)) <= {str, type(None)}:
            meaning = {value: None if value is None else read(value) for value in set(values)}
            return pd.Categorical([meaning[value] for value in values])
        return pd.Categorical([read(value) for value in values])


def _whole_numbers(values: list[int | None], least: int | None, dtype: str) -> pd.arrays.IntegerArray | None:
    """A column of Python integers, those below ``least`` null; None where one does not fit."""
    objects = _objects(values)
    known = ~pd.isna(objects)
    data = np.zeros(len(values), np.int64)
    try:
        data[known] = objects[known].astype(np.int64)
    except OverflowError:
        return None
    limits = np.iinfo(dtype.lower())
    if data.min(initial=0) < limits.min or data.max(initial=0) > limits.max:
        return None
    known &= data >= (limits.min if least is None else least)
    return pd.arrays.IntegerArray(np.where(known, data, 0).astype(dtype.lower()), ~known)


def _sized(a: Args, payload: Payload) -> bool:
    return a.copied is not None or a.collective is not None or payload.elements is not None


def _has_peer(a: Args) -> bool:
    return a.src is not None or a.dst is not None


def _objects(values: list[Any]) -> Any:
    return np.fromiter(values, object, len(values))


def _too_large(value: Any, dtype: str) -> bool:
    """Whether a value is a number that its column does not hold."""
    if type(value) is str:
        return value.removeprefix("-").isdecimal() and len(value) > 9
    return type(value) in (int, float) and not abs(value) <= np.iinfo(dtype.lower()).max


def _track(stated: Any, track: Any) -> Any:
    """Device or stream of device work: what it states, else the track on which it is drawn, such as ``stream 7``."""
    value = track if stated is None else stated
    found = _NUMBER_AT_END.search(value) if type(value) is str and integer(value) is None else None
    return int(found[1]) if found and len(found[1]) < 19 else value


def _spread(values: pd.arrays.IntegerArray, rows: Rows, length: int) -> pd.arrays.IntegerArray:
    """A column that holds values at rows, and null elsewhere."""
    data, null = np.zeros(length, np.int64), np.ones(length, bool)
    data[rows], null[rows] = values.to_numpy(np.int64, na_value=0), values.isna()
    return pd.arrays.IntegerArray(data, null)
