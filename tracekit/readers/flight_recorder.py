"""Which collectives did a rank enqueue, in which group and order, and how far did it come? A dump of torch's Flight Recorder.

Pickle (``torch._C._distributed_c10d._dump_nccl_trace``, ``_dump_fr_trace``; the files that a watchdog leaves) or JSON
(``_dump_fr_trace_json``), versions 2.0 to 2.10. Source: pytorch/pytorch, torch/csrc/distributed/c10d/FlightRecorder*.hpp;
torch/distributed/flight_recorder/components reads the same. A dump says nothing of itself but ring entries, process groups
and how far each group had come; the rank that wrote it stands in its sends and receives, else only in its file's name.
Peers are written as ranks within their group.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pandas as pd

from tracekit import schema
from tracekit.errors import InputError
from tracekit.group_ranks import MOST_RANKS, canonical
from tracekit.numbers import LATEST, below, integer, natural, numbers
from tracekit.readers import pickles
from tracekit.reading import Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import Collective, collective_of
from tracekit.widths import element_bytes

SOURCE = "flight_recorder"
#: The newest format that this was written against.
NEWEST = (2, 10)
_MOST_DIMS = 64
_STATES = frozenset({"scheduled", "started", "completed"})
_PEER = re.compile(r"(?P<what>send|recv)\s+(?P<own>\d{1,7})\s*(?:->|<-)\s*(?P<peer>\d{1,7})$")
_JSON = re.compile(rb'^(?:\xef\xbb\xbf)?\s*\{(?:\s*"version"\s*:\s*"[\d.]+"\s*,\s*"pg_config"|.*?"(?:entries"\s*:\s*\[|pg_status"\s*:\s*\{))', re.DOTALL)

_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class _Entry(msgspec.Struct):
    """One call; which fields there are depends on the version."""

    record_id: _Number | None = None
    pg_id: _Number | str | None = None
    process_group: list[str | int | None] | str | None = None
    collective_seq_id: _Number | None = None
    seq_id: _Number | None = None
    p2p_seq_id: _Number | None = None
    op_id: _Number | None = None
    profiling_name: str | None = None
    is_p2p: bool | None = None
    input_sizes: list[list[_Number]] | None = None
    input_dtypes: list[str] | None = None
    output_sizes: list[list[_Number]] | None = None
    output_dtypes: list[str] | None = None
    state: str | None = None
    time_created_ns: _Number | None = None
    time_discovered_completed_ns: _Number | None = None
    duration_ms: float | None = None


class _Dump(msgspec.Struct):
    entries: list[_Entry] = []
    version: str | float | None = None
    pg_config: dict[str, Any] | None = None
    pg_status: dict[str, Any] | None = None
    rank: _Number | None = None


class _Group(NamedTuple):
    """A process group as ``pg_config`` has it: global ranks in the order of its own ranks, () where unknown."""

    name: str
    desc: str | None
    ranks: tuple[int, ...] = ()

    @property
    def members(self) -> str | None:
        return canonical(self.ranks) or None


def sniff(head: bytes) -> bool:
    """Whether a file's first bytes are those of a dump, pickled or JSON."""
    if pickles.is_pickle(head):
        named = b"pg_config" in head or (b"entries" in head and (b"profiling_name" in head or b"version" in head))
        return named and b"device_traces" not in head
    words = (b'"profiling_name"', b'"pg_config"', b'"pg_status"', b'"nccl_version"', b'"comm_lib_version"')
    return _JSON.match(head) is not None and b'"traceEvents"' not in head and any(word in head for word in words)


def read(data: bytes, path: Path, reading: Reading) -> tuple[RankTrace, ...]:
    """The dump's entries as ``records``, its groups' progress as ``group_status``, and its process groups in ``meta.groups``.

    Args:
        data: the whole dump.
        path: for messages.
        reading: ``max_events`` caps the entries; ``salvage`` reads what a cut dump still holds.

    Raises:
        InputError: not a dump, cut, damaged, or a part that is computed with has another type; a pickle that asks for more than plain data.
    """
    content, after, cut = _loaded(data, path, reading)
    dump = _checked(content, path)
    if len(dump.entries) > reading.max_events:
        raise InputError(f"holds {len(dump.entries)} entries, more than {reading.max_events}; raise --max-events", path)
    groups, of_id = _groups(dump)
    rows = [_row(entry, groups, of_id) for entry in dump.entries]
    statuses, nameless = _statuses(dump, groups, of_id)
    trace = RankTrace(meta=_meta(dump, groups, rows), stated={"records": _frame(rows, schema.RECORDS), "group_status": statuses})
    return (_noted(trace, dump, path, data, after, cut, nameless),)


