"""Public logs of nccl-tests and of NCCL's profiler: every cell, and what fits, as the reference has it."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tracekit import analyze

LOGS = ("superbench/nccl_allgather.log", "superbench/nccl_allreduce.log", "superbench/nccl_alltoall.log", "awsome/slurm-104.out.gz")
#: The test of each file, from its columns and ratios: the reference knows it from the file's name, and of the last not at all.
TESTS = ("all_gather", "all_reduce", "all_to_all", None)
PROFILER = "phaznccl/trace_-_2762285_collectives_all_reduces_single_node_-_Copy.jsonl"
NAMES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all"}


def reference(shared: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((shared / "traces" / "reference.json").read_text())[name])


@pytest.mark.parametrize(("name", "test"), list(zip(LOGS, TESTS, strict=True)))
def test_every_cell_of_a_log_of_nccl_tests(shared: Path, name: str, test: str | None) -> None:
    wanted = reference(shared, name)
    report = analyze(shared / "traces" / name, workers=1).to_dict()
    tables = report["metrics"]["bandwidth"]["tables"]
    cells = [(row, prefix) for row in wanted["rows"] for prefix in ("", "ip_")]
    for row, (cell, prefix) in zip(tables["rows"], cells, strict=True):
        assert (row["nbytes"], row["count"], row["dtype"], row["in_place"]) == (cell["size_bytes"], cell["count"], cell["dtype"], prefix == "ip_")
        assert row["duration_ns"] == int(Decimal(cell[prefix + "time_us"]) * 1000)
        assert (row["algbw_gbps"], row["busbw_gbps"]) == (float(cell[prefix + "algbw"]), float(cell[prefix + "busbw"]))
        assert row["errors"] == (None if cell[prefix + "error"] == "N/A" else int(cell[prefix + "error"]))
    (run,) = tables["runs"]
    assert (run["test"], run["ranks"], run["cells"]) == (test, wanted["n_ranks"], 2 * wanted["n_rows"])
    assert run["cells_checked"] == wanted["n_cells_checked"]
    assert run["cells_checked"] - run["algbw_misfits"] == wanted["algbw_equals_size_over_time"]
    assert run["busbw_misfits"] == (None if test is None else 0)
    assert run["printed_mean_busbw_gbps"] == float(wanted["avg_bus_bandwidth_printed"])
    assert f"{run['mean_busbw_gbps']:.4f}" == wanted["mean_of_printed_busbw_all_rows"]
    fit = {f["test"]: f for f in tables["factors"]}
    for op, count in wanted["cells_consistent_with_factor_of"].items():
        assert fit[NAMES.get(op, op)]["cells_that_fit"] == count, op
        assert fit[NAMES.get(op, op)]["factor"] == float(wanted["factor_by_op"][op])


def test_the_communicator_of_a_log_with_a_table(shared: Path) -> None:
    report = analyze(shared / "traces" / "awsome/slurm-104.out.gz", workers=1).to_dict()
    metric = report["metrics"]["records"]
    (group,) = metric["tables"]["groups"]
    assert (group["group"], group["group_size"], group["ranks_here"]) == ("0x94343f5a50e0fc8e", 16, list(range(16)))
    text = gzip.decompress((shared / "traces" / "awsome/slurm-104.out.gz").read_bytes()).decode()
    for row in metric["tables"]["communicators"]:
        assert f"comm {row['handle']} rank {row['rank']} nranks 16 cudaDev {row['device']} " in text
    assert report["run"]["ranks"] == list(range(16))
    assert {f["code"] for f in report["health"]["findings"] if f["severity"] != "info"} == {"benchmark_test_unknown"}


def test_a_file_of_profiler_events(shared: Path) -> None:
    wanted = reference(shared, PROFILER)
    report = analyze(shared / "traces" / PROFILER, workers=1).to_dict()
    assert report["health"]["verdict"] == "ok" and report["run"]["ranks"] == wanted["ranks"]
    metric = report["metrics"]["records"]
    assert metric["summary"]["records"] == wanted["n_coll"]
    (row,) = metric["tables"]["by_kind"]
    assert (row["kind"], row["group"], row["ranks"]) == ("all_reduce", wanted["comm_ids"][0], wanted["ranks"])
    (instance,) = metric["tables"]["instances"]
    assert instance["seen_by"] == [int(r.removeprefix("rank")) for r in wanted["coll_by_func_by_rank"]["AllReduce"]]
    # the shortest and longest of CUPTI's four kernels in the file
    kernels = [e for e in map(json.loads, (shared / "traces" / PROFILER).read_text().splitlines()) if e.get("type") == "KERNEL"]
    durations = sorted(round(k["duration"] * 1000) for k in kernels)
    assert (instance["duration_min_ns"], instance["duration_max_ns"]) == (durations[0], durations[-1])
