"""NCCL Inspector's JSON lines -> RankTrace: what did each completed collective and transfer take?

NVIDIA/nccl, plugins/profiler/inspector (inspector_json.cc): objects with ``header`` (communicator, rank), ``metadata``
(process) and ``coll_perf`` or ``p2p_perf``; since v4.3 header and metadata stand once, in the ``dump_stats`` marker before
the objects of one dump. ``coll_msg_size_bytes`` is what one rank has (inspectorComputeCollBw multiplies it for all-gather
and reduce-scatter); times are of this rank, its waiting for the others included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tracekit import schema
from tracekit.errors import InputError
from tracekit.readers.nccl_lines import Damage, microseconds, number, objects, part, text, whole
from tracekit.readers.nccl_names import algorithm_of, kind_of, protocol_of, whole_bytes
from tracekit.readers.nccl_ranks import Member, Ranks, global_ranks, places, with_rank_source
from tracekit.readers.nccl_rows import table_of
from tracekit.reading import Reading
from tracekit.trace import RankMeta, RankTrace

SOURCE = "nccl_inspector"
_MARKS = (b'"coll_perf"', b'"p2p_perf"', b'"inspector_output_format_version"')


class Call(NamedTuple):
    """One object: whose it is, and its ``coll_perf`` or ``p2p_perf`` with the prefix of its keys."""

    process: tuple[str | None, int | None]
    group: str | None
    desc: str | None
    rank: int | None
    size: int | None
    prefix: str
    body: dict[str, Any]


def sniff(head: bytes) -> bool:
    """Whether the first objects are Inspector's."""
    return head.lstrip().startswith(b"{") and any(mark in head for mark in _MARKS)


def read(data: bytes, path: Path, reading: Reading) -> tuple[RankTrace, ...]:
    """One RankTrace per rank (``stated["records"]``, ``stated["communicators"]``).

    Raises:
        InputError: no call in it, or a cap is passed.
    """
    damage, dropped, orphans = Damage(), 0, 0
    calls: list[Call] = []
    version = None
    header, metadata = {}, {}
    for _, record in objects(data, path, reading, damage):
        if "dump_stats" in record:
            header, metadata = part(record, "header"), part(record, "metadata")
            stats = part(record, "dump_stats")
            dropped += sum(whole(stats.get(f"{kind}_dropped_since_last_dump")) or 0 for kind in ("coll", "p2p"))
        mine = part(record, "header") or header
        process = part(record, "metadata") or metadata
        version = version or text(process.get("inspector_output_format_version"))
        prefix = next((p for p in ("coll", "p2p") if f"{p}_perf" in record), None)
        if prefix is not None:
            orphans += not mine
            calls.append(_call(mine, process, prefix, part(record, f"{prefix}_perf")))
    if not calls:
        raise InputError("NCCL Inspector wrote no completed call into it; set NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS, or let the job end", path)
    traces, lost = _traces(calls, version)
    first = damage.told(traces[0], path)
    if dropped:
        says = f"{dropped} calls were overwritten before Inspector wrote them: counts and sums are too low; raise NCCL_INSPECTOR_DUMP_COLL_RING_SIZE"
        first = first.with_finding("inspector_dropped", "warning", says, file=str(path), count=dropped, rank=None)
    if orphans:
        says = f"{orphans} calls have no header before them: whose they are is not known; give the file from its beginning"
        first = first.with_finding("inspector_without_header", "warning", says, file=str(path), count=orphans, rank=None)
    return (with_rank_source(first, lost, path), *traces[1:])


def _call(header: dict[str, Any], metadata: dict[str, Any], prefix: str, body: dict[str, Any]) -> Call:
    name = text(header.get("comm_name"))
    return Call(
        process=(text(metadata.get("hostname")), whole(metadata.get("pid"))),
        group=text(header.get("id")),
        desc=None if name == "unknown" else name,
        rank=whole(header.get("rank")),
        size=whole(header.get("n_ranks")),
        prefix=prefix,
        body=body,
    )