def _loaded(data: bytes, path: Path, reading: Reading) -> tuple[Any, int, int | None]:
    """The plain content, the byte after it, and the byte where it is cut."""
    if pickles.is_pickle(data):
        loaded = pickles.load(data, path, reading)
        return loaded.value, loaded.end, loaded.cut
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(text), len(data), None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if reading.salvage and (whole := _whole_entries(text)) is not None:
            return *whole, whole[1]
        found = re.search(r"\(byte (\d+)\)", str(error))
        at = int(found[1]) if found else len(data)
        says = f"not valid JSON at byte {at} ({error}): the dump is cut or damaged; copy it again, or read what is whole with --salvage"
        raise InputError(says, path, at) from error


def _whole_entries(text: bytes) -> tuple[Any, int] | None:
    """What a cut JSON dump holds up to its last whole entry, and the byte after that one."""
    start = re.search(rb'"entries"\s*:\s*\[', text)
    if start is None:
        return None
    whole, decoder = text.decode("utf-8", "surrogateescape"), json.JSONDecoder()
    at = end = len(text[: start.end()].decode("utf-8", "surrogateescape"))
    while (begin := re.compile(r"[\s,]*(?=\{)").match(whole, at)) is not None:
        try:
            _, at = decoder.raw_decode(whole, begin.end())
        except (ValueError, RecursionError):
            break
        end = at
    kept = whole[:end].encode("utf-8", "surrogateescape")
    try:
        return msgspec.json.decode(kept + b"]}"), len(kept)
    except (msgspec.DecodeError, RecursionError):
        return None


def _checked(content: Any, path: Path) -> _Dump:
    """The parts that are computed with, each of its type."""
    try:
        return msgspec.convert(content, _Dump, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"not what a Flight Recorder dump holds ({error}); dump it again or remove the file", path) from error


def _groups(dump: _Dump) -> tuple[dict[str, _Group], dict[str, str]]:
    """Process groups by name, and the name of each pg_id."""
    groups: dict[str, _Group] = {}
    of_id: dict[str, str] = {}
    for key, value in (dump.pg_config or {}).items():
        config = value if isinstance(value, Mapping) else {"ranks": value}
        name = str(config.get("name") or key)
        desc = config.get("desc")
        group = _Group(name, desc if isinstance(desc, str) and desc else None, _ranks(config.get("ranks")))
        # a name that two groups of one rank share names neither
        groups[name] = group if groups.get(name, group).ranks == group.ranks else _Group(name, None)
        if key != name:
            of_id[key] = name
    for entry in dump.entries:
        own = _name(entry)
        if entry.pg_id is not None and own is not None:
            of_id[str(entry.pg_id)] = own
    return {name: group for name, group in groups.items() if name}, of_id


def _ranks(value: Any) -> tuple[int, ...]:
    """Ranks as a list or as text (``"[0, 1]"``), in their order; () where they are cut, doubled or none."""
    if isinstance(value, str):
        value = re.findall(r"\d+", value) if re.fullmatch(r"[\[(]?[\d\s,]*[\])]?", value) else ()
    ranks = [below(natural(v), MOST_RANKS) for v in value] if isinstance(value, (list, tuple)) and len(value) <= MOST_RANKS else []
    return tuple(r for r in ranks if r is not None) if None not in ranks and len(set(ranks)) == len(ranks) else ()


def _name(entry: _Entry) -> str | None:
    """Name of an entry's group as the entry itself has it."""
    group = entry.process_group
    return group if isinstance(group, str) else str(group[0]) if group and group[0] is not None else None


