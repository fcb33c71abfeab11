"""The orders that torch.distributed.pipelining gives its schedules: no process group is needed to compute them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.vocabulary import Action

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

SINGLE = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}
MULTI = {
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}


def torch_order(name: str, p: int, m: int, v: int = 1) -> dict[int, list[Action]]:
    """Per rank the actions of torch's schedule; ValueError where torch refuses these numbers."""
    if name in SINGLE:
        return {rank: _executed(name, rank, p, m) for rank in range(p)}
    stages = [SimpleNamespace(group_size=p, group_rank=0, num_stages=p * v, stage_index=p * chunk, submod=None) for chunk in range(v)]
    table = getattr(schedules, MULTI[name])(stages, m).pipeline_order
    return {rank: [a for a in _flat(table[rank]) if a.microbatch < m] for rank in range(p)}


class _RecordedStage:
    """Stands in for a stage of a one-stage-per-rank schedule: it sends nothing, computes nothing, and notes what it was told to do."""

    def __init__(self, index: int, stages: int) -> None:
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, stages, stages, index
        self.is_first, self.is_last, self.has_backward, self.submod = index == 0, index == stages - 1, True, None
        self.done: list[Action] = []

    def forward_one_chunk(self, microbatch: int, *_: Any, **__: Any) -> None:
        self.done.append(Action(self.stage_index, "F", microbatch))

    def backward_one_chunk(self, microbatch: int, **_: Any) -> None:
        self.done.append(Action(self.stage_index, "B", microbatch))

    def get_fwd_recv_ops(self, _: int) -> list[Any]:
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops

    def perform_reduce_grad(self, _: int) -> None:
        """Gradients are none of the schedule's actions."""


def _executed(name: str, rank: int, p: int, m: int) -> list[Action]:
    """What the schedule really runs: its step, with the table torch draws for people left aside (wrong for 1F1B's last rank in 2.13)."""
    stage = _RecordedStage(rank, p)
    schedule = getattr(schedules, SINGLE[name])(stage, m)
    schedule._has_backward = True
    schedule._initialize_stage = lambda *_: None
    schedule._maybe_get_loss = schedule._maybe_compute_loss = lambda *_: None
    schedule._step_microbatches([()] * m, [{}] * m)
    return stage.done


def _flat(order: list[Any]) -> list[Action]:
    """Actions of torch's table, overlapped pairs opened, idle slots and gradient reductions left out."""
    opened = [sub for a in order if a is not None for sub in (a.sub_actions or (a,))]
    return [Action(a.stage_index, a.computation_type.value, a.microbatch_index) for a in opened if a.computation_type.value in "FBIW"]


def overlapped_by_torch(p: int, m: int) -> set[Action]:
    """The forwards in DualPipeV's overlapped pairs."""
    stages = [SimpleNamespace(group_size=p, group_rank=0, num_stages=2 * p, stage_index=p * chunk, submod=None) for chunk in range(2)]
    pairs = [a.sub_actions for lane in schedules.ScheduleDualPipeV(stages, m).pipeline_order.values() for a in lane if a is not None and a.sub_actions]
    return {Action(a.stage_index, "F", a.microbatch_index) for a, _ in pairs}
