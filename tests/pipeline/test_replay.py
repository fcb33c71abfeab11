"""A recorded pipeline, run again on paper with its own times, takes as long as it took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.analyses import analysis_of as samples_of
from tests.forged import analysis_of
from tracekit import analyze
from tracekit.job.pipelines import pipelines
from tracekit.job.replay import causes, replay, replays

SAMPLES = Path(__file__).parent.parent.parent / "sample_traces"


@pytest.mark.parametrize("job", ["pp4_1f1b", "pp4_zbh1", "p2p_batched", "tp2pp4dp2_1f1b", "clock_skew"])
def test_forged_pipelines_are_met_to_a_thousandth_or_so(shared: Path, job: str) -> None:
    played = [replay(one) for one in pipelines(analysis_of(shared / "forged" / job).job)]
    assert played and all(one is not None and abs(one.error_ratio) < 0.005 and one.trusted for one in played)


@pytest.mark.parametrize("run", ["pp-1f1b", "pp-interleaved-zb"])
def test_real_runs_are_met_within_the_bounds_of_trust(run: str) -> None:
    found = pipelines(samples_of(SAMPLES / run).job)
    assert found
    for one in found:
        played = replay(one)
        assert played is not None and played.trusted


def test_what_lies_between_actions_is_read_off_exactly(shared: Path) -> None:
    one = replay(pipelines(analysis_of(shared / "forged" / "pp4_1f1b").job)[0])
    assert one is not None
    assert one.overhead == 1100  # the gap between kernels that the traces were made with
    assert len(one.handover) == 6 and len(set(one.handover.values())) == 1


@pytest.mark.parametrize(("job", "closed_form"), [("pp4_1f1b", 3 / 11), ("p2p_batched", 3 / 11)])
def test_what_the_order_itself_costs_is_the_closed_form(shared: Path, job: str, closed_form: float) -> None:
    one = replay(pipelines(analysis_of(shared / "forged" / job).job)[-1])
    assert one is not None
    shares = causes(one)
    assert shares["schedule"] == pytest.approx(closed_form, abs=1e-6)
    assert sum(shares.values()) == pytest.approx(one.simulation.bubble_ratio, abs=1e-9)
    assert shares["handover"] > 0.01 > abs(shares["imbalance"])


def test_what_a_rank_waits_is_divided_likewise(shared: Path) -> None:
    analysis = analysis_of(shared / "forged" / "pp4_1f1b")
    stages = analysis.result("pipeline").tables["stages"]
    parts = stages[[f"wait_from_{cause}_ns" for cause in ("schedule", "handover", "imbalance", "variation")]]
    assert ((parts.sum(axis=1) - stages["gaps_ns"]).abs() < 20_000).all()
    assert (stages["wait_from_schedule_ns"] > 0).tolist() == [rank < 3 for rank in stages["rank"]]  # the last stage of 1F1B never waits in between


def test_with_a_rank_missing_nothing_is_replayed(shared: Path) -> None:
    folder = shared / "forged" / "pp4_1f1b"
    part = analyze([folder / f"rank{r}.json.gz" for r in (0, 1, 3)], workers=1)
    assert [replay(one) for one in pipelines(part.job)] == [None] * len(pipelines(part.job))


def test_the_report_holds_the_simulation_beside_the_measurement(shared: Path) -> None:
    summary = analysis_of(shared / "forged" / "pp4_zbh1").result("pipeline").summary
    assert summary["simulated_bubble_ratio"] == pytest.approx(summary["bubble_ratio"], abs=1e-4)
    assert abs(summary["simulation_error_ratio"]) < 1e-3


def test_a_jobs_pipelines_are_played_once(shared: Path) -> None:
    job = analysis_of(shared / "forged" / "pp4_1f1b").job
    assert pipelines(job) is pipelines(job) and replays(job) is replays(job)
    assert replace(job, world_size=5)._made == {}