def _row(entry: _Entry, groups: Mapping[str, _Group], of_id: Mapping[str, str]) -> dict[str, Any]:
    """One entry as a row of ``schema.RECORDS``, with ``own`` (this rank as its send or receive says) beside."""
    name = _name(entry)
    if name is None and entry.pg_id is not None:
        name = of_id.get(str(entry.pg_id), str(entry.pg_id))
    group = groups.get(name or "", _Group(name or "", None))
    listed = entry.process_group if isinstance(entry.process_group, list) else []
    desc = listed[1] if len(listed) > 1 and isinstance(listed[1], str) else group.desc
    written = entry.profiling_name or ""
    what, peer = written.partition(":")[2] or written, _PEER.search(written)
    kind = collective_of(what)
    p2p = bool(entry.is_p2p) or kind in (Collective.SEND, Collective.RECV)
    if "coalesced" in what and kind is None and p2p:
        kind = Collective.SEND_RECV
    seq = entry.collective_seq_id if entry.collective_seq_id is not None else entry.seq_id
    nbytes, dtype, shape = _size(entry, kind, len(group.ranks))
    done = (entry.time_discovered_completed_ns or 0) > 0
    return {
        "source": SOURCE,
        "kind": None if kind is None else str(kind),
        "name": written or None,
        "group": name,
        "group_desc": desc,
        "group_ranks": group.members,
        "group_size": len(group.ranks) or None,
        "seq": (entry.p2p_seq_id if entry.p2p_seq_id is not None else seq) if p2p else seq,
        "p2p": p2p,
        "peer": _member(group, peer["peer"]) if peer else None,
        "own": _member(group, peer["own"]) if peer else None,
        "nbytes": nbytes,
        "dtype": dtype,
        "shape": shape,
        "record": entry.record_id,
        "state": "completed" if done else entry.state if entry.state in _STATES else None,
        "created_ns": entry.time_created_ns or None,
        "duration_ns": _nanoseconds(entry.duration_ms),
    }


def _member(group: _Group, rank: str) -> int | None:
    return group.ranks[int(rank)] if int(rank) < len(group.ranks) else None


def _nanoseconds(milliseconds: float | None) -> int | None:
    usable = milliseconds is not None and math.isfinite(milliseconds) and 0 <= milliseconds * 1e6 < LATEST
    return round(milliseconds * 1e6) if usable and milliseconds is not None else None


def _size(entry: _Entry, kind: Collective | None, size: int) -> tuple[int | None, str | None, str | None]:
    """nccl-tests' size, element type and shape of the input: ``4096x1x5120``, several tensors joined by ``+``."""
    given, taken = _bytes(entry.input_sizes, entry.input_dtypes), _bytes(entry.output_sizes, entry.output_dtypes)
    of_one, whole = (taken, given) if kind in (Collective.REDUCE_SCATTER, Collective.SCATTER) else (given, taken)
    if kind in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.GATHER, Collective.SCATTER):
        nbytes = whole if whole is not None else of_one * size if of_one is not None and size else None
    elif kind == Collective.RECV:
        nbytes = taken if taken is not None else given
    else:
        nbytes = given if given is not None else taken
    dtype = next(iter([*(entry.input_dtypes or ()), *(entry.output_dtypes or ())]), None)
    shapes = entry.input_sizes or entry.output_sizes or []
    shape = "+".join("x".join(map(str, dims)) or "1" for dims in shapes[:8]) + ("+…" if len(shapes) > 8 else "")
    return below(nbytes, LATEST), dtype, shape or None


def _bytes(sizes: Sequence[Sequence[int]] | None, dtypes: Sequence[str] | None) -> int | None:
    """Bytes of a list of tensors; None where there is none, or a type is unknown."""
    if not sizes or not dtypes or not all(len(dims) <= _MOST_DIMS and all(n >= 0 for n in dims) for dims in sizes):
        return None
    # of several tensors some versions name the type once
    widths = [element_bytes(dtype) for dtype in (dtypes if len(dtypes) == len(sizes) else [dtypes[0]] * len(sizes))]
    if None in widths or (len(dtypes) != len(sizes) and len(set(dtypes)) > 1):
        return None
    return sum(math.prod(dims) * width for dims, width in zip(sizes, widths, strict=True) if width is not None)


def _frame(rows: list[dict[str, Any]], table: schema.Table) -> pd.DataFrame:
    """Rows as a frame of a table; integers stay exact."""
    columns = {}
    for name, column in table.items():
        values = [row.get(name) for row in rows]
        columns[name] = pd.Series(numbers(values, "Int64") if column.dtype == "Int64" else values, dtype=column.dtype)
    return schema.conform(pd.DataFrame(columns), table)


