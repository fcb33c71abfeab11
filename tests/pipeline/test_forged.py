"""Do pipelines of forged jobs come out exactly as they were made?"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tracekit.analysis import plain, records
from tracekit.ingest import ingest
from tracekit.job.assemble import build
from tracekit.metrics.base import Result
from tracekit.metrics.pipeline import METRIC


def checker(shared: Path) -> Any:
    spec = importlib.util.spec_from_file_location("check_forged", shared / "check_forged.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(folder: Path) -> Result:
    return METRIC.compute(build(ingest([folder], workers=1)))


@pytest.mark.parametrize("preset", ["pp4_1f1b", "pp4_zbh1", "p2p_batched", "tp2pp4dp2_1f1b", "captures/iteration_10"])
def test_forged_truth(shared: Path, preset: str) -> None:
    folder = shared / "forged" / preset
    result = measured(folder)
    tables = {name: records(table) for name, table in result.tables.items()}
    report = {"metrics": {"pipeline": {"available": result.available, "summary": plain(dict(result.summary)), "tables": tables}}}
    tally = checker(shared).check(json.loads((folder / "truth.json").read_text()), report, ["pipeline"])["pipeline"]
    assert tally.made > 0
    assert tally.passed == tally.made, tally.first


def test_a_pipeline_with_missing_ranks_stands_beside_a_whole_one(shared: Path) -> None:
    result = measured(shared / "forged" / "partial")
    table = result.tables["pipelines"]
    assert dict(zip(table["ranks"], table["complete"], strict=True)) == {"0,4,8,12": True, "1,5,9,13": False}
    assert table.loc[~table["complete"], ["window_ns", "bubble_ratio", "bubble_over_ideal"]].isna().all(axis=None)
    alone = result.tables["stages"].query("rank == 1")
    assert alone[["bubble_ns", "fill_ns", "drain_ns"]].isna().all(axis=None)
    assert alone["gaps_ns"].gt(0).all()


def test_parts_of_every_rank_sum_to_the_window(shared: Path) -> None:
    result = measured(shared / "forged" / "pp4_zbh1")
    stages = result.tables["stages"].merge(result.tables["pipelines"][["step", "pipeline", "window_ns"]], on=["step", "pipeline"])
    parts = ["work_ns", "fill_ns", "steady_wait_ns", "p2p_transfer_ns", "exposed_other_collective_ns", "launch_gap_ns", "drain_ns"]
    assert stages[parts].sum(axis=1).equals(stages["window_ns"])
