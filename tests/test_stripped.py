"""Without any annotation, forged jobs still tell of their layers, directions, schedules and bubbles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forged import analysis_of, checker, stripped, truth_of
from tracekit import Analysis, analyze

JOBS = ["tp4", "tp4_sp", "recompute_full", "old_names", "tp2pp4dp2_1f1b", "pp4_1f1b", "pp4_zbh1", "p2p_batched"]


def bare(shared: Path, job: str) -> tuple[dict[str, Any], Analysis]:
    """The truth of a job, and the analysis of its traces without the ranges and frames that name layers, actions and recomputation."""
    folder = shared / "forged" / job
    return truth_of(folder), analysis_of(stripped(shared, folder))


@pytest.mark.parametrize("job", JOBS)
def test_layers_directions_and_bubble_are_right_without_annotation(shared: Path, job: str) -> None:
    truth, analysis = bare(shared, job)
    tallies = checker(shared).check_stripped(truth, analysis.to_dict())
    assert {area: t.first for area, t in tallies.items() if t.first} == {}
    assert sum(t.made for t in tallies.values()) >= 1


@pytest.mark.parametrize("job", ["tp4", "tp2pp4dp2_1f1b"])
def test_every_layer_is_right_and_said_to_be_inferred(shared: Path, job: str) -> None:
    truth, analysis = bare(shared, job)
    tally = checker(shared).check(truth, analysis.to_dict(), ["layers"])["layers"]
    assert (tally.first, tally.made > 800) == ([], True)
    instances = analysis.result("collectives").tables["instances"]
    assert set(instances["layer_source"][instances["layer_index"].notna() & instances["axis"].eq("tp")]) == {"inferred"}
    assert "layers_inferred" in {f["code"] for f in analysis.health()["findings"]}


def test_ranks_that_are_left_out_leave_lower_bounds(shared: Path, tmp_path: Path) -> None:
    folder = shared / "forged" / "tp4"
    whole = analysis_of(folder).result("collectives")
    part = analyze([folder / f"rank{r}.json.gz" for r in (0, 2)], workers=1).result("collectives")
    assert part.tables["instances"]["wait_is_lower_bound"].all()
    assert part.tables["instances"]["transfer_ns"].isna().all()
    both = part.tables["by_rank"].merge(whole.tables["by_rank"], on=["rank", "start_ns", "end_ns"], suffixes=("", "_true"))
    assert len(both) == len(part.tables["by_rank"])
    assert (both["wait_ns"] <= both["wait_ns_true"]).all() and (both["wait_ns"] < both["wait_ns_true"]).any()


def test_a_missing_stage_is_taken_to_be_like_the_others_and_that_is_said(shared: Path) -> None:
    traces = stripped(shared, shared / "forged" / "tp2pp4dp2_1f1b").glob("rank*")
    replica, second = (0, 1, 4, 5, 8, 9, 12, 13), (4, 5)
    analysis = analyze([path for path in traces if int(path.name.removeprefix("rank").split(".")[0]) in set(replica) - set(second)], workers=1)
    layers = analysis.result("collectives").tables["by_layer"]
    assert sorted(layers["layer_index"].dropna().unique()) == [0, 1, 4, 5, 6, 7]
    said = [f["message"] for f in analysis.health()["findings"] if f["code"] == "layer_numbers_assumed"]
    assert len(said) == 1 and "stages 1" in said[0] and "2 layers" in said[0]
