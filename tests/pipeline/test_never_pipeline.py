"""Are the sends and receives of ring attention and of expert all-to-all never taken for a pipeline's?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import builders as b
from tests.analyses import analysis_of
from tests.pipeline.test_virtual_stages import drawn, passed, read
from tracekit.facts.actions import actions
from tracekit.schedule.orders import order


def call(what: str, at: float, ranks: int, desc: str | None, peer: int | None) -> dict[str, Any]:
    about: dict[str, Any] = {"Collective name": what, "Process Group Ranks": str(list(range(ranks)))}
    about |= {} if desc is None else {"Process Group Description": desc}
    about |= {} if peer is None else {"Dst Rank" if what == "send" else "Src Rank": peer}
    return b.op("record_param_comms", at, at + 1, **about)


def compute(direction: str, at: float, node: int) -> list[dict[str, Any]]:
    make, name = (b.forward, "aten::mm") if direction == "F" else (b.backward, "MmBackward0")
    return [make(name, at, at + 4, node), b.launch(at + 1, at + 2, int(at)), b.kernel("gemm", 10_000 + at, 10_004 + at, int(at))]


def attention(rank: int, ranks: int, layers: int, turn: int, desc: str | None, peers: bool, microbatches: int = 1) -> list[dict[str, Any]]:
    """Ring attention: in every layer each rank works, sends to the one side and receives from the other, and works again, ranks times."""
    ahead, behind = ((rank + turn) % ranks, (rank - turn) % ranks) if peers else (None, None)
    events, at, nodes = [], 10.0, layers * ranks
    for m in range(microbatches):
        for direction in "FB":
            for k in range(nodes) if direction == "F" else reversed(range(nodes)):
                events += compute(direction, at, 10 + m * nodes + k)
                at += 5
                if (k % ranks != ranks - 1) if direction == "F" else k % ranks:
                    events += [call("send", at, ranks, desc, ahead), call("recv", at + 2, ranks, desc, behind)]
                    at += 4
    return [b.span("ProfilerStep#4", 0, at), *events]


@pytest.mark.parametrize("desc", [None, "mesh_cp", "undefined"])
@pytest.mark.parametrize("peers", [False, True])
@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize(("ranks", "layers"), [(2, 1), (2, 2), (4, 1), (4, 3)])
def test_ring_attention(ranks: int, layers: int, turn: int, peers: bool, desc: str | None) -> None:
    for rank in range(ranks):
        assert read(attention(rank, ranks, layers, turn, desc, peers), rank) == []


@pytest.mark.parametrize("microbatches", [2, 4])
def test_ring_attention_under_gradient_accumulation(microbatches: int) -> None:
    for rank in range(2):
        assert read(attention(rank, 2, 1, 1, None, False, microbatches), rank) == []


@pytest.mark.parametrize("desc", [None, "mesh_ep"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_to_all_of_experts_made_of_sends_and_receives(ranks: int, desc: str | None) -> None:
    """Work, exchange with every other rank (dispatch), work, exchange (combine), work; the same backwards."""
    for rank in range(ranks):
        events, at = [], 10.0
        for direction, nodes in (("F", (10, 11, 12)), ("B", (12, 11, 10))):
            for node in nodes:
                events += compute(direction, at, node)
                at += 5
                if node != nodes[-1]:
                    for peer in (r for r in range(ranks) if r != rank):
                        events += [call("send", at, ranks, desc, peer), call("recv", at + 2, ranks, desc, peer)]
                        at += 4
        assert read([b.span("ProfilerStep#4", 0, at), *events], rank) == []


def test_all_to_all_kernels_without_calls() -> None:
    """A kernel of SendRecv moves to and from every rank: nothing says what it is for."""
    about = {"Collective name": "alltoall", "Process Group Ranks": "[0, 1]"}
    events = [*compute("F", 10, 10), *compute("F", 20, 11), *compute("B", 30, 11), *compute("B", 40, 10)]
    for k, at in enumerate((16, 36)):
        events += [b.launch(at, at + 1, 900 + k), b.kernel("ncclDevKernel_SendRecv(args)", 10_000 + at, 10_002 + at, 900 + k, stream=9, **(about if k else {}))]
    assert not len(actions(passed([b.span("ProfilerStep#4", 0, 60), *events], 0))["actions"])


def test_a_ring_inside_the_stages_of_a_pipeline_is_left_out() -> None:
    events = drawn("1f1b", 4, 8, 1, 1)
    work = [e["ts"] for e in events if "Sequence number" in e["args"]]
    ring = [call(what, at + shift, 2, "mesh_cp", 5) for at in work[::2] for what, shift in (("send", 2.2), ("recv", 3.2))]
    assert read([*events, *ring], 1) == list(order("1f1b", 4, 8)[1])


@pytest.mark.parametrize("name", ["nsysai/mfu_2gpu_before.sqlite.gz", "param/inputs__dlrm_kineto.tar.gz"])
def test_real_traces_without_a_pipeline(shared: Path, name: str) -> None:
    result = analysis_of(shared / "traces" / name).result("pipeline")
    assert not result.available and str(result.reason).startswith("no pipeline actions: the job has no pipeline")
    assert not result.summary and not result.tables
