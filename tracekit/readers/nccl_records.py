"""What does a log of NCCL say of each rank? Its communicators and calls, one RankTrace per rank."""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit import schema
from tracekit.columns import integers, nullable
from tracekit.numbers import numbers
from tracekit.readers.nccl_communicators import Communicator, Known, communicators
from tracekit.readers.nccl_names import DATATYPES, PER_RANK, algorithm_of, kind_of, protocol_of
from tracekit.readers.nccl_ranks import places
from tracekit.readers.nccl_rows import table_of
from tracekit.readers.nccl_text import Process, Scan, plain, scan
from tracekit.reading import Reading
from tracekit.trace import RankMeta, RankTrace
from tracekit.vocabulary import P2P

SOURCE = "nccl_log"
#: How many calls of one size may wait for the line that names their algorithm: those of one group of calls.
_WAITING = 64
_WIDTHS = np.array([DATATYPES[t][1] for t in range(len(DATATYPES))], np.int64)
_LARGEST = float(1 << 62)


def read_log(data: bytes, path: Path, reading: Reading) -> tuple[RankTrace, ...]:
    """The ranks of a log; where no line tells ranks, one RankTrace without rank that holds everything.

    Raises:
        InputError: caps are passed.
    """
    said = scan(plain(data), path, reading)
    known = communicators(said)
    calls = _calls(said, known)
    by_rank, left_out = places(known.ranks.of, {known.entity(c.process, c) for c in known.everyone()} | set(calls["entity"].tolist()))
    if not by_rank.get(None, [0]):
        return _with_findings([RankTrace()], said, known, calls, 0, path)
    lost = calls["entity"].isin(left_out)
    if len(by_rank.get(None, [])) > 1:  # calls of several processes under one roof: equal numbers are not equal calls
        calls = calls.assign(seq=pd.Series(pd.NA, index=calls.index, dtype="Int64"))
    traces = [_trace(said, known, calls[calls["entity"].isin(mine)], rank, mine) for rank, mine in by_rank.items()]
    return _with_findings(traces, said, known, calls[~lost], int(lost.sum()), path)


def _calls(said: Scan, known: Known) -> pd.DataFrame:
    """Every call in the order of the log: columns of ``schema.RECORDS``, and ``entity``, ``process``, ``at``, ``own`` bytes, whether its rank ``leads``."""
    raw = said.calls
    frame = pd.DataFrame({name: np.array(getattr(raw, name)) for name in ("at", "process", "op", "count", "dtype", "root", "handle", "size", "rank")})
    frame["seq"] = numbers([int(v) for v in raw.seq], "Int64")
    frame["process"] = frame["process"].replace(dict(known.alias))
    handles = [h.decode() for h in raw.handles]
    parts = []
    codes = frame["process"].to_numpy() * len(handles) + frame["handle"].to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []:
        process, handle = int(codes[rows[0]]) // len(handles), handles[int(codes[rows[0]]) % len(handles)]
        lived = known.lived.get((process, handle), [])
        meant = np.searchsorted([c.start for c in lived], frame["at"].to_numpy()[rows], side="right") - 1
        for i in np.unique(meant).tolist():
            parts.append(_of_one(frame.iloc[rows[meant == i]], lived[i] if i >= 0 else None, process, handle, said, known))
    if not parts:
        extra = {"entity": "int64", "process": "int64", "at": "int64", "own": "int64", "leads": "bool"}
        return schema.empty(schema.RECORDS).assign(**{name: pd.Series(dtype=dtype) for name, dtype in extra.items()})
    return _tuned(pd.concat(parts).sort_values("at", kind="stable", ignore_index=True), said, known)


def _of_one(calls: pd.DataFrame, c: Communicator | None, process: int, handle: str, said: Scan, known: Known) -> pd.DataFrame:
    """The calls of one communicator."""
    names = np.array([op.decode("utf-8", "replace") for op in said.calls.ops], object)
    kinds = np.array([kind_of(n) for n in names], object)
    op, dtype, size = calls["op"].to_numpy(), calls["dtype"].to_numpy(), int(calls["size"].to_numpy()[0])
    p2p = np.isin(op, [i for i, k in enumerate(kinds) if k in P2P])
    per_rank = np.isin(op, [i for i, k in enumerate(kinds) if k in PER_RANK])
    group = _name(c, handle, said.processes[process])
    own = _product(calls["count"].to_numpy(), np.where(dtype < len(_WIDTHS), _WIDTHS[np.minimum(dtype, len(_WIDTHS) - 1)], -1))
    peers = {root: known.ranks.peer(group, root) for root in np.unique(calls["root"]).tolist()}
    whole = nullable(np.array([-1 if peers[r] is None else peers[r] for r in calls["root"].tolist()], np.int64))
    return pd.DataFrame(
        {
            "at": calls["at"],
            "process": process,
            "entity": known.entity(process, c),
            "source": SOURCE,
            "name": names[op],
            "kind": kinds[op],
            "group": group,
            "group_ranks": known.ranks.text(group),
            "group_size": size,
            "seq": calls["seq"].mask(p2p, calls.groupby(["op", "root"]).cumcount()),
            "peer": pd.Series(whole, index=calls.index).mask(~p2p),
            "nbytes": nullable(np.where(per_rank, _product(own, np.full(len(own), size)), own)),
            "dtype": np.array([DATATYPES[t][0] if t in DATATYPES else f"datatype {t}" for t in dtype.tolist()], object),
            "own": own,
            "leads": c is None or c.rank == 0,
        },
        index=calls.index,
    )


