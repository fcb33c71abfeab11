"""Do actions run from their first to their last work, and are they found where nothing names them?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders as b
from tracekit import schema
from tracekit.facts.actions import actions
from tracekit.passes import run_passes
from tracekit.trace import RankTrace

SPAN = ["stage", "action", "microbatch", "start_ns", "end_ns", "compute_ns", "exposed_collective_ns", "inner_gap_ns"]


def spans(trace: RankTrace) -> list[tuple[Any, ...]]:
    return list(actions(trace)["actions"][SPAN].itertuples(index=False, name=None))


def work(name: str, at: float, start: float, end: float, correlation: int, **args: Any) -> list[dict[str, Any]]:
    """A launch and its kernel."""
    return [b.launch(at, at + 1, correlation), b.kernel(name, start, end, correlation, **args)]


def collective(desc: str, at: float, start: float, end: float, correlation: int) -> list[dict[str, Any]]:
    """An all-reduce over a described group."""
    marks = {"Collective name": "allreduce", "Process Group Description": desc, "Process Group Ranks": "[0, 1]", "Group size": 2}
    return work("ncclDevKernel_AllReduce_Sum", at, start, end, correlation, stream=9, **marks)


def step(events: list[dict[str, Any]], end: float = 1000) -> list[dict[str, Any]]:
    return [b.span("ProfilerStep#4", 0, end), *events]


def test_a_span_is_that_of_the_work_and_not_of_the_range() -> None:
    wait = {"Collective name": "recv", "Process Group Description": "mesh_pp"}
    trace = b.passed(
        step(
            [
                b.span("PP:1F0", 10, 30),
                *work("ncclDevKernel_SendRecv", 11, 20, 100, 1, stream=8, **wait),
                *work("gemm", 12, 100, 140, 2),
                *work("gemm", 14, 150, 160, 3),
            ]
        )
    )
    assert spans(trace) == [(1, "F", 0, 100_000, 160_000, 50_000, 0, 10_000)]


def test_tensor_parallel_collectives_belong_to_an_action_and_data_parallel_ones_do_not() -> None:
    trace = b.passed(
        step(
            [
                b.span("PP:0B2", 10, 40),
                *work("gemm", 12, 100, 140, 1),
                *collective("mesh_tp", 14, 130, 170, 2),
                *collective("mesh_dp", 16, 170, 300, 3),
            ]
        )
    )
    assert spans(trace) == [(0, "B", 2, 100_000, 170_000, 40_000, 30_000, 0)]


def test_collectives_between_actions_are_kept() -> None:
    trace = b.passed(
        step(
            [
                b.span("PP:0F0", 10, 20),
                *work("gemm", 12, 100, 140, 1),
                b.span("PP:0F1", 30, 60),
                *collective("mesh_dp", 32, 130, 200, 2),
                *work("gemm", 34, 210, 250, 3),
                *collective("mesh_dp", 62, 250, 400, 4),
            ]
        )
    )
    gaps = actions(trace)["gap_collectives"]
    assert gaps[["step", "start_ns", "end_ns"]].to_numpy().tolist() == [[4, 140_000, 200_000]]


def test_overlapped_actions_are_told_apart_by_phase() -> None:
    trace = b.passed(
        step(
            [
                b.span("PP:(0F3;7B1)OVERLAP_F_B", 10, 60),
                b.forward("aten::mm", 12, 16, 50),
                *work("gemm", 13, 100, 140, 1),
                b.backward("MmBackward0", 20, 30, 7),
                *work("gemm", 22, 130, 190, 2, stream=8),
            ]
        )
    )
    assert spans(trace) == [(0, "F", 3, 100_000, 140_000, 40_000, 0, 0), (7, "B", 1, 130_000, 190_000, 60_000, 0, 0)]
    fresh = actions(trace)["actions"]
    assert fresh[["fresh_start_ns", "fresh_compute_ns"]].to_numpy().tolist() == [[100_000, 40_000], [140_000, 50_000]]


def test_gpipe_ranges_take_the_stage_from_the_place_in_the_mesh() -> None:
    events = step([b.span("Forward 0", 10, 20), *work("gemm", 12, 100, 140, 1), b.span("Backward 0", 30, 40), *work("gemm", 32, 150, 180, 2)])
    trace = b.read(events)
    trace = run_passes(replace(trace, meta=replace(trace.meta, rank=5, run={"mesh": {"pp": 4, "tp": 2}})))
    assert [row[:3] for row in spans(trace)] == [(2, "F", 0), (2, "B", 0)]
    assert set(actions(trace)["actions"]["source"]) == {"gpipe_range"}


def exchange(name: str, at: float, desc: str = "mesh_pp") -> dict[str, Any]:
    return b.op(name, at, at + 1, **{"Collective name": name[5:9], "Process Group Description": desc, "Process Group Ranks": "[0, 1]"})


def unnamed(last_send: str = "c10d::send") -> list[dict[str, Any]]:
    """First of two stages, two microbatches, one forward one backward, no range that names an action."""
    return step(
        [
            b.forward("aten::mm", 10, 14, 1), *work("gemm", 11, 100, 120, 1), exchange("c10d::send", 15),
            b.forward("aten::mm", 20, 24, 2), *work("gemm", 21, 120, 140, 2), exchange(last_send, 25),
            exchange("c10d::recv_", 30), exchange("c10d::recv_", 31),
            b.backward("MmBackward0", 40, 44, 1), *work("gemm", 41, 200, 240, 3),
            b.backward("MmBackward0", 50, 54, 2), *work("gemm", 51, 300, 340, 4),
        ]
    )  # fmt: skip


def test_actions_are_read_off_sends_receives_and_sequence_numbers() -> None:
    trace = b.passed(unnamed())
    expected = [("F", 0, 100_000), ("F", 1, 120_000), ("B", 0, 200_000), ("B", 1, 300_000)]
    assert [(row[1], row[2], row[3]) for row in spans(trace)] == expected
    assert set(actions(trace)["actions"]["source"]) == {"inferred"}
    assert [f["code"] for f in trace.findings if f["code"] == "actions_inferred"] == ["actions_inferred"]


def lane(*pieces: str) -> list[dict[str, Any]]:
    """One stage's calls in order: 'F1-3' forward of nodes 1 to 3, 'B3-1' backward of nodes 3 to 1, 'send', 'recv'; one kernel per node."""
    events, at = [], 10.0
    for piece in pieces:
        if piece in ("send", "recv"):
            events.append(exchange(f"c10d::{'send' if piece == 'send' else 'recv_'}", at))
            at += 5
            continue
        first, last = (int(n) for n in piece[1:].split("-"))
        for node in range(first, last + 1) if piece[0] == "F" else range(first, last - 1, -1):
            make = b.forward if piece[0] == "F" else b.backward
            events += [make("aten::mm" if piece[0] == "F" else "MmBackward0", at, at + 4, node), *work("gemm", at + 1, 100 + at, 105 + at, int(at))]
            at += 5
    return step(events)


