"""Lines of NCCL's log, drawn from what matters in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracekit.readers import nccl_log
from tracekit.reading import DEFAULT, Reading
from tracekit.trace import RankTrace


def front(process: int, host: str = "node-a") -> str:
    """Host, process, thread and device in front of a line."""
    return f"{host}:{100 + process}:{200 + process} [{process}] NCCL INFO "


def init(process: int, rank: int, size: int, *, handle: str | None = None, comm_id: str = "0xabc1", what: str = "Init COMPLETE", host: str = "node-a") -> str:
    """A communicator's setup, as NCCL 2.18 words it."""
    handle = handle or f"0x55{process:02x}"
    where = f"cudaDev {process} nvmlDev {process} busId 1a000"
    return front(process, host) + f"ncclCommInitRank comm {handle} rank {rank} nranks {size} {where} commId {comm_id} - {what}"


def split(process: int, rank: int, size: int, color: int, *, handle: str, number: int = 1) -> str:
    """A communicator split off from the process's first one, as NCCL 2.21 words it."""
    where = f"cudaDev {process} nvmlDev {process} busId 1a000 parent 0x55{process:02x} splitCount {number} color {color} key {rank}"
    return front(process) + f"ncclCommSplit comm {handle} rank {rank} nranks {size} {where}- Init START"


def call(
    process: int,
    op: str = "AllReduce",
    seq: int = 0,
    count: int = 1000,
    dtype: int = 7,
    *,
    size: int = 4,
    root: int = 0,
    handle: str | None = None,
    host: str = "node-a",
) -> str:
    """A call."""
    handle = handle or f"0x55{process:02x}"
    buffers = "sendbuff 0x7f01 recvbuff 0x7f02" if op not in ("Send", "Recv") else "sendbuff (nil) recvbuff 0x7f02"
    return (
        front(process, host)
        + f"{op}: opCount {seq:x} {buffers} count {count} datatype {dtype} op 0 root {root} comm {handle} [nranks={size}] stream 0x9{process:03x}"
    )


def read(*lines: str, reading: Reading = DEFAULT, end: str = "\n") -> tuple[RankTrace, ...]:
    """The ranks of a log."""
    return nccl_log.read(("\n".join(lines) + end).encode(), Path("nccl.log"), reading)


def records(trace: RankTrace, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a rank's records, row by row; null as None."""
    table = trace.stated["records"][list(columns)].astype(object)
    return [tuple(row) for row in table.where(table.notna(), None).itertuples(index=False)]


def codes(*traces: RankTrace) -> dict[str, str]:
    """Code of each finding -> its severity."""
    return {f["code"]: f["severity"] for t in traces for f in t.findings}
