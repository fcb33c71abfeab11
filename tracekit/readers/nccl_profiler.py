"""NCCL profiler-plugin events, one JSON object per line -> RankTrace: when did each rank call, and when did its kernel run?

Both a plugin's own events and the nested spans of NCCL's example plugin (``nccl_spans``) are read.

The plugin interface (NVIDIA/nccl, plugins/profiler/README.md) reports a collective as enqueued (``ncclProfileColl``: its
start and stop are the host's), the call that asked for it (``ncclProfileCollApi``, its parent), the launch
(``ncclProfileKernelLaunch``) and each channel of the kernel as the proxy saw it (``ncclProfileKernelCh``, children of the
collective); some plugins add CUPTI's kernels. So execution is the CUPTI kernel where one collective was launched alone,
else first start to last stop of its channels. Times are µs, of a clock that need not be the epoch's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from tracekit import schema
from tracekit.errors import InputError
from tracekit.numbers import below
from tracekit.readers.bytes import HEAD
from tracekit.readers.nccl_lines import Damage, microseconds, objects, part, text, whole
from tracekit.readers.nccl_names import algorithm_of, dtype_of, kind_of, protocol_of, whole_bytes
from tracekit.readers.nccl_ranks import Member, Ranks, global_ranks, places, with_rank_source
from tracekit.readers.nccl_rows import table_of
from tracekit.readers.nccl_spans import as_events, is_spans
from tracekit.reading import Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import P2P

SOURCE = "nccl_profiler"
_MARKS = (b'"ncclProfile', b'"ProfilerLifecycle"')
_ENQUEUED = ("ncclProfileColl", "ncclProfileP2p")
_CALLED = ("ncclProfileCollApi", "ncclProfileP2pApi")


class Event(NamedTuple):
    """One event of a rank, its times in ns."""

    pid: int | None
    device: str | None
    group: str | None
    rank: int | None
    start: int | None
    stop: int | None
    address: str | None
    parent: str | None
    launch: int | None
    details: dict[str, Any]

    @property
    def owner(self) -> tuple[int | None, str | None]:
        """Its process and GPU."""
        return self.pid, self.device


def sniff(head: bytes) -> bool:
    """Whether the first objects are events of NCCL's profiler interface."""
    return is_spans(head) or (head.lstrip().startswith(b"{") and any(mark in head for mark in _MARKS))


def read(data: bytes, path: Path, reading: Reading) -> tuple[RankTrace, ...]:
    """One RankTrace per rank (``stated["records"]``, ``stated["communicators"]``).

    Raises:
        InputError: no collective or transfer in it, or a cap is passed.
    """
    damage = Damage()
    events: dict[str, list[Event]] = defaultdict(list)
    lines = objects(data, path, reading, damage)
    for _, record in as_events(lines) if is_spans(data[:HEAD]) else lines:
        kind = text(record.get("type"))
        if kind is not None and record.get("recordType") != "state":
            events[kind].append(_event(record))
    calls = [e for kind in _ENQUEUED for e in events[kind]] or [e for kind in _CALLED for e in events[kind]]
    if not calls:
        raise InputError("holds no collective and no transfer, only other events of NCCL's profiler; ask for ncclProfileColl and ncclProfileP2p", path)
    traces, lost = _traces(calls, events)
    first = damage.told(traces[0], path)
    unknown = sum(int(t.stated["records"]["end_ns"].isna().sum()) for t in traces)
    if unknown:
        says = f"{unknown} calls without a kernel's or channel's event: when they ran is not known; enable ncclProfileKernelCh"
        first = first.with_finding("profiler_without_execution", "warning", says, file=str(path), count=unknown, rank=None)
    return (with_rank_source(first, lost, path), *traces[1:])


def _event(record: dict[str, Any]) -> Event:
    start, stop, details = part(record, "start"), part(record, "stop"), part(record, "details")
    group = record.get("commId")  # an unsigned 64-bit number
    return Event(
        pid=whole(start.get("pid")),
        device=text(record.get("gpuUuid")),
        group=str(group) if isinstance(group, int) else text(group),
        rank=whole(record.get("rank")),
        start=microseconds(start.get("ts")),
        stop=microseconds(stop.get("ts")),
        address=text(record.get("eventAddr")),
        parent=text(record.get("parentObj")),
        launch=whole(record.get("extCorrId")),
        details=details,
    )


def _traces(calls: list[Event], events: dict[str, list[Event]]) -> tuple[list[RankTrace], int]:
    """The calls by rank, and how many have none among others that have one."""
    sizes: dict[str | None, int | None] = {}
    names: dict[str | None, str | None] = {}
    for e in events["ProfilerLifecycle"]:
        sizes[e.group] = sizes.get(e.group) or whole(e.details.get("nranks"))
        names[e.group] = names.get(e.group) or text(e.details.get("commName"))
    known = [*events["ProfilerLifecycle"], *calls]
    owners = {owner: i for i, owner in enumerate(dict.fromkeys(e.owner for e in known))}
    ranks = global_ranks({Member(owners[e.owner], e.group, e.rank, sizes.get(e.group)) for e in known if e.rank is not None})
    ran = _executions(calls, events)
    asked = _asked(calls, events)
    by_rank, left_out = places(ranks.of, {owners[e.owner] for e in calls})
    of_owner: dict[int, list[int]] = defaultdict(list)
    for i, e in enumerate(calls):
        of_owner[owners[e.owner]].append(i)
    out = []
    for rank, several in by_rank.items():
        mine = sorted((i for owner in several for i in of_owner[owner]), key=lambda i: calls[i].start or 0)
        order: Counter[Any] = Counter()
        rows = []
        for i in mine:
            row = _record(calls[i], ranks, sizes.get(calls[i].group), names.get(calls[i].group))
            if row["kind"] in P2P:
                key = (row["group"], row["kind"], calls[i].details.get("peer"))
                row["seq"] = order[key]
                order[key] += 1
            if len(several) > 1:  # calls of several processes under one roof: equal numbers are not equal calls
                row["seq"] = None
            start, end = ran.get(i, (None, None))
            rows.append({**row, "created_ns": asked.get(i, calls[i].start), "start_ns": start, "end_ns": end, "duration_ns": _between(start, end)})
        held = dict.fromkeys((e.group, e.rank) for e in known if e.group is not None and ranks.of.get(owners[e.owner]) == rank)
        members = [
            {"source": SOURCE, "group": g, "group_desc": names.get(g), "group_ranks": ranks.text(g), "group_size": sizes.get(g), "group_rank": number}
            for g, number in held
        ]
        stated = {"records": table_of(rows, schema.RECORDS), "communicators": table_of(members, schema.COMMUNICATORS)}
        out.append(RankTrace(meta=RankMeta(rank=rank, backend="nccl"), stated=stated))
    return out, sum(owners[e.owner] in left_out for e in calls)


