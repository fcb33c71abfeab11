"""What does a Kineto (torch.profiler) or other Chrome trace say? Bytes -> RankTrace, times exact to the nanosecond.

All eras and makes are read: PyTorch 1.8 to today on CUDA, ROCm, XPU, MTIA and AIU, torch's exporter from before Kineto, and
plain Chrome traces. Slices (complete, or a begin and an end) and ``[memory]`` instants become rows; ``displayTimeUnit`` says
how a viewer shows times, never what they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.errors import InputError
from tracekit.group_ranks import MOST_RANKS
from tracekit.numbers import LATEST, below, integer, natural
from tracekit.readers.chrome_comms import process_groups
from tracekit.readers.chrome_events import Threads, events_of, samples_of, thread_key
from tracekit.readers.chrome_file import opened
from tracekit.readers.chrome_flows import with_arrows
from tracekit.readers.chrome_kinds import GPU_WORK, Kinds, kinds_of
from tracekit.readers.chrome_records import Args, Event, File, Note, label
from tracekit.readers.chrome_slices import Slices, slices_of
from tracekit.readers.json_text import BYTE_ORDER_MARK, as_utf8
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Kind

_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"displayTimeUnit"', b'"distributedInfo"')
_LIST = re.compile(rb"\[\s*(?:\{|$)")


def sniff(head: bytes) -> bool:
    """Whether the first bytes (decompressed) look like a Chrome trace: an object with its keys, or a list of events."""
    start = as_utf8(head).removeprefix(BYTE_ORDER_MARK).lstrip()
    if start.startswith(b"{"):
        return any(key in start for key in _KEYS)
    return bool(_LIST.match(start)) and b'"ph"' in start


def read(data: bytes, path: Path, reading: Reading = DEFAULT) -> tuple[RankTrace, ...]:
    """Decode one rank's trace.

    Args:
        data: the decompressed file.
        path: where it came from, for messages.
        reading: caps, and whether to salvage.

    Raises:
        InputError: the text is cut or malformed (with byte and line), contradicts itself, or holds no events.
    """
    file, notes = opened(data, path, reading)
    try:
        return (_trace(file, notes, path, reading),)
    except RecursionError as error:  # a value that only Python finds too deep
        raise InputError("nested too deeply to be a trace; record or export the trace again", path) from error


def _trace(file: File, notes: tuple[Note, ...], path: Path, reading: Reading) -> RankTrace:
    """The trace that the records of a file make."""
    records = [e for e in file.events or [] if type(e) is Event]
    base, unplaced = _base(file)
    reading.says("decode", 0.75)
    slices = slices_of(records, base)
    reading.says("tables", events=len(slices.records))
    kinds = kinds_of(slices.records)
    threads = Threads()
    events = events_of(slices, kinds, threads)
    events = events._replace(frame=with_arrows(events.frame, records, base, threads))
    instants = [e for e in records if e.name == "[memory]" and bytes(e.ts) and e.args is not None]
    samples = samples_of(instants, base, threads)
    if not len(samples.frame) and not events.frame["kind"].ne(Kind.OTHER).any():
        raise InputError(_nothing(file, slices), path, 0)
    notes += _notes(file, records, slices, kinds, events.frame)
    if unplaced:
        notes += (Note("time_base_unusable", "warning", "baseTimeNanoseconds is no usable number: times count from an unknown beginning"),)
    if unread := events.unread + samples.unread:
        says = f"{unread} numbers are too large for what they stand for (an id, a device, a size): each counts as unknown"
        notes += (Note("numbers_too_large", "warning", says, unread),)
    if dropped := len(instants) - len(samples.frame):
        notes += (Note("memory_events_dropped", "warning", f"{dropped} memory events without a usable time or size were left out", dropped),)
    if lacking := int(samples.frame[["addr", "allocated"]].isna().any(axis=1).sum()):
        says = f"{lacking} memory events lack an address or a total (old traces do): levels count from the start of the recording, and no owners can be told"
        notes += (Note("memory_events_incomplete", "info", says, lacking),)
    trace = RankTrace(events.frame, samples.frame, _meta(file, path, records, kinds, threads))
    for note in notes:
        trace = trace.with_finding(note.code, note.severity, note.says, file=str(path), count=note.number, offset=note.offset)
    return trace


def _base(file: File) -> tuple[int, bool]:
    """What is added to every time, ns, and whether the file states something that cannot be."""
    base = integer(file.base)
    usable = base is not None and abs(base) <= LATEST
    return (base if base is not None and usable else 0), file.base is not None and not usable


def _nothing(file: File, slices: Slices) -> str:
    count = len(file.events or [])
    if slices.dropped or slices.negative:
        return f"the trace holds 0 events that can be used: {slices.dropped + slices.negative} slices have no usable time or name; record it again"
    rest = f" ({count} records, none of them a slice of work)" if count else ""
    return f"the trace holds 0 events{rest}; was the profiler's active window reached?"


def _notes(file: File, records: list[Event], slices: Slices, kinds: Kinds, events: pd.DataFrame) -> tuple[Note, ...]:
    """What is odd about the records."""
    strange = len(file.events or []) - len(records)
    no_object = sum(1 for e in records if e.args is not None and type(e.args) is not Args)
    placeless = int((events["kind"].isin(list(GPU_WORK)) & events["device"].isna()).sum())
    unknown = ", ".join(f"{category[:40]!r} ({count})" for category, count in sorted(kinds.unknown.items())[:5])
    found = (
        ("records_no_objects", strange, "entries between the events are no objects; they were passed over"),
        ("arguments_no_objects", no_object, "records have arguments that are no object; they were read without them"),
        ("records_dropped", slices.dropped, "slices without a usable time or name were left out"),
        ("negative_durations", slices.negative, "slices end before they begin; they were left out"),
        ("slices_without_end", slices.begins, "slices begin (ph B) and never end; they were left out"),
        ("slices_without_begin", slices.ends, "slices end (ph E) and never began; they were left out"),
        ("categories_unknown", sum(kinds.unknown.values()), f"slices are of categories that are not known here: {unknown}; they count as no work"),
        ("categories_missing", kinds.without, "slices have no category: they were read as ranges, and device work among them is not known as such"),
        ("device_unknown", placeless, "kernels and copies name no device; they are in no figure of a device"),
    )
    notes = tuple(Note(code, "warning", f"{count} {says}", count) for code, count, says in found if count)
    if slices.asynchronous:
        says = f"{slices.asynchronous} asynchronous ranges (ph b or S) are not read"
        notes += (Note("asynchronous_not_read", "info", says, slices.asynchronous),)
    return notes


def _meta(file: File, path: Path, records: list[Event], kinds: Kinds, threads: Threads) -> RankMeta:
    info = file.distributed if isinstance(file.distributed, dict) else {}
    devices = file.devices if isinstance(file.devices, list) else []
    named = [e for e in records if e.ph == "M" and e.name == "thread_name" and type(e.args) is Args]
    names = {thread_key(e.pid, e.tid): e.args.thread_name for e in named}  # type: ignore[union-attr]
    base, unplaced = _base(file)
    return RankMeta(
        rank=below(natural(info.get("rank")), MOST_RANKS),
        world_size=below(natural(info.get("world_size")), MOST_RANKS + 1),
        backend=label(info.get("backend")),
        host=label(file.host),
        device_type=_device_type(kinds),
        base_ns=None if file.base is None or unplaced else base,
        device_names=tuple(str(d.get("name")) for d in devices if isinstance(d, dict)),
        files=(str(path),),
        groups=process_groups(info.get("pg_config")),
        threads={code: str(names.get(key) or f"{key[0]}/{key[1]}") for key, code in threads.codes.items()},
        profile_memory=_flag(file.profile_memory),
        with_modules=_flag(file.with_modules),
        record_shapes=_flag(file.record_shapes),
    )


def _device_type(kinds: Kinds) -> str | None:
    """Where the work ran; None where nothing but ranges without a category is there."""
    if kinds.column.isin(list(GPU_WORK)).any():
        return "gpu"
    return None if kinds.without and kinds.without == len(kinds.column) else "cpu"


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
