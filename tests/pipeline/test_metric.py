"""Is a pipeline's window divided exactly, and are the ratios those of the definitions?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.drawings import job
from tracekit.job.base import Job
from tracekit.job.pipeline_window import GAP_PARTS
from tracekit.metrics.base import Result
from tracekit.metrics.pipeline import METRIC

#: F = 2, B = 4, transfers of 1:      0 1 2 3 4 5 6 7 8 9 ...
#: rank 0   0F0 0-2, 0F1 2-4, waits, 0B0 9-13,  waits, 0B1 16-20
#: rank 1   waits, 1F0 3-5, 1B0 5-8 …
LANES = {0: "0F0 0-2 0F1 2-4 0B0 9-13 0B1 17-20", 1: "1F0 3-5 1B0 5-8 1F1 9-11 1B1 12-16"}
SENT = ["0>1 F0 2,0-3", "0>1 F1 4,8-9", "1>0 B0 8,4-9", "1>0 B1 16,13-17"]
PARTS = ("fill_ns", *GAP_PARTS, "drain_ns")


def rows(result: Result) -> pd.DataFrame:
    return result.tables["stages"].set_index(["rank", "stage"]).sort_index()


def test_the_window_of_a_drawn_pipeline() -> None:
    result = METRIC.compute(job(LANES, SENT))
    stages = rows(result)
    assert stages.loc[(0, 0), ["work_ns", "bubble_ns", *PARTS]].tolist() == [11, 9, 0, 4 + 3, 1 + 1, 0, 0, 0]
    # rank 1 receives F1 (8 to 9) before 1F1 and nothing before 1B1, which starts one late
    assert stages.loc[(1, 1), ["work_ns", "bubble_ns", *PARTS]].tolist() == [11, 9, 3, 0, 1, 0, 1, 4]
    summary = result.summary
    assert (summary["schedule"], summary["pipeline_ranks"], summary["stages"], summary["microbatches"]) == ("1f1b", 2, 2, 2)
    assert summary["window_ns"] == 20
    assert summary["bubble_ratio"] == pytest.approx(1 - 22 / 40)
    assert summary["bubble_over_ideal"] == pytest.approx(40 / 22 - 1)
    assert summary["longest_stage_bubble_ratio"] == pytest.approx(1 - 11 / 20)
    assert summary["closed_form_bubble_ratio"] == pytest.approx(1 / 3)
    assert summary["simulated_bubble_ratio"] == pytest.approx(1 - 22 / (2 * 18))  # nothing between actions but the median hand-over


def test_the_source_of_the_actions_and_how_sure_it_is() -> None:
    named = METRIC.compute(job(LANES, SENT)).summary
    assert (named["actions_source"], named["actions_confidence_ratio"]) == ("range", None)
    drawn = job(LANES, SENT)
    for (rank, _), facts in drawn.ranks.items():
        facts.tables["actions"] = facts.tables["actions"].assign(source="inferred", explained_ratio=[1.0, 0.9][rank])
    inferred = METRIC.compute(drawn)
    assert (inferred.summary["actions_source"], inferred.summary["actions_confidence_ratio"]) == ("inferred", 0.9)
    assert any("actions_confidence_ratio is the least share" in note for note in inferred.notes)


def test_transfers_without_labels_are_told_by_their_order() -> None:
    bare = ["0>1 2,0-3", "0>1 4,8-9", "1>0 8,4-9", "1>0 16,13-17"]
    assert rows(METRIC.compute(job(LANES, bare))).equals(rows(METRIC.compute(job(LANES, SENT))))


def test_labels_outrank_the_order() -> None:
    swapped = ["0>1 F1 2,0-3", "0>1 F0 4,8-9", *SENT[2:]]
    # F1 came before the gap that it ends, which is then no wait
    assert rows(METRIC.compute(job(LANES, swapped))).loc[(1, 1), ["steady_wait_ns", "p2p_transfer_ns", "launch_gap_ns"]].tolist() == [0, 0, 2]


def test_what_is_not_matched_is_waiting_of_unknown_kind() -> None:
    result = METRIC.compute(job(LANES, SENT[2:], group="0,1"))
    stages = rows(result)
    assert stages.loc[(1, 1), ["fill_ns", "steady_wait_ns", "launch_gap_ns", "drain_ns"]].tolist() == [3, 1, 1, 4]
    assert pd.isna(stages.loc[(1, 1), "p2p_transfer_ns"])
    assert any("not matched" in note for note in result.notes)


def test_collectives_between_actions_are_no_launch_gap() -> None:
    lanes = {0: "0F0 0-2 0B0 9-13", 1: "1F0 3-5 1B0 7-8"}
    stages = rows(METRIC.compute(job(lanes, ["0>1 F0 2,0-3", "1>0 B0 8,2-9"], gaps={1: [(6, 7)]})))
    assert stages.loc[(1, 1), ["exposed_other_collective_ns", "launch_gap_ns"]].tolist() == [1, 1]


def test_overlapped_actions_count_once() -> None:
    lanes = {0: "0F0 0-2 3F0 6-8 3B0 8-10 0F1 10-14 0B0 12-18", 1: "1F0 2-4 2F0 4-6 2B0 10-11 1B0 11-12"}
    stages = rows(METRIC.compute(job(lanes, group="0,1")))
    assert stages.loc[0, "work_ns"].tolist() == [2 + 4 + 4, 4]
    assert stages.loc[0, "bubble_ns"].tolist() == [18 - 14] * 2


def test_a_first_stage_that_does_its_whole_backward_in_w_waits_for_the_gradient() -> None:
    lanes = {0: "0F0 0-2 0F1 2-4 0W0 9-13 0W1 15-19", 1: "1F0 3-5 1I0 5-7 1W0 7-8 1F1 9-10 1I1 10-12 1W1 12-13"}
    sent = ["0>1 F0 2,0-3", "0>1 F1 4,8-9", "1>0 B0 7,4-9", "1>0 B1 12,13-15"]
    result = METRIC.compute(job(lanes, sent))
    assert rows(result).loc[(0, 0), ["steady_wait_ns", "p2p_transfer_ns", "launch_gap_ns"]].tolist() == [3, 2 + 2, 0]
    assert result.summary["schedule"] == "zb_h1"
    assert result.summary["weight_gradient_mean_ns"] == 1


def test_a_missing_rank_leaves_ratios_unknown_and_own_gaps_known() -> None:
    result = METRIC.compute(job({0: LANES[0]}, group="0,1"))
    assert result.available
    assert result.summary["bubble_ratio"] is None
    assert result.summary["window_ns"] is None
    assert result.summary["pipeline_ranks"] == 2
    row = rows(result).loc[(0, 0)]
    assert (row["work_ns"], row["gaps_ns"]) == (11, 9)
    assert row[["bubble_ns", "fill_ns", "drain_ns"]].isna().all()


def test_clocks_that_contradict_causality_give_no_window() -> None:
    shift = 1_000_000
    late = "0F0 {}-{} 0B0 {}-{}".format(*(shift + t for t in (0, 2, 9, 13)))
    result = METRIC.compute(job({0: late, 1: "1F0 3-5 1B0 7-8"}, group="0,1"))
    assert result.summary["bubble_ratio"] is None
    assert any("clocks disagree" in note for note in result.notes)


def test_no_actions_is_said() -> None:
    result = METRIC.compute(job({}))
    assert not result.available
    assert result.reason is not None
    assert "no pipeline" in result.reason


def test_two_pipelines_are_kept_apart() -> None:
    lanes = {0: "0F0 0-2 0B0 9-13", 1: "0F0 0-2 0B0 9-13", 2: "1F0 3-5 1B0 5-8", 3: "1F0 3-5 1B0 5-8"}
    sent = ["0>2 F0 2,0-3", "2>0 B0 8,2-9", "1>3 F0 2,0-3", "3>1 B0 8,2-9"]
    result = METRIC.compute(job(lanes, sent))
    assert result.tables["pipelines"]["ranks"].tolist() == ["0,2", "1,3"]
    assert result.summary["pipelines"] == 2
    assert result.summary["bubble_ratio"] == pytest.approx(1 - 11 / 26)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_parts_sum_to_the_window_whatever_happens(data: st.DataObject) -> None:
    """Random spans (overlaps too), transfers and other collectives on two ranks, against a count ns by ns."""
    lanes, spans, gaps = {}, {}, {}
    for rank in (0, 1):
        edges = data.draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=4, max_size=4))
        names = [f"{rank}{a}" for a in ("F0", "F1", "B0", "B1")]
        spans[rank] = sorted((s, s + d) for s, d in edges)
        lanes[rank] = " ".join(f"{n} {s}-{e}" for n, (s, e) in zip(names, spans[rank], strict=True))
        gaps[rank] = [(s, s + d) for s, d in data.draw(st.lists(st.tuples(st.integers(0, 45), st.integers(1, 6)), max_size=2))]
    times = st.tuples(st.integers(0, 45), st.integers(0, 45), st.integers(0, 50))
    labels = ["0>1 F0", "0>1 F1", "1>0 B0", "1>0 B1"]
    sent = [f"{label} {a},{b}-{c}" for label, (a, b, c) in zip(labels, [data.draw(times) for _ in labels], strict=True) if data.draw(st.booleans())]
    result = METRIC.compute(job(lanes, sent, group="0,1", gaps=gaps))
    stages = rows(result)
    start, end = min(s for v in spans.values() for s, _ in v), max(e for v in spans.values() for _, e in v)
    for rank in (0, 1):
        row = stages.loc[(rank, rank)]
        assert row["work_ns"] == sum(any(s <= t < e for s, e in spans[rank]) for t in range(start, end))
        assert row["work_ns"] + row[list(PARTS)].fillna(0).sum() == end - start == row["work_ns"] + row["bubble_ns"]
        assert (row[list(PARTS)].dropna() >= 0).all()


def test_a_mesh_without_pipeline_is_said_plainly() -> None:
    assert METRIC.compute(Job({}, mesh={"pp": 1, "tp": 2})).reason == "the job has no pipeline: its mesh has no axis pp"
    assert "add the recorder" in str(METRIC.compute(Job({}, mesh={"tp": 2})).reason)


def test_on_gloo_the_transfer_is_called_an_upper_bound() -> None:
    drawn = job(LANES, SENT)
    on_cpu = replace(drawn, ranks={key: replace(facts, meta=replace(facts.meta, device_type="cpu")) for key, facts in drawn.ranks.items()})
    on_gpu = replace(drawn, ranks={key: replace(facts, meta=replace(facts.meta, device_type="gpu")) for key, facts in drawn.ranks.items()})
    assert any("upper bound" in note for note in METRIC.compute(on_cpu).notes)
    assert not any("upper bound" in note for note in METRIC.compute(on_gpu).notes)