def _product(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Products; -1 where a factor is negative (unknown) or the product too large."""
    usable = (a >= 0) & (b >= 0) & (a.astype(np.float64) * b < _LARGEST)
    return np.where(usable, np.where(usable, a, 0) * np.where(usable, b, 0), -1)


def _name(c: Communicator | None, handle: str, writer: Process) -> str:
    """A communicator's name: where the log has none, its address, and whose it is."""
    return c.group if c is not None and c.group is not None else f"{handle}@{writer.host}:{writer.pid}"


def _tuned(calls: pd.DataFrame, said: Scan, known: Known) -> pd.DataFrame:
    """Algorithm and protocol of the calls that a tuning line fits.

    A communicator's rank 0 prints it after the call, for as many bytes as one rank has or as all have together. Where it
    fits waiting calls of several communicators or kinds, it is left out.
    """
    algorithm, protocol = np.full(len(calls), None, object), np.full(len(calls), None, object)
    if said.tunings:
        waiting: dict[tuple[int, int], deque[int]] = defaultdict(lambda: deque(maxlen=_WAITING))
        columns = ("at", "process", "own", "whole", "group", "kind", "leads")
        at, process, own, whole, group, kind, leads = (calls.assign(whole=integers(calls["nbytes"]))[name].tolist() for name in columns)
        position = 0
        for line in said.tunings:
            while position < len(at) and at[position] < line.at:
                if kind[position] not in P2P:
                    for nbytes in {own[position], whole[position]}:
                        waiting[process[position], nbytes].append(position)
                position += 1
            queue = waiting[known.alias.get(line.process, line.process), line.nbytes]
            fit = [i for i in queue if algorithm[i] is None and (line.op is None or kind[i] == kind_of(line.op))]
            fit = [i for i in fit if leads[i]] or fit
            if fit and len({(group[i], kind[i]) for i in fit}) == 1:
                algorithm[fit[0]], protocol[fit[0]] = algorithm_of(line.algorithm), protocol_of(line.protocol)
    return calls.assign(algorithm=algorithm, protocol=protocol)


def _trace(said: Scan, known: Known, calls: pd.DataFrame, rank: int | None, entities: list[int]) -> RankTrace:
    mine = [c for c in known.everyone() if known.entity(c.process, c) in entities]
    rows = [
        {
            "source": SOURCE,
            "group": _name(c, c.handle, said.processes[c.process]),
            "group_ranks": known.ranks.text(c.group),
            "group_size": c.size,
            "group_rank": c.rank,
            "handle": c.handle,
            "device": c.device,
        }
        for c in mine
    ]
    members = table_of(rows, schema.COMMUNICATORS)
    hosts = {said.processes[process].host for (process, _), number in known.entities.items() if number in entities}
    meta = RankMeta(rank=rank, backend="nccl", host=hosts.pop() if len(hosts) == 1 else None, versions=said.versions)
    return RankTrace(meta=meta, stated={"records": schema.conform(calls.reset_index(drop=True), schema.RECORDS), "communicators": members})


def _with_findings(traces: list[RankTrace], said: Scan, known: Known, calls: pd.DataFrame, lost: int, path: Path) -> tuple[RankTrace, ...]:
    """The traces, the first of them with what is to be known of the whole file."""
    first = traces[0]
    of_file: dict[str, Any] = {"file": str(path), "rank": None}
    if said.cut:
        says = f"{_lines(len(said.cut))} of NCCL cut off before the end, left out: what more was said, and who else called, is not known"
        first = first.with_finding("nccl_log_incomplete", "warning", says, offset=said.cut[0], count=len(said.cut), **of_file)
    if said.unread:
        says = f"{_lines(len(said.unread))} with opCount in a wording that is not known, left out"
        first = first.with_finding("nccl_log_unread", "warning", says, offset=said.unread[0], count=len(said.unread), **of_file)
    strange = calls["dtype"].astype(str).str.startswith("datatype ")
    if strange.any():
        says = f"element types with numbers that are not known ({', '.join(sorted(set(calls['dtype'][strange]))[:4])}): the bytes of their calls are unknown"
        first = first.with_finding("nccl_datatype_unknown", "warning", says, count=int(strange.sum()), **of_file)
    if lost:
        says = f"{lost} calls of processes whose rank no line tells were left out; log with NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING from the start"
        first = first.with_finding("nccl_rank_unknown", "warning", says, count=lost, **of_file)
    elif any(t.meta.rank is None and t.stated for t in traces):
        says = "no line tells whose rank it is; log with NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING from the start, one file per rank (NCCL_DEBUG_FILE)"
        first = first.with_finding("nccl_rank_unknown", "warning", says, **of_file)
    elif known.ranks.source is not None:
        whose = "those of the largest communicator in the log" if known.ranks.source == "communicator" else "what the launcher wrote in front of the lines"
        first = first.with_finding("nccl_rank_inferred", "info", f"ranks are {whose}", **of_file)
    if said.warned:
        says = f"NCCL itself warned in {_lines(len(said.warned))} (NCCL WARN)"
        first = first.with_finding("nccl_warned", "info", says, offset=said.warned[0], count=len(said.warned), **of_file)
    if said.foreign:
        says = f"{_lines(said.foreign)} of other programs {'was' if said.foreign == 1 else 'were'} passed over"
        first = first.with_finding("nccl_log_foreign_lines", "info", says, count=said.foreign, **of_file)
    return (first, *traces[1:])


def _lines(number: int) -> str:
    return f"{number} line{'' if number == 1 else 's'}"
