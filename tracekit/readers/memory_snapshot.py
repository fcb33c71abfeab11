"""What does a CUDA memory snapshot say? The allocator's events of each device, with absolute levels; pickle or JSON.

``torch.cuda.memory._dump_snapshot`` writes the blocks that exist (``segments``) and what happened before
(``device_traces``: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom).
Sizes are requested bytes; torch's own counters show whole blocks. No record names a thread or a profiler's operator; the stack that
it was noted with says in which part of training it happened (``memory_stacks``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.columns import nullable
from tracekit.errors import InputError
from tracekit.numbers import LATEST, below, natural, numbers
from tracekit.readers import pickles
from tracekit.readers.memory_replay import Ints, Level, highest, replay
from tracekit.readers.memory_stacks import Stacks
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

#: torch's DeviceType of CUDA memory.
_CUDA = 1
#: No device has so much memory; sums of sizes below it stay exact.
_MOST_BYTES = 1 << 48
_GROWS, _SHRINKS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
#: Records that mark a moment and change no level.
_MARKS = ("oom", "snapshot", "user_defined", "workspace_snapshot")
_KNOWN = frozenset({"alloc", "free_requested", "free_completed", *_GROWS, *_SHRINKS, *_MARKS})
#: Records whose stacks tell what a block was for.
_STACKED = ("alloc", "free_requested")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def sniff(head: bytes) -> bool:
    """Whether the first bytes (decompressed) look like a memory snapshot, pickled or as JSON."""
    start = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    quote = b'"' if start.startswith(b"{") else b""
    if not quote and not pickles.is_pickle(head):
        return False
    holds = {key for key in (b"device_traces", b"segments", b"total_size", b"free_requested") if quote + key + quote in head}
    return b"device_traces" in holds or {b"segments", b"total_size"} <= holds


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """The memory events of one process.

    Args:
        data: the decompressed file.
        path: for messages.
        reading: caps; ``salvage`` reads what a cut pickle still holds.

    Returns:
        One RankTrace with samples (one per allocation, free and change of the reserved memory; no thread), the table
        ``memory_snapshots``, where records have stacks the tables ``memory_stacks`` and ``memory_standing``, and as events the ranges
        that torch wrote into the snapshot, if any.

    Raises:
        InputError: it is cut or damaged, holds no snapshot, or passes a cap.
    """
    snapshot, cut = _load(data, path, reading)
    traces, segments = snapshot.get("device_traces"), snapshot.get("segments")
    if not isinstance(traces, Sequence) or isinstance(traces, str):
        if not isinstance(segments, list):
            raise InputError("holds no device_traces: not what torch.cuda.memory._dump_snapshot writes; dump the snapshot again", path)
        traces = []
    records = sum(len(t) for t in traces if isinstance(t, list))
    if records > reading.max_events:
        raise InputError(f"holds {records} records, more than {reading.max_events}; raise --max-events", path)
    if cut is not None:
        segments = None  # the blocks at the end are not those at the end of what could be read
    clock, devices, stacks = reading.started(), [], Stacks()
    for number in _numbers(traces, segments):
        clock.check(path)
        devices.append(_Device(number, traces[number] if number < len(traces) else [], segments, stacks))
    if not devices:
        raise InputError("an empty snapshot: no records and no segments; call torch.cuda.memory._record_memory_history() before the steps to look at", path)
    samples = pd.concat([d.samples() for d in devices]).sort_values("ts", kind="stable").reset_index(drop=True)
    trace = RankTrace(
        events=_ranges(snapshot.get("external_annotations")),
        samples=schema.conform(samples, schema.SAMPLES),
        meta=RankMeta(files=(str(path),), threads={0: "annotations of the memory snapshot"}),
        stated={"memory_snapshots": schema.conform(pd.DataFrame([d.row() for d in devices]), schema.MEMORY_SNAPSHOTS), **_stacks(devices, stacks)},
    )
    return (_judged(trace, devices, path, cut),)


def _load(data: bytes, path: Path, reading: Reading) -> tuple[Mapping[str, Any], int | None]:
    """The snapshot, and the byte at which a cut one stops being readable."""
    cut = None
    if pickles.is_pickle(data):
        loaded = pickles.load(data, path, reading)
        value, cut = loaded.value, loaded.cut
    else:
        try:
            value = msgspec.json.decode(data.removeprefix(_BYTE_ORDER_MARK))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"not valid JSON ({error}; the file has {len(data)} bytes); dump the snapshot again", path) from error
    if not isinstance(value, dict):
        raise InputError("holds no snapshot: a dictionary with device_traces and segments is expected; dump it again", path)
    return value, cut


def _numbers(traces: Sequence[Any], segments: Any) -> list[int]:
    """Devices that have records or segments."""
    held = {natural(s.get("device")) for s in segments if isinstance(s, dict)} if isinstance(segments, list) else set()
    return sorted({i for i, t in enumerate(traces) if t} | {n for n in held if n is not None and n < 1 << 16})


class _Device:
    """One device of a snapshot: its records as columns, and the levels that follow from them."""

    def __init__(self, number: int, trace: Any, segments: Any, stacks: Stacks) -> None:
        entries = [e for e in trace if type(e) is dict] if isinstance(trace, list) else []
        actions = [e.get("action") for e in entries]
        self.number = number
        self.action = np.array([a if type(a) is str else str(a) for a in actions], object)
        addr = numbers([natural(e.get("addr")) for e in entries], "Int64")
        size = numbers([_size(e.get("size")) for e in entries], "Int64")
        time = numbers([natural(e.get("time_us")) for e in entries], "Int64")
        counts = np.isin(self.action, ["alloc", "free_requested", "free_completed", *_GROWS, *_SHRINKS])
        unusable = counts & np.asarray(addr.isna() | size.isna())
        self.unusable = int(unusable.sum()) + (len(trace) - len(entries) if isinstance(trace, list) else 0)
        self.action[unusable] = ""
        self.addr = np.asarray(addr.fillna(0)).astype(np.uint64)
        self.size = np.asarray(size.fillna(0), np.int64)
        self.unknown = Counter(str(a)[:40] for a in self.action[~np.isin(self.action, [*_KNOWN, ""])])
        us = np.asarray(time.fillna(LATEST), np.int64)
        self.untimed = int((us >= LATEST // 1000).sum())
        self.timed = not self.untimed and bool(len(us))
        forward = np.maximum.accumulate(us) if self.timed else np.arange(len(us))
        self.backward = int((forward != us).sum()) if self.timed else 0
        self.ts: Ints = forward * 1000 if self.timed else forward
        self.listed = isinstance(segments, list)
        own = [s for s in segments if isinstance(s, dict) and s.get("device") == number] if self.listed else []
        self.segments = own
        self.blocks = _blocks(own)
        self.stack = stacks.codes([e if a in _STACKED else {} for e, a in zip(entries, self.action, strict=True)])
        self.blocks["stack"] = stacks.codes([b for s in own for b in _listed(s) if isinstance(b, dict)])
        self.allocated = self._level("free_requested", ("active_allocated",))
        self.active = self._level("free_completed", ("active_allocated", "active_awaiting_free", "active_pending_free"))
        change = self.size * (np.isin(self.action, _GROWS).astype(np.int64) - np.isin(self.action, _SHRINKS))
        self.reserved_end = sum(_size(s.get("total_size")) or 0 for s in own)
        self.reserved_before = self.reserved_end - int(change.sum())
        self.reserved: Ints = self.reserved_before + np.cumsum(change)

    def _level(self, free: str, states: tuple[str, ...]) -> Level:
        change = self.size * ((self.action == "alloc").astype(np.int64) - (self.action == free))
        live = self.blocks[self.blocks["state"].isin(states)]
        return replay(self.addr, change, live["addr"].to_numpy(np.uint64), live["requested"].to_numpy(np.int64))

    def _tells_expandable(self) -> bool:
        return all(type(s.get("is_expandable")) is bool for s in self.segments)

    def standing(self) -> pd.DataFrame:
        """Rows of ``schema.MEMORY_STANDING``."""
        made = np.unique(self.addr[self.action == "alloc"])
        old = self.blocks[self.blocks["state"].eq("active_allocated") & self.blocks["stack"].ge(0) & ~self.blocks["addr"].isin(made)]
        return pd.DataFrame({"device": self.number, "addr": old["addr"], "nbytes": old["requested"], "stack": old["stack"]})

    def samples(self) -> pd.DataFrame:
        """Rows of ``schema.SAMPLES``; what changes the reserved memory has 0 bytes."""
        made, freed = self.action == "alloc", self.action == "free_requested"
        rows = np.flatnonzero(made | freed | np.isin(self.action, [*_GROWS, *_SHRINKS]))
        return pd.DataFrame(
            {
                "ts": self.ts[rows],
                "thread": pd.array([None] * len(rows), "Int32"),
                "device_type": _CUDA,
                "device": self.number,
                "addr": self.addr[rows],
                "nbytes": (self.size * (made.astype(np.int64) - freed))[rows],
                "allocated": self.allocated.after[rows],
                "reserved": pd.array(self.reserved[rows], "Int64") if self.listed else pd.array([None] * len(rows), "Int64"),
                "stack": nullable(self.stack[rows]),
            }
        )

    def row(self) -> dict[str, Any]:
        """One row of ``schema.MEMORY_SNAPSHOTS``."""
        peak, at = self.allocated.peak()
        active, active_at = self.active.peak()
        reserved, reserved_at = highest(self.reserved_before, self.reserved)
        idle = self.blocks.loc[self.blocks["state"].eq("inactive"), "size"]
        known: dict[str, Any] = {
            "allocated_before_bytes": self.allocated.before,
            "allocated_untouched_bytes": self.allocated.untouched_bytes,
            "allocated_peak_bytes": peak,
            "allocated_peak_record": at,
            "allocated_peak_ts_ns": int(self.ts[at]) if self.timed and at is not None else None,
            "allocated_end_bytes": int(self.allocated.after[-1]) if len(self.ts) else self.allocated.before,
            "rounded_peak_bytes": highest(self.allocated.rounded_before, self.allocated.rounded)[0],
            "active_peak_bytes": active,
            "active_peak_record": active_at,
            "reserved_before_bytes": self.reserved_before,
            "reserved_peak_bytes": reserved,
            "reserved_peak_record": reserved_at,
            "reserved_end_bytes": self.reserved_end,
            "segments": len(self.segments),
            "blocks_end_bytes": sum(_size(s.get("allocated_size")) or 0 for s in self.segments),
            "inactive_end_bytes": int(idle.sum()),
            "largest_inactive_end_bytes": int(idle.max()) if len(idle) else 0,
            "split_inactive_end_bytes": _split_inactive(self.blocks),
            "expandable_segments": sum(s.get("is_expandable") is True for s in self.segments) if self._tells_expandable() else None,
        }
        return {
            "device": self.number,
            "records": len(self.ts),
            "allocations": int((self.action == "alloc").sum()),
            "frees": int((self.action == "free_requested").sum()),
            "frees_without_alloc": self.allocated.freed_before,
            "failed_allocations": int((self.action == "oom").sum()),
            "timed": self.timed,
            "first_ts_ns": int(self.ts[0]) if self.timed else None,
            "last_ts_ns": int(self.ts[-1]) if self.timed else None,
            **(known if self.listed else dict.fromkeys(known)),
        }


def _size(value: Any) -> int | None:
    """Bytes; None where it is no number, or more than any device has."""
    return below(natural(value), _MOST_BYTES)


def _split_inactive(blocks: pd.DataFrame) -> int:
    """Bytes of free blocks in segments of which another block is still in use."""
    free = blocks["state"].eq("inactive")
    in_use = (~free).groupby(blocks["segment"]).transform("any")
    return int(blocks.loc[free & in_use, "size"].sum())


def _blocks(segments: list[dict[str, Any]]) -> pd.DataFrame:
    """Blocks of the segments: addr, size, requested, state, segment. Old snapshots give no address: blocks then follow one another."""
    rows: list[tuple[int, int, int, str, int]] = []
    for number, segment in enumerate(segments):
        at = natural(segment.get("address")) or 0
        for block in _listed(segment):
            if isinstance(block, dict):
                size = _size(block.get("size")) or 0
                own, requested = natural(block.get("address")), _size(block.get("requested_size"))
                rows.append((at if own is None else own, size, size if requested is None else requested, str(block.get("state")), number))
                at = rows[-1][0] + size
    columns = list(zip(*rows, strict=True)) or [(), (), (), (), ()]
    kinds: tuple[npt.DTypeLike, ...] = (np.uint64, np.int64, np.int64, object, np.int64)
    return pd.DataFrame({n: np.array(c, k) for n, c, k in zip(("addr", "size", "requested", "state", "segment"), columns, kinds, strict=True)})


def _listed(segment: dict[str, Any]) -> list[Any]:
    blocks = segment.get("blocks")
    return blocks if isinstance(blocks, list) else []


def _stacks(devices: list[_Device], stacks: Stacks) -> dict[str, pd.DataFrame]:
    """The stacks of the records, where they have any, and the blocks that stood throughout."""
    table = stacks.table()
    if not len(table):
        return {}
    standing = pd.concat([d.standing() for d in devices], ignore_index=True)
    return {"memory_stacks": table, "memory_standing": schema.conform(standing, schema.MEMORY_STANDING)}


def _ranges(annotations: Any) -> pd.DataFrame:
    """User ranges that torch noted (START and END by name), once although every device repeats them."""
    marks = [a for a in annotations if isinstance(a, dict)] if isinstance(annotations, list) else []
    first = min((natural(a.get("device")) or 0 for a in marks), default=0)
    opened: dict[str, list[int]] = {}
    rows = []
    for mark in marks:
        name, at = mark.get("name"), natural(mark.get("time_us"))
        if type(name) is not str or at is None or at >= LATEST // 1000 or (natural(mark.get("device")) or 0) != first:
            continue
        if mark.get("stage") == "START":
            opened.setdefault(name, []).append(at)
        elif opened.get(name):
            begun = opened[name].pop()
            rows.append((name, begun * 1000, max(at - begun, 0) * 1000))
    if not rows:
        return schema.empty(schema.EVENTS)
    names, ts, dur = zip(*rows, strict=True)
    frame = pd.DataFrame({"ts": np.array(ts, np.int64), "dur": np.array(dur, np.int64), "name": pd.Categorical(names), "thread": 0, "recompute": False})
    frame = frame.assign(kind=pd.Categorical([Kind.RANGE] * len(frame), categories=list(Kind)))
    order = np.lexsort((-frame["dur"].to_numpy(), frame["ts"].to_numpy()))
    return schema.conform(frame, schema.EVENTS).iloc[order].reset_index(drop=True)


def _judged(trace: RankTrace, devices: list[_Device], path: Path, cut: int | None) -> RankTrace:
    """The trace with what is odd about the snapshot."""
    file = str(path)
    if cut is not None:
        says = f"the snapshot stops being readable at byte {cut}: only the records before it are read, and levels count from what they freed"
        trace = trace.with_finding("snapshot_partial", "warning", says, file=file, offset=cut)
    elif not all(d.listed for d in devices):
        says = "the snapshot lists no segments: what stood before the record is not known, and levels count from what it freed"
        trace = trace.with_finding("snapshot_without_segments", "warning", says, file=file)
    freed = sum(d.allocated.freed_before for d in devices)
    if freed:
        nbytes = sum(d.allocated.freed_before_bytes for d in devices)
        says = (
            f"{freed} frees ({nbytes} bytes) are of blocks that were allocated before the record began (it was switched on late, or its ring buffer "
            "dropped the beginning): they count as standing before it"
        )
        trace = trace.with_finding("memory_freed_before_record", "warning", says, file=file, count=freed)
    untouched = sum(d.allocated.untouched for d in devices)
    if untouched:
        nbytes = sum(d.allocated.untouched_bytes for d in devices)
        says = f"{untouched} blocks ({nbytes} bytes) stood before the record began and to its end: how much is known, not what they are for"
        trace = trace.with_finding("memory_before_record", "info", says, file=file, count=untouched)
    untimed = sum(d.untimed for d in devices)
    if untimed:
        says = f"{untimed} records have no time_us (torch before 2.2 writes none): they are in order only, so no level has a time or a step"
        trace = trace.with_finding("memory_records_untimed", "warning", says, file=file, count=untimed)
    backward = sum(d.backward for d in devices)
    if backward:
        says = f"{backward} records have an earlier time than one before them: their order stands, and each was moved up to the latest time before it"
        trace = trace.with_finding("memory_records_out_of_order", "warning", says, file=file, count=backward)
    unknown = sum((d.unknown for d in devices), Counter[str]())
    if unknown:
        names = ", ".join(sorted(unknown)[:5])
        says = f"{unknown.total()} records have actions that are not known here ({names}): no level counts them"
        trace = trace.with_finding("memory_actions_unknown", "warning", says, file=file, count=unknown.total())
    unusable = sum(d.unusable for d in devices)
    if unusable:
        trace = trace.with_finding("records_dropped", "warning", f"{unusable} records without address or size were left out", file=file, count=unusable)
    repeated = sum(d.allocated.repeated for d in devices)
    vanished = sum(d.allocated.vanished for d in devices if d.listed)
    gap = sum(d.allocated.unexplained_bytes for d in devices if d.listed)
    if repeated or vanished or gap:
        says = (
            f"the records and the blocks at the end disagree by {gap} bytes ({repeated} blocks allocated where one stood, {vanished} gone without a "
            "free): levels may be off by as much"
        )
        trace = trace.with_finding("snapshot_inconsistent", "warning", says, file=file, count=repeated + vanished)
    failed = sum(int((d.action == "oom").sum()) for d in devices)
    if failed:
        says = f"the allocator ran out of memory {failed} times while it was recorded"
        trace = trace.with_finding("out_of_memory", "info", says, file=file, count=failed)
    return trace
