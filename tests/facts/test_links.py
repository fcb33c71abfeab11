"""What was tied to the call that caused it: counted on a few rows, and exactly as in a plain reading of public traces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import GLOO, backward, forward, kernel, launch, op, passed, span
from tests.test_reference import REFERENCES, report_of
from tracekit import schema
from tracekit.facts.links import links
from tracekit.job.base import Job
from tracekit.metrics.links import METRIC
from tracekit.trace import RankFacts, RankMeta


def counts(events: list[dict[str, Any]]) -> dict[str, int]:
    """The counts that are not 0."""
    table = links(passed(events))["links"]
    schema.validate(table, schema.LINKS)
    return {k: int(v) for k, v in table.iloc[0].items() if v}


def test_every_way_of_tying_is_counted_apart() -> None:
    assert counts(
        [
            op("aten::mm", 0, 10, **{"External id": 3}),
            launch(5, 6, 20),
            kernel("from before", 1, 2, 4),
            kernel("called", 8, 9, 20),
            kernel("by operator", 9, 10, 21, **{"External id": 3}),
            kernel("alone", 10, 11, 22),
        ]
    ) == {"device_work": 4, "by_correlation": 1, "by_external_id": 1, "before_recording": 1, "unlinked": 1, "most_per_launch": 1, "launches": 1}


def test_kernels_of_a_graph_share_one_launch() -> None:
    got = counts([op("cudaGraphLaunch", 0, 1, cat="cuda_runtime", correlation=5), *(kernel("k", 2 + i, 3 + i, 5) for i in range(4)), launch(1, 2, 6)])
    assert got == {"device_work": 4, "by_correlation": 4, "graph_work": 4, "most_per_launch": 4, "launches": 2, "launches_without_work": 1}


def test_a_backward_node_without_its_forward_is_counted() -> None:
    got = counts([forward("aten::mm", 0, 1, 50), backward("MmBackward0", 2, 3, 50), backward("AddBackward0", 3, 4, 51), backward("AccumulateGrad", 4, 5, None)])
    assert got == {"backward_nodes": 2, "backward_unpaired": 1}


def test_a_gloo_execution_is_tied_by_order_and_its_call_states_the_size() -> None:
    shapes = {"Input Dims": [[[4, 8]], []], "Input type": ["TensorList", "float"]}
    got = counts([op("c10d::allreduce_", 0, 1, **shapes), span("gloo:all_reduce", 1, 3, tid=GLOO), op("aten::mm", 3, 4)])
    assert got == {"device_work": 1, "by_order": 1, "communication": 1}


def test_device_time_goes_to_the_innermost_and_the_outermost_operator() -> None:
    trace = passed(
        [
            op("aten::linear", 0, 10),
            op("aten::addmm", 1, 9),
            launch(2, 3, 1),
            launch(4, 5, 2),
            launch(11, 12, 3),
            kernel("gemm", 20, 27, 1),
            kernel("splitk", 27, 30, 2),
            kernel("free", 30, 31, 3),
        ]
    )
    table = links(trace)["operator_times"]
    schema.validate(table, schema.OPERATOR_TIMES)
    assert table.values.tolist() == [["aten::addmm", 2, 10_000, 0, 0], [None, 1, 1_000, 1, 1_000], ["aten::linear", 0, 0, 2, 10_000]]


def test_the_metric_adds_up_all_ranks_and_says_what_is_missing() -> None:
    facts = {(rank, 0): RankFacts(RankMeta(rank=rank), links(passed([kernel("k", 1, 3), *([launch(0, 1, 9)] if rank else [])], rank=rank))) for rank in (0, 1)}
    got = METRIC.compute(Job(facts))
    assert (got.summary["device_work"], got.summary["linked"], got.summary["unlinked"], got.summary["launches_matched"]) == (2, 0, 2, 0)
    assert got.tables["operators"].values.tolist() == [[None, 2, 4_000, 2, 4_000]]
    assert any("No launch call was recorded" in note for note in got.notes)


def test_without_work_and_calls_there_is_nothing_to_tie() -> None:
    got = METRIC.compute(Job({(0, 0): RankFacts(RankMeta(rank=0), links(passed([op("aten::mm", 0, 1)])))}))
    assert not got.available and got.reason


@pytest.mark.parametrize("name", [n for n, entry in REFERENCES.items() if entry["n_gpu_work"]])
def test_links_of_public_traces(name: str) -> None:
    """Work without a launch record, and work that shares one, as a plain reading counts them; all of the former was launched before the recording."""
    (row,) = report_of(name)["metrics"]["links"]["tables"]["ranks"]
    want = REFERENCES[name]
    assert row["device_work"] - row["by_correlation"] == want["n_gpu_without_launch_record"] == row["before_recording"]
    assert row["most_per_launch"] == want["max_gpu_events_sharing_one_correlation"]
    assert row["launches_without_work"] == row["unlinked"] == row["by_external_id"] == 0
