"""NCCL_DEBUG=INFO logs -> RankTrace: which communicators were set up, and which calls were made?"""

from __future__ import annotations

import re
from pathlib import Path

from tracekit.errors import InputError
from tracekit.readers.nccl_benchmarks import read_tables, with_tables
from tracekit.readers.nccl_records import read_log
from tracekit.reading import Reading
from tracekit.trace import RankTrace

_LINE = re.compile(rb"\[-?\d+\] (?:\d+ )?NCCL (?:INFO|WARN|TRACE) ")


def sniff(head: bytes) -> bool:
    """Whether a line of NCCL's own stands among the first, whatever stands around it."""
    return _LINE.search(head) is not None


def read(data: bytes, path: Path, reading: Reading) -> tuple[RankTrace, ...]:
    """One RankTrace per rank, with its calls (``stated["records"]``) and communicators; a table of nccl-tests in the log is read with them.

    Raises:
        InputError: it names neither communicator nor call, or a cap is passed.
    """
    traces = read_log(data, path, reading)
    tables = read_tables(data, path, reading) if b"algbw" in data and b"busbw" in data else RankTrace()
    if len(tables.stated.get("benchmarks", ())):
        first = traces[0]
        return (with_tables(first, tables), *traces[1:])
    if not any(t.stated for t in traces):
        raise InputError("a log of NCCL that names neither communicators nor calls; set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING", path)
    return traces
