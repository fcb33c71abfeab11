"""nccl-tests' tables: old and new, in pieces, among other lines; the test named by the log, or inferred, or unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.records.logs import call, codes, init
from tracekit import theory
from tracekit.errors import InputError
from tracekit.readers import nccl_log, nccl_tests, reader_for
from tracekit.reading import DEFAULT
from tracekit.trace import RankTrace

RUN = "# nThread 1 nGpus 4 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 validation: 0"
DEVICES = [f"#   Rank  {r} Pid 112424 on localhost device  {r} [0x00] A100-SXM4-40GB" for r in range(4)]
NEW = ["# Collective test starting: all_reduce_perf", RUN + " graph: 0", "#", "# Using devices", *[d.replace("Pid", "Group  0 Pid") for d in DEVICES], "#"]
UNIFORM = [
    "#                                                              out-of-place                       in-place          ",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
]
START = "     1048576        262144     float     sum      -1"
OUT, IN = "    80.00   13.11   19.66      0", "    81.00   12.95   19.42    N/A"
ROW = START + OUT + IN
END = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 19.54", "#"]


def read(*lines: str) -> RankTrace:
    return nccl_tests.read("\n".join(lines).encode(), Path("out.log"), DEFAULT)[0]


def rows(trace: RankTrace, *columns: str) -> list[tuple[Any, ...]]:
    table = trace.stated["benchmarks"][list(columns)].astype(object)
    return [tuple(row) for row in table.where(table.notna(), None).itertuples(index=False)]


def printed(kind: str, n: int, redop: str, root: str, sizes: tuple[int, ...] = (1 << 20, 1 << 24, 1 << 28)) -> list[str]:
    """A table as nccl-tests rounds it."""
    out = []
    for i, size in enumerate(sizes):
        us = round(size / 100_000 + 30.37 + i, 1)
        algbw = size / us / 1000
        busbw = algbw * (theory.busbw_factor(kind, n) or 0)
        half = f"{us:.1f}   {algbw:.2f}  {busbw:.2f}  0 "
        out.append(f"{size}  {size // 4}  float  {redop}  {root}  {half * 2}")
    return out


def test_a_new_table_with_both_halves() -> None:
    trace = read(*NEW, *UNIFORM, ROW, *END)
    assert rows(trace, "run", "test", "ranks", "nbytes", "count", "dtype", "redop", "in_place") == [
        ("out.log #1", "all_reduce", 4, 1048576, 262144, "float", "sum", False),
        ("out.log #1", "all_reduce", 4, 1048576, 262144, "float", "sum", True),
    ]
    assert rows(trace, "duration_ns", "algbw_gbps", "busbw_gbps", "errors", "run_busbw_gbps") == [
        (80_000, 13.11, 19.66, 0, 19.54),
        (81_000, 12.95, 19.42, None, 19.54),
    ]
    assert trace.meta.rank is None and trace.findings == ()


@pytest.mark.parametrize("prefix", ["", " 0: ", "[1,0]<stdout>:", "2026-01-05T10:00:01Z ", "\x1b[32m"])
def test_a_job_steps_prefix_is_no_part_of_the_table(prefix: str) -> None:
    trace = read(*[prefix + line for line in (*NEW, *UNIFORM, ROW, *END)])
    assert rows(trace, "nbytes", "duration_ns") == [(1048576, 80_000), (1048576, 81_000)]


def test_lines_of_nccl_between_rows_and_inside_them() -> None:
    info = "host-1:3442:3442 [0] NCCL INFO Launch mode Parallel"
    trace = read(*NEW, *UNIFORM, info, ROW, START + info, OUT + IN, START + OUT + info, IN, *END)
    assert rows(trace, "duration_ns", "redop") == [(80_000, "sum"), (81_000, "sum")] * 3
    assert codes(trace) == {"benchmark_rows_joined": "info"}


def test_a_row_cut_short_is_left_out_and_said_so() -> None:
    trace = read(*NEW, *UNIFORM, ROW, ROW[:90])
    assert rows(trace, "duration_ns", "run_busbw_gbps") == [(80_000, None), (81_000, None)]
    assert codes(trace) == {"benchmark_rows_cut": "warning"}


def test_a_half_that_was_not_run_has_no_row() -> None:
    blank = START + " " * len(OUT) + IN
    assert rows(read(*NEW, *UNIFORM, blank), "in_place", "duration_ns") == [(True, 81_000)]
    one = [UNIFORM[0], UNIFORM[1][: UNIFORM[1].rindex("    time")], UNIFORM[2], START + OUT]
    assert rows(read(*NEW, *one), "in_place", "duration_ns") == [(False, 80_000)]
    missing = START + OUT + "      N/A     N/A     N/A    N/A"
    assert rows(read(*NEW, *UNIFORM, missing), "in_place", "duration_ns") == [(False, 80_000)]


def test_columns_of_newer_reports_are_read_by_their_names() -> None:
    header = "#       size         count      type   redop    root     time   algbw   busbw #wrong   i_min   i_max   i_p99   i_cv%"
    header += "     time   algbw   busbw #wrong   i_min   i_max   i_p99   i_cv%           timestamp"
    row = "1048576 262144 float sum -1 80.00 13.11 19.66 0 79.0 90.0 88.0 1.2 81.00 12.95 19.42 0 79.0 90.0 88.0 1.2 2026-01-05 10:00:01"
    assert rows(read(*NEW, header, row), "duration_ns", "errors") == [(80_000, 0), (81_000, 0)]


def test_several_tables_have_their_own_test_ranks_and_number() -> None:
    second = ["# Collective test starting: alltoall_perf", RUN, *DEVICES[:2], *UNIFORM, ROW.replace("sum", "none")]
    assert rows(read(*NEW, *UNIFORM, ROW, *END, *second), "run", "test", "ranks") == [
        *[("out.log #1", "all_reduce", 4)] * 2,
        *[("out.log #2", "all_to_all", 2)] * 2,
    ]


@pytest.mark.parametrize(
    ("kind", "redop", "root"),
    [
        ("all_reduce", "sum", "-1"),
        ("reduce_scatter", "sum", "-1"),
        ("broadcast", "none", "0"),
        ("reduce", "max", "1"),
        ("send_recv", "sum", "-1"),
    ],
)
def test_a_test_that_is_not_named_is_inferred_where_one_alone_fits(kind: str, redop: str, root: str) -> None:
    trace = read(RUN, *DEVICES, *UNIFORM, *printed(kind, 4, redop, root))
    assert {row[0] for row in rows(trace, "test")} == {kind}
    assert codes(trace) == {"benchmark_test_inferred": "info"}


@pytest.mark.parametrize(("kind", "redop", "root", "fit"), [("all_gather", "none", "-1", "all_gather, all_to_all"), ("gather", "none", "0", "gather, scatter")])
def test_a_test_that_is_not_named_stays_unknown_where_several_fit(kind: str, redop: str, root: str, fit: str) -> None:
    trace = read(RUN, *DEVICES, *UNIFORM, *printed(kind, 4, redop, root))
    assert {row[0] for row in rows(trace, "test")} == {None}
    (finding,) = trace.findings
    assert finding["code"] == "benchmark_test_unknown" and finding["severity"] == "warning" and fit in finding["message"]


def test_nothing_is_inferred_without_the_number_of_ranks() -> None:
    trace = read(RUN, DEVICES[0], DEVICES[3], *UNIFORM, *printed("all_reduce", 4, "sum", "-1"))
    assert set(rows(trace, "test", "ranks")) == {(None, None)}


def test_the_command_line_names_the_test() -> None:
    trace = read("srun ./build/reduce_scatter_perf -b 8 -e 1G", RUN, *DEVICES, *UNIFORM, ROW)
    assert {row[0] for row in rows(trace, "test")} == {"reduce_scatter"}


def test_times_of_the_calling_thread_are_said_to_be_so() -> None:
    trace = read(*NEW, UNIFORM[1].replace("   time", "cputime"), ROW)
    assert rows(trace, "duration_ns")[0] == (80_000,)
    assert codes(trace) == {"benchmark_cpu_time": "warning"}


def test_a_log_that_holds_calls_too_gives_both() -> None:
    lines = [*NEW, *[init(p, p, 2) for p in range(2)], *UNIFORM, *[call(p, size=2) for p in range(2)], ROW, *END]
    for reader in (nccl_tests, nccl_log):
        first, second = reader.read("\n".join(lines).encode(), Path("out.log"), DEFAULT)
        assert (first.meta.rank, second.meta.rank) == (0, 1)
        assert len(first.stated["benchmarks"]) == 2 and len(first.stated["records"]) == len(second.stated["records"]) == 1
        assert codes(first, second) == {"nccl_rank_inferred": "info"}


def test_a_run_that_printed_no_row_is_refused() -> None:
    with pytest.raises(InputError, match="no row"):
        read(*NEW, *UNIFORM)
    trace = read(*NEW, init(0, 0, 2), *UNIFORM, call(0, size=2))  # it hung in the first call: what NCCL said of it is there
    assert len(trace.stated["records"]) == 1 and codes(trace)["benchmark_without_rows"] == "warning"


def test_it_is_found_before_other_logs() -> None:
    reader = reader_for("\n".join(["host:1:1 [0] NCCL INFO Bootstrap", *NEW]).encode())
    assert reader is not None and reader.name == "nccl-tests output"


def test_the_json_report_holds_the_same_table() -> None:
    half = {"time": 80.123456, "alg_bw": 13.087, "bus_bw": 19.630, "nwrong": 0.0}
    result = {"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1", "out_of_place": half, "in_place": None}
    report = {
        "version": 2,
        "start_time": "2026-01-05 10:00:01",
        "args": ["./build/all_reduce_perf", "-J", "x.json"],
        "env": ["TOKEN=secret"],
        "nccl_version": 22907,
        "config": {"ngpus": 4, "devices": [{"rank": r, "hostname": "a"} for r in range(4)]},
        "results": [result, {**result, "out_of_place": None, "in_place": {**half, "nwrong": None}}],
        "average_bus_bandwidth": {"bandwidth": 19.63, "okay": "unchecked"},
    }
    data = json.dumps(report).encode()
    reader = reader_for(data)
    assert reader is not None and reader.name == "nccl-tests output"
    (trace,) = nccl_tests.read(data, Path("x.json"), DEFAULT)
    assert rows(trace, "test", "ranks", "nbytes", "in_place", "duration_ns", "busbw_gbps", "errors", "run_busbw_gbps") == [
        ("all_reduce", 4, 1048576, False, 80_123, 19.63, 0, 19.63),
        ("all_reduce", 4, 1048576, True, 80_123, 19.63, None, 19.63),
    ]
    assert trace.findings == () and "secret" not in repr(trace)
    with pytest.raises(InputError, match="cut off"):
        nccl_tests.read(data[:-30], Path("x.json"), DEFAULT)