def _record(e: Event, ranks: Ranks, size: int | None, desc: str | None) -> dict[str, Any]:
    """A row of ``schema.RECORDS``, without its times."""
    details = e.details
    name = text(details.get("func")) or "unknown"
    kind = kind_of(name)
    dtype, width = dtype_of(text(details.get("dtype")) or text(details.get("datatype")) or "")
    count = whole(details.get("count"))
    peer = whole(details.get("peer"))
    return {
        "source": SOURCE,
        "kind": kind,
        "name": name,
        "group": e.group,
        "group_desc": desc,
        "group_ranks": ranks.text(e.group),
        "group_size": size,
        "seq": whole(details.get("seq")),
        "peer": ranks.peer(e.group, peer) if peer is not None and kind in P2P else None,
        "nbytes": whole_bytes(kind, None if count is None or width is None else below(count * width, 1 << 62), size),
        "dtype": dtype or None,
        "algorithm": algorithm_of(text(details.get("algo")) or ""),
        "protocol": protocol_of(text(details.get("proto")) or ""),
    }


def _asked(calls: list[Event], events: dict[str, list[Event]]) -> dict[int, int]:
    """When the call that asked for a collective was made: the start of its parent."""
    parents = _by_address([e for kind in _CALLED for e in events[kind]])
    out = {}
    for i, e in enumerate(calls):
        api = _latest(parents.get((e.pid, e.parent), []), e.start)
        if api is not None and api.start is not None:
            out[i] = api.start
    return out


def _executions(calls: list[Event], events: dict[str, list[Event]]) -> dict[int, tuple[int, int]]:
    """When each call ran on its GPU, where that is known."""
    out = _by_channels(calls, events["ncclProfileKernelCh"])
    out.update(_by_kernels(calls, events))
    return out


def _by_channels(calls: list[Event], channels: list[Event]) -> dict[int, tuple[int, int]]:
    """First start to last stop of a call's channels; addresses are used again, so a channel belongs to the latest call before it."""
    homes: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for i, e in enumerate(calls):
        if e.start is not None and e.address is not None:
            homes[e.pid, e.address].append((e.start, i))
    for several in homes.values():
        several.sort()
    found: dict[int, list[Event]] = defaultdict(list)
    for channel in channels:
        home = homes.get((channel.pid, channel.parent), [])
        if channel.start is not None and (at := bisect_right(home, (channel.start, len(calls)))):
            found[home[at - 1][1]].append(channel)
        elif channel.start is None and home:
            found[home[-1][1]].append(channel)
    out = {}
    for i, mine in found.items():
        starts, stops = [c.start for c in mine if c.start is not None], [c.stop for c in mine if c.stop is not None]
        if len(starts) == len(stops) == len(mine) and min(starts) <= max(stops):
            out[i] = min(starts), max(stops)
    return out


def _by_kernels(calls: list[Event], events: dict[str, list[Event]]) -> dict[int, tuple[int, int]]:
    """CUPTI's kernels by the launches that they belong to; a launch that several calls share says nothing of each."""
    kernels = {k.launch: k for k in events["KERNEL"] if k.launch is not None}
    parents = _by_address([e for kind in _CALLED for e in events[kind]])
    launches: dict[Any, list[Event]] = defaultdict(list)
    for launch in sorted((e for e in events["ncclProfileKernelLaunch"] if e.start is not None), key=lambda e: e.start or 0):
        launches[launch.owner, launch.parent].append(launch)
    shared: dict[int, list[int]] = defaultdict(list)
    for i, e in enumerate(calls):
        api = _latest(parents.get((e.pid, e.parent), []), e.start)
        launched = None if api is None else _latest(launches.get((e.owner, api.parent), []), e.start)
        if launched is not None and launched.launch is not None:
            shared[launched.launch].append(i)
    out = {}
    for number, several in shared.items():
        kernel = kernels.get(number)
        if len(several) == 1 and kernel is not None and kernel.start is not None and kernel.stop is not None and kernel.start <= kernel.stop:
            out[several[0]] = kernel.start, kernel.stop
    return out


def _by_address(events: list[Event]) -> dict[Any, list[Event]]:
    """Events by process and address, in order of time."""
    out: dict[Any, list[Event]] = defaultdict(list)
    for e in sorted((e for e in events if e.start is not None and e.address is not None), key=lambda e: e.start or 0):
        out[e.pid, e.address].append(e)
    return out


def _latest(events: list[Event], before: int | None) -> Event | None:
    """The last event that began before a time."""
    at = 0 if before is None else bisect_right(events, before, key=lambda e: e.start or 0)
    return events[at - 1] if at else None


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start
