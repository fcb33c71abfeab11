"""Do the pipelines of forged jobs add up, also where a rank is missing?"""

from __future__ import annotations

from pathlib import Path

from tests.forged import analysis_of
from tracekit.metrics.base import Result


def measured(folder: Path) -> Result:
    return analysis_of(folder).result("pipeline")


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