def _statuses(dump: _Dump, groups: Mapping[str, _Group], of_id: Mapping[str, str]) -> tuple[pd.DataFrame, int]:
    """``pg_status`` as ``schema.GROUP_STATUS``, and how many of its ids name no group.

    Keys are names of groups, or ids. An id's name stands in the entries of its group; where the rank has none of a group,
    ids and names that are numbers count up in the same order.
    """
    status = {key: value for key, value in (dump.pg_status or {}).items() if isinstance(value, Mapping)}
    names = {key: key for key in status}
    if not set(status) <= set(groups) or any(of_id.get(key, key) != key for key in status):
        in_order = _by_order(status, groups)
        agree = all(in_order.get(key, name) == name for key, name in of_id.items())
        names = {**in_order, **of_id} if agree else dict(of_id)
    described = {
        name: entry.process_group[1] for entry in dump.entries if isinstance(entry.process_group, list) and (name := _name(entry)) and entry.process_group[1:]
    }
    rows = []
    for key, value in status.items():
        name = names.get(key)
        if name is not None:
            desc = described.get(name)
            group = groups.get(name, _Group(name, desc if isinstance(desc, str) else None))
            rows.append({"group": name, "group_desc": group.desc, "group_ranks": group.members, **_progress(value, dump, name)})
    return _frame(rows, schema.GROUP_STATUS), len(status) - len(rows)


def _progress(status: Mapping[str, Any], dump: _Dump, name: str) -> dict[str, int | None]:
    """How far a group had come, 0 where nothing had. Gloo counts sends and receives in: its numbers are op_ids, led back to collectives here."""
    enqueued, started, completed = (integer(status.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed"))
    if any((e.profiling_name or "").startswith("gloo:") for e in dump.entries):
        calls = [(e.op_id, e.collective_seq_id) for e in dump.entries if e.op_id is not None and e.collective_seq_id is not None and _name(e) == name]
        enqueued, completed = (_collective_at(calls, last) for last in (enqueued, completed))
    return {
        "last_enqueued": None if enqueued is None else max(enqueued, 0),
        "last_started": started if started is not None and started >= 0 else None,
        "last_completed": None if completed is None else max(completed, 0),
    }


def _collective_at(calls: list[tuple[int, int]], op: int | None) -> int | None:
    """Number of the last collective up to an op_id; None where the ring no longer tells."""
    return max((seq for at, seq in calls if at <= op), default=None) if op is not None else None


def _by_order(status: Mapping[str, Any], groups: Mapping[str, _Group]) -> dict[str, str]:
    """Names of ids by order, where both are numbers and equally many."""
    if len(status) != len(groups) or not all(key.isdecimal() for key in (*status, *groups)):
        return {}
    return dict(zip(sorted(status, key=int), sorted(groups, key=int), strict=True))


def _meta(dump: _Dump, groups: Mapping[str, _Group], rows: list[dict[str, Any]]) -> RankMeta:
    own = {row["own"] for row in rows if row["own"] is not None}
    rank = dump.rank if dump.rank is not None else next(iter(own)) if len(own) == 1 else None
    world = next((g.ranks for g in groups.values() if g.desc == "default_pg" and sorted(g.ranks) == list(range(len(g.ranks)))), ())
    backends = {str(row["name"]).partition(":")[0] for row in rows if ":" in str(row["name"])}
    return RankMeta(
        rank=natural(rank),
        world_size=len(world) or None,
        backend=next(iter(backends)) if len(backends) == 1 else None,
        groups={name: {"desc": group.desc, "ranks": group.ranks} for name, group in groups.items()},
    )


def _noted(trace: RankTrace, dump: _Dump, path: Path, data: bytes, after: int, cut: int | None, nameless: int) -> RankTrace:
    """The trace with what is odd about its dump."""
    file = str(path)
    version = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", str(dump.version))
    if version is None or not (2, 0) <= (int(version[1]), int(version[2])) <= NEWEST:
        says = f"Flight Recorder version {str(dump.version)[:20]} is not one of 2.0 to {NEWEST[0]}.{NEWEST[1]}: fields that are new in it are not read"
        trace = trace.with_finding("flight_recorder_version", "warning", says, file=file)
    if cut is not None:
        says = f"the dump is cut or damaged at byte {cut}: {len(dump.entries)} whole entries before it were read, what follows is missing"
        trace = trace.with_finding("partial", "warning", says, file=file, offset=cut, count=len(dump.entries))
    elif after < len(data):
        trace = trace.with_finding("bytes_after_end", "warning", f"{len(data) - after} bytes after the dump's end were not read", file=file, offset=after)
    if nameless:
        says = f"{nameless} process groups of pg_status could not be told by name: how far they had come is left out"
        trace = trace.with_finding("group_status_nameless", "info", says, file=file, count=nameless)
    return trace
