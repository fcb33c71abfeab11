"""Does every ns of a step stand in the account exactly once?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.builders import kernel, launch, passed, span
from tracekit import schema
from tracekit.facts.busy import busy
from tracekit.facts.calls import calls
from tracekit.facts.idle import idle
from tracekit.facts.parts import parts
from tracekit.facts.steps import steps
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.metrics.budget import METRIC
from tracekit.trace import RankFacts, RankMeta, RankTrace

GROUP = {"Collective name": "allreduce", "Process Group Name": "1", "Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 1]", "Group size": 2}


def device_step(*work: tuple[str, float, float], seq: bool = True) -> list[dict[str, Any]]:
    """A step of 100 µs whose kernels are launched at its beginning: name, start, end; ``nccl…`` is communication."""
    events = [span("ProfilerStep#1", 0, 100)]
    for i, (name, start, end) in enumerate(work):
        marks = {**GROUP, "Seq": i, "dtype": "Float", "In msg nelems": 8, "Out msg nelems": 8} if "AllReduce" in name else {}
        events += [
            launch(i * 0.1, i * 0.1 + 0.05, i + 1),
            kernel(name, start, end, i + 1, stream=7 + i, cat="gpu_memcpy" if name.startswith("Memcpy") else "kernel", **marks),
        ]
    return events


def facts(trace: RankTrace, rank: int = 0) -> RankFacts:
    tables: dict[str, Any] = {}
    for fact in (steps, busy, calls, parts, idle):
        tables.update(fact(trace))
    return RankFacts(RankMeta(rank=rank, device_type="gpu"), tables)


def account(job: Job, rank: int = 0) -> dict[tuple[str, str | None], int]:
    rows = METRIC.compute(job).tables["ranks"]
    rows = rows[rows["rank"].eq(rank)]
    return {(p, a): d for p, a, d in zip(rows["part"], rows["axis"].where(rows["axis"].notna(), None), rows["duration_ns"], strict=True)}


def test_waiting_and_moving_bytes_are_told_apart_with_both_ranks() -> None:
    mine = device_step(("gemm", 10, 30), ("ncclDevKernel_AllReduce", 20, 60))
    late = device_step(("gemm", 10, 45), ("ncclDevKernel_AllReduce", 50, 60))
    job = build({(r, 0): facts(passed(events, rank=r, world=2), r) for r, events in enumerate((mine, late))})
    moved, first = {("comm_transfer", "tp"): 10_000}, {("launch_gap", None): 10_000}
    assert account(job) == {("other_compute", None): 20_000, ("comm_wait", "tp"): 20_000, **moved, **first, ("idle", None): 40_000}
    assert account(job, 1) == {("other_compute", None): 35_000, **moved, **first, ("idle", None): 45_000}


def test_with_one_rank_alone_the_split_is_unknown_not_zero() -> None:
    job = build({(0, 0): facts(passed(device_step(("gemm", 10, 30), ("ncclDevKernel_AllReduce", 20, 60)), world=2))})
    got = account(job)
    assert got["comm_unsplit", "tp"] == 30_000
    assert not {p for p, _ in got} & {"comm_wait", "comm_transfer"}
    assert any("comm_unsplit" in note for note in METRIC.compute(job).notes)


def test_an_exposed_ns_under_two_calls_goes_to_the_collective() -> None:
    trace = passed(device_step(("ncclDevKernel_SendRecv", 10, 50), ("ncclDevKernel_AllReduce", 30, 40)))
    table = parts(trace)["exposed"]
    schema.validate(table, schema.EXPOSED)
    assert sorted(table[["start_ns", "end_ns", "kind"]].values.tolist()) == [
        [10_000, 30_000, "send_recv"],
        [30_000, 40_000, "all_reduce"],
        [40_000, 50_000, "send_recv"],
    ]


def test_a_call_cut_into_many_pieces_keeps_its_exposed_time() -> None:
    work = [("ncclDevKernel_AllReduce", 0.0, 90.0), *(("gemm", 2.0 * i, 2.0 * i + 1) for i in range(40))]
    table = parts(passed(device_step(*work)))["exposed"]
    assert len(table) <= 16
    assert table["exposed_ns"].sum() == 50_000


TIMES = st.tuples(st.integers(0, 80), st.integers(1, 20)).map(lambda t: (float(t[0]), float(sum(t))))
NAMES = st.sampled_from(["gemm", "relu", "ncclDevKernel_AllReduce", "ncclDevKernel_SendRecv", "Memcpy HtoD"])


@settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(st.tuples(NAMES, TIMES), min_size=1, max_size=8))
def test_the_parts_sum_to_the_step(work: list[tuple[str, tuple[float, float]]]) -> None:
    trace = passed(device_step(*((name, *times) for name, times in work)))
    job = build({(0, 0): facts(trace)})
    got = account(job)
    assert sum(got.values()) == job.table("busy").query("step == 1")["span_ns"].iloc[0]
    # the same by counting µs one by one
    compute, comm = np.zeros(200, bool), np.zeros(200, bool)
    for name, (start, end) in work:
        (comm if name.startswith("nccl") else compute)[int(start) : int(end)] |= not name.startswith("Memcpy")
    assert sum(d for (p, _), d in got.items() if p.startswith("comm")) == 1000 * int((comm & ~compute).sum())
    assert got.get(("other_compute", None), 0) == 1000 * int(compute.sum())
    assert METRIC.compute(job).summary["step_ns"] == sum(got.values())


def test_no_device_work_is_unavailable_with_a_reason() -> None:
    got = METRIC.compute(build({(0, 0): facts(passed([span("ProfilerStep#1", 0, 100)]))}))
    assert not got.available and got.reason


def test_a_pending_gloo_send_is_not_called_moving_bytes() -> None:
    about = {"step": 1, "group_ranks": "0,1", "device": 0, "exposed_ns": 90}
    busy_row = {"device": 0, "device_type": "cpu", "step": 1, "span_ns": 90, "busy_ns": 90}
    step = {"step": 1, "start_ns": 10, "end_ns": 100, "complete": True, "warmup": False}
    ranks = {}
    for rank, kind, start, end in ((0, "send", 10, 100), (1, "recv", 30, 100)):
        call = {**about, "kind": kind, "peer": 1 - rank, "start_ns": start, "end_ns": end, "exposed_ns": end - start}
        piece = {**call, "call_start_ns": start, "call_end_ns": end}
        tables = {"steps": [step], "busy": [{**busy_row, "span_ns": end - start}], "exposed": [piece], "p2p_calls": [call]}
        meta = RankMeta(rank=rank, device_type="cpu", world_size=2)
        ranks[rank, 0] = RankFacts(meta, {name: rows_of(name, rows) for name, rows in tables.items()})
    # rank 1 was ready at 30, so rank 0 waited until then; when the bytes had come nobody looked
    assert account(build(ranks)) == {("comm_wait", "pp"): 20, ("comm_unsplit", "pp"): 70}
    assert account(build(ranks), 1) == {("comm_unsplit", "pp"): 70}


def rows_of(name: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows of a fact table, with what they do not name null, false or 0."""
    table = schema.FACTS[name]
    blank = {c: False if t.dtype == "bool" else 0 if t.dtype == "int64" else None for c, t in table.items()}
    full = [{**blank, **row} for row in rows]
    return schema.conform(pd.DataFrame({c: pd.Series([r[c] for r in full], dtype=t.dtype) for c, t in table.items()}), table)


