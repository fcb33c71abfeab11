"""nccl-tests' output -> RankTrace: what did all_reduce_perf and its siblings measure?"""

from __future__ import annotations

from pathlib import Path

from tracekit.errors import InputError
from tracekit.readers.nccl_benchmarks import read_tables, with_tables
from tracekit.readers.nccl_records import read_log
from tracekit.readers.nccl_report import is_report
from tracekit.reading import Reading
from tracekit.trace import RankTrace

_MARKS = (b"# nThread ", b"Collective test starting: ", b"# nccl-tests version")


def sniff(head: bytes) -> bool:
    """Whether the beginning of a log is nccl-tests': its own header lines, the header of its table, or its JSON report."""
    table = b"algbw" in head and b"busbw" in head and b"(elements)" in head
    return table or is_report(head) or any(mark in head for mark in _MARKS)


def read(data: bytes, path: Path, reading: Reading) -> tuple[RankTrace, ...]:
    """The tables of a log (``stated["benchmarks"]``), without a rank; where NCCL logged communicators beside them, with those, by rank.

    Raises:
        InputError: there is no row in it.
    """
    tables = read_tables(data, path, reading)
    first, *others = read_log(data, path, reading) if b"NCCL INFO" in data else [RankTrace()]
    if first.stated and not len(tables.stated["benchmarks"]):
        return (first.with_finding("benchmark_without_rows", "warning", "nccl-tests printed no row", file=str(path), rank=None), *others)
    if not len(tables.stated["benchmarks"]):
        raise InputError("nccl-tests printed no row; let the test run to its end, and give its whole output", path)
    return (with_tables(first, tables), *others) if first.stated else (tables,)