def order(*pieces: str, rank: int = 0) -> list[str]:
    """Actions that such a lane is read as."""
    info = {"rank": rank, "world_size": 2, "backend": "nccl", "pg_config": []}
    return [f"{row[1]}{row[2]}" for row in spans(b.passed(lane(*pieces), distributedInfo=info))]


def test_a_second_pass_over_the_nodes_of_a_backward_is_the_weight_gradients() -> None:
    # the pieces of ZB-H1's second of two stages: input gradients go out first
    assert order("recv", "F1-3", "recv", "F4-6", "B3-1", "send", "B3-2", "B6-4", "send", "B6-5", rank=1) == ["F0", "F1", "I0", "W0", "I1", "W1"]
    # weight gradients put off to the end, and directly after their input gradients
    assert order("recv", "F1-3", "recv", "F4-6", "B3-1", "send", "B6-4", "send", "B3-2", "B6-5", rank=1) == ["F0", "F1", "I0", "I1", "W0", "W1"]
    assert order("F1-3", "send", "F4-6", "send", "recv", "recv", "B3-1", "B3-1", "B6-4", "B6-4") == ["F0", "F1", "I0", "W0", "I1", "W1"]
    # the last microbatch alone is not split
    assert order("F1-3", "send", "F4-6", "send", "recv", "recv", "B3-1", "B3-2", "B6-4") == ["F0", "F1", "I0", "W0", "B1"]


