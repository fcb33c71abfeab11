"""Do the pipelines of forged jobs add up, also where a rank is missing?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from tests.forged import analysis_of, checker, report_of, stripped, truth_of
from tracekit.facts.actions import actions
from tracekit.metrics.base import Result
from tracekit.passes import run_passes
from tracekit.readers import kineto


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


@pytest.mark.parametrize(("job", "rank"), [("pp4_zbh1", 0), ("pp4_zbh1", 2), ("tp2pp4dp2_1f1b", 0), ("tp2pp4dp2_1f1b", 14), ("partial", 1), ("p2p_batched", 3)])
def test_actions_read_off_the_order_are_those_that_ranges_named(shared: Path, job: str, rank: int) -> None:
    text = gzip.decompress((shared / "forged" / job / f"rank{rank}.json.gz").read_bytes())
    content = json.loads(text)
    marks = checker(shared).MARKS
    content["traceEvents"] = [e for e in content["traceEvents"] if not marks.match(e.get("name", ""))]
    named, bare = (actions(run_passes(kineto.read(t, Path("rank.json"))[0]))["actions"] for t in (text, json.dumps(content).encode()))
    assert set(bare["source"]) == {"inferred"} and len(bare) > 10 and bare["explained_ratio"].between(0.9, 1).all()
    if job != "p2p_batched":  # whose ranges are none to begin with
        how = ["source", "explained_ratio"]
        pd.testing.assert_frame_equal(bare.drop(columns=how), named.drop(columns=how))


@pytest.mark.parametrize("job", ["pp4_zbh1", "p2p_batched"])
def test_the_bubble_of_a_job_without_annotations(shared: Path, job: str) -> None:
    folder = shared / "forged" / job
    report = report_of(stripped(shared, folder))
    assert checker(shared).check_stripped(truth_of(folder), report)["pipeline"].first == []
