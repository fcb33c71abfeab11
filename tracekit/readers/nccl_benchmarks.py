"""What did nccl-tests print into this log? Its tables as rows of ``schema.BENCHMARKS``, with what is to be known of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tracekit import schema
from tracekit.readers.bytes import HEAD
from tracekit.readers.nccl_report import is_report, report_table
from tracekit.readers.nccl_rows import table_of
from tracekit.readers.nccl_tables import Table, Test, tables, test_of
from tracekit.readers.nccl_text import plain
from tracekit.reading import Reading
from tracekit.trace import RankMeta, RankTrace


def with_tables(first: RankTrace, tables: RankTrace) -> RankTrace:
    """A rank of the same log, together with the log's tables; their rows are no lines of another program."""
    logged = tuple(f for f in first.findings if f["code"] != "nccl_log_foreign_lines")
    return replace(first, stated={**first.stated, **tables.stated}, findings=(*logged, *tables.findings))


def read_tables(data: bytes, path: Path, reading: Reading) -> RankTrace:
    """The tables of a log (``stated["benchmarks"]``, no rank); no rows where it has none."""
    if is_report(data[:HEAD]):
        found = [report_table(data, path)]
    else:
        found = tables(plain(data), path, reading) if b"algbw" in data else []
    tests = [test_of(t) for t in found]
    rows = [
        {
            "run": f"{path} #{number}",
            "test": None if test.kind is None else str(test.kind),
            "nbytes": c.nbytes,
            "count": c.elements,
            "dtype": c.dtype,
            "redop": None if c.redop == "none" else c.redop,
            "ranks": table.ranks,
            "in_place": c.in_place,
            "duration_ns": c.duration_ns,
            "algbw_gbps": c.algbw,
            "busbw_gbps": c.busbw,
            "errors": c.errors,
            "run_busbw_gbps": table.average,
        }
        for number, (table, test) in enumerate(zip(found, tests, strict=True), 1)
        for c in table.cells
    ]
    frame = table_of(rows, schema.BENCHMARKS)
    trace = RankTrace(meta=RankMeta(backend="nccl"), stated={"benchmarks": frame})
    for number, (table, test) in enumerate(zip(found, tests, strict=True), 1):
        trace = _told(trace, f"table {number}", table, test, path)
    return trace


def _told(trace: RankTrace, where: str, table: Table, test: Test, path: Path) -> RankTrace:
    """What is to be known of one table."""
    if test.inferred:
        says = f"{where} does not name its test: {test.kind} was inferred, the only one that its columns and the ratio of busbw to algbw allow"
        trace = trace.with_finding("benchmark_test_inferred", "info", says, file=str(path))
    elif test.kind is None and table.cells and table.named is None:
        fit = f" ({', '.join(test.candidates)} fit)" if test.candidates else ""
        says = f"{where} does not name its test, and its numbers do not tell{fit}: which collective it measured is unknown; keep the command line in the log"
        trace = trace.with_finding("benchmark_test_unknown", "warning", says, file=str(path))
    if table.cut:
        says = f"{where}: {table.cut} rows cut off before their end, left out"
        trace = trace.with_finding("benchmark_rows_cut", "warning", says, file=str(path), count=table.cut)
    if table.joined:
        says = f"{where}: {table.joined} rows had other lines in their midst and were put together"
        trace = trace.with_finding("benchmark_rows_joined", "info", says, file=str(path), count=table.joined)
    if table.cpu:
        says = f"{where} holds the calling thread's times (--report_cputime): bandwidths do not follow from them"
        trace = trace.with_finding("benchmark_cpu_time", "warning", says, file=str(path))
    return trace