def test_idle_time_is_divided_by_what_the_host_did_meanwhile() -> None:
    events = [span("ProfilerStep#1", 0, 100), span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10)]
    # the first kernel is launched at 20, the second while the first runs and the third only at 70
    for i, (launched, start, end) in enumerate([(20, 25, 40), (30, 50, 60), (70, 75, 90)]):
        events += [launch(launched, launched + 1, i + 1), kernel("gemm", start, end, i + 1)]
    job = build({(0, 0): facts(passed(events))})
    assert account(job) == {
        ("other_compute", None): 40_000,
        ("input_wait", None): 10_000,
        ("launch_gap", None): 15_000 + 15_000,
        ("idle", None): 10_000 + 10_000,
    }
    rows = METRIC.compute(job).tables["ranks"].set_index("part")
    assert rows["source"].to_dict() == {"other_compute": "measured", "input_wait": "measured", "launch_gap": "measured", "idle": "unknown"}
    assert rows.loc["launch_gap", ["recoverable_ns", "recoverable_by"]].tolist() == [30_000, "launch_ahead"]
    assert pd.isna(rows.loc["idle", "recoverable_ns"]) and rows.loc["idle", "recoverable_by"] is None


def test_what_could_come_back_of_a_wait_is_what_the_last_rank_alone_causes() -> None:
    trio = {**GROUP, "Process Group Ranks": "[0, 1, 2]", "Group size": 3}
    ranks = {}
    for r, start in enumerate((20, 30, 50)):
        marks = {**trio, "Seq": 0, "dtype": "Float", "In msg nelems": 8, "Out msg nelems": 8}
        events = [span("ProfilerStep#1", 0, 100), launch(0, 0.05, 1), kernel("ncclDevKernel_AllReduce", start, 60, 1, **marks)]
        ranks[r, 0] = facts(passed(events, rank=r, world=3), r)
    rows = METRIC.compute(build(ranks)).tables["ranks"]
    waits = rows[rows["part"].eq("comm_wait")]
    assert waits[["rank", "duration_ns", "recoverable_ns"]].values.tolist() == [[0, 30_000, 20_000], [1, 20_000, 20_000]]


def test_nothing_is_hidden_under_compute_that_is_itself_repeated() -> None:
    window = {"step": 1, "device_type": "gpu", "span_ns": 100, "busy_ns": 90, "compute_ns": 60, "overlap_ns": 0, "exposed_memcpy_ns": 30, "idle_ns": 10}
    parts = [{"step": 1, "part": "recompute", "duration_ns": 50}, {"step": 1, "part": "forward", "duration_ns": 10}]
    tables = {"steps": [{"step": 1, "end_ns": 100, "complete": True}], "busy": [window], "compute_parts": parts}
    one = build({(0, 0): RankFacts(RankMeta(rank=0, device_type="gpu"), {name: rows_of(name, rows) for name, rows in tables.items()})})
    got = METRIC.compute(one)
    account = got.tables["account"]
    mean = account[account["rank"].isna()].set_index("part")["recoverable_ns"]
    assert (mean["recompute"], mean["copies"], mean.isna()["compute"]) == (50, 10, True)
    assert "recoverable_ns" not in got.summary