def test_a_node_with_the_number_of_another_forward_follows_the_work_before_it() -> None:
    """An embedding's backward at the end of every pass carries the number of the forward recorded last."""
    forwards = ("F1-9", "send", "F10-18", "send", "F19-27", "send", "recv", "recv", "recv")
    assert order(*forwards, "B9-1", "B27-27", "B18-10", "B27-27", "B27-19", "B27-27") == ["F0", "F1", "F2", "B0", "B1", "B2"]
    # a pass in two long pieces is no such node: then the order says nothing
    assert order(*forwards, "B9-1", "B27-24", "B18-10", "B23-19") == []


def test_traffic_that_does_not_fit_infers_nothing() -> None:
    assert spans(b.passed(unnamed(last_send="aten::add"))) == []


def test_no_pipeline_gives_empty_tables() -> None:
    out = actions(b.passed(step(work("gemm", 12, 100, 140, 1))))
    schema.validate(out["actions"], schema.ACTIONS)
    schema.validate(out["gap_collectives"], schema.GAP_COLLECTIVES)
    assert not len(out["actions"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["compute", "tp", "dp"]), st.integers(0, 3), st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=8))
def test_the_parts_of_every_span_sum_to_it(pieces: list[tuple[str, int, int, int]]) -> None:
    """Random kernels in four actions, against a count microsecond by microsecond."""
    events: list[dict[str, Any]] = [b.span(f"PP:0F{m}", 10 + 20 * m, 29 + 20 * m) for m in range(4)]
    for i, (what, m, start, length) in enumerate(pieces):
        at, begin, end = 11 + 20 * m + i, 200 + start, 200 + start + length
        events += work("gemm", at, begin, end, i, stream=20 + i) if what == "compute" else collective(f"mesh_{what}", at, begin, end, i)
    table = actions(b.passed(step(events)))["actions"]
    inside = [(m, w, s, s + n) for w, m, s, n in pieces if w != "dp"]
    assert len(table) == len({m for m, *_ in inside})
    computing = {t for _, w, s, e in inside if w == "compute" for t in range(s, e)}
    for row in table.itertuples():
        own = [(w, s, e) for m, w, s, e in inside if m == row.microbatch]
        compute = {t for w, s, e in own if w == "compute" for t in range(s, e)}
        exposed = {t for w, s, e in own if w == "tp" for t in range(s, e)} - computing
        assert (row.compute_ns, row.exposed_collective_ns) == (1000 * len(compute), 1000 * len(exposed))
        assert row.compute_ns + row.exposed_collective_ns + row.inner_gap_ns == row.end_ns - row.start_ns
    union = {t for m in {m for m, *_ in inside} for t in range(min(s for k, _, s, _ in inside if k == m), max(e for k, *_, e in inside if k == m))}
    assert int((table["end_ns"] - table["fresh_start_ns"]).sum()) == 1000 * len(union)
    assert int(table["fresh_compute_ns"].sum()) == 1000 * len(computing)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_actions_come_in_order_of_start(order: tuple[int, int]) -> None:
    events = [b.span("PP:0F0", 10, 20), b.span("PP:0F1", 30, 40)]
    kernels = [work("gemm", 12, 100, 140, 1), work("gemm", 32, 150, 180, 2)]
    table: pd.DataFrame = actions(b.passed(step([*events, *kernels[order[0]], *kernels[order[1]]])))["actions"]
    assert table["microbatch"].tolist() == [0, 1]