def _traces(calls: list[Call], version: str | None) -> tuple[list[RankTrace], int]:
    """The calls by rank, and how many have none among others that have one."""
    entities, of = _entities(calls)
    ranks = global_ranks({Member(of[i], c.group, c.rank, c.size) for i, c in enumerate(calls) if c.rank is not None})
    by_rank, left_out = places(ranks.of, set(of))
    rank_of = {entity: rank for rank, several in by_rank.items() for entity in several}
    held: dict[int | None, list[int]] = {rank: [] for rank in by_rank}
    for i, entity in enumerate(of):
        if entity in rank_of:
            held[rank_of[entity]].append(i)
    out = []
    for rank, numbers in held.items():
        mine = [calls[i] for i in numbers]
        records = table_of([_record(c, ranks) for c in mine], schema.RECORDS)
        if len(by_rank[rank]) > 1:  # calls of several processes under one roof: equal numbers are not equal calls
            records = records.assign(seq=pd.Series(pd.NA, index=records.index, dtype="Int64"))
        members = {(c.group, c.desc, c.size, c.rank): None for c in mine if c.group is not None}
        rows = [{"source": SOURCE, "group": g, "group_desc": d, "group_ranks": ranks.text(g), "group_size": n, "group_rank": r} for g, d, n, r in members]
        stated = {"records": records}
        if rows:
            stated["communicators"] = table_of(rows, schema.COMMUNICATORS)
        hosts = {entities[of[i]][0] for i in numbers}
        versions = {"nccl_inspector": version} if version else {}
        out.append(RankTrace(meta=RankMeta(rank=rank, backend="nccl", host=hosts.pop() if len(hosts) == 1 else None, versions=versions), stated=stated))
    return out, sum(entity in left_out for entity in of)


def _entities(calls: list[Call]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """What is one rank: a process; in a process with several GPUs only each membership alone can be told."""
    held: dict[tuple[Any, ...], set[int | None]] = {}
    for c in calls:
        held.setdefault((c.process, c.group), set()).add(c.rank)
    several = {process for (process, _), ranks in held.items() if len(ranks) > 1}
    keys = [(c.process[0], c.process[1], c.group, c.rank) if c.process in several else c.process for c in calls]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return list(numbers), [numbers[key] for key in keys]


def _record(c: Call, ranks: Ranks) -> dict[str, Any]:
    """A row of ``schema.RECORDS``."""
    body, p = c.body, c.prefix
    name = text(body.get(p)) or "unknown"
    kind = kind_of(name)
    size = whole(body.get(f"{p}_msg_size_bytes"))
    kernels = [k for k in part(body, "event_trace_ts").get("kernel_events") or () if isinstance(k, dict)]
    starts = [t for k in kernels if (t := microseconds(k.get("kernel_start_ts"))) is not None]
    ends = [t for k in kernels if (t := microseconds(k.get("kernel_stop_ts"))) is not None]
    algbw, busbw = number(body.get(f"{p}_algobw_gbs")), number(body.get(f"{p}_busbw_gbs"))
    computed = bool(algbw) or not size  # 0 GB/s of something: Inspector has no formula for this call
    peer = whole(body.get(f"{p}_peer"))
    return {
        "source": SOURCE,
        "kind": kind,
        "name": name,
        "group": c.group,
        "group_desc": c.desc,
        "group_ranks": ranks.text(c.group),
        "group_size": c.size,
        "seq": whole(body.get(f"{p}_sn")),
        "peer": ranks.peer(c.group, peer) if peer is not None else None,
        "nbytes": whole_bytes(kind, size, c.size),
        "algorithm": algorithm_of(text(body.get(f"{p}_algo")) or ""),
        "protocol": protocol_of(text(body.get(f"{p}_proto")) or ""),
        "state": "completed",
        "created_ns": microseconds(part(body, "event_trace_ts").get(f"{p}_start_ts")),
        "start_ns": min(starts) if starts and len(starts) == len(kernels) else None,
        "end_ns": max(ends) if ends and len(ends) == len(kernels) else None,
        "duration_ns": microseconds(body.get(f"{p}_exec_time_us")),
        "algbw_gbps": algbw if computed else None,
        "busbw_gbps": busbw if computed else None,
    }
