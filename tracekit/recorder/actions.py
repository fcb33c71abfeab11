"""Which pipeline action runs now? Ranges ``PP:<stage><F|B|I|W><microbatch>`` where torch writes none.

The runtime schedules of torch.distributed.pipelining (interleaved 1F1B, zero-bubble, ZBV, DualPipeV) write such ranges
themselves; ``ScheduleGPipe`` writes ``Forward i`` and ``Backward i``, ``Schedule1F1B`` nothing. Stages are wrapped for
all, and a call that a runtime schedule makes is let through. The loss belongs to the forward of the last stage, as in
the runtime schedules; GPipe and 1F1B compute it after the stage's forward, so there it gets a second range of the same
name. Sends and receives get no range: 1F1B sends a forward and receives a backward in one batch that has no single name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tracekit.recorder.ranges import Range, profiling
from tracekit.vocabulary import action_span


def stages_of(schedule: Any) -> tuple[list[Any], list[Any]]:
    """Stages and schedules behind what a user has: a schedule, a stage, or several stages.

    Raises:
        TypeError: it is none of these.
    """
    if schedule is None:
        return [], []
    if isinstance(schedule, Sequence):
        return list(schedule), []
    if hasattr(schedule, "forward_one_chunk"):
        return [schedule], []
    if hasattr(schedule, "_stage"):
        return [schedule._stage], [schedule]
    if hasattr(schedule, "_stages"):
        return list(schedule._stages), [schedule]
    raise TypeError(f"schedule is a {type(schedule).__name__}, want a schedule or stages of torch.distributed.pipelining")


class ActionRanges:
    """Ranges around the actions of pipeline stages while it is attached.

    Args:
        schedule: a schedule, a stage or several stages of torch.distributed.pipelining; None for none.
    """

    def __init__(self, schedule: Any) -> None:
        self._undo: list[Callable[[], None]] = []
        stages, schedules = stages_of(schedule)
        for stage in stages:
            self._wrap(stage, "forward_one_chunk", lambda *a, s=stage, **k: (s.stage_index, "F", _chunk(a, k, "fwd_chunk_id")))
            self._wrap(stage, "backward_one_chunk", lambda *a, s=stage, **k: (s.stage_index, _backward(a, k), _chunk(a, k, "bwd_chunk_id")))
            self._wrap(stage, "backward_weight_one_chunk", lambda *a, s=stage, **k: (s.stage_index, "W", _chunk(a, k, "bwd_chunk_id")))
        for one in schedules:
            if hasattr(one, "_maybe_compute_loss"):
                self._wrap(one, "_maybe_compute_loss", _loss)

    def remove(self) -> None:
        """Give the stages their own methods back."""
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _wrap(self, owner: Any, method: str, action: Callable[..., tuple[int, str, int] | None]) -> None:
        """Put a range around one bound method; ``action`` reads stage, letter and microbatch from its arguments."""
        original = getattr(owner, method)
        own = vars(owner).get(method)

        @functools.wraps(original)
        def ranged(*args: Any, **kwargs: Any) -> Any:
            what = action(*args, **kwargs) if profiling() and not _in_runtime_schedule() else None
            if what is None:
                return original(*args, **kwargs)
            running = Range(action_span(*what))
            try:
                return original(*args, **kwargs)
            finally:
                running.close()

        def undo() -> None:
            if own is None:
                vars(owner).pop(method, None)
            else:
                setattr(owner, method, own)

        setattr(owner, method, ranged)
        self._undo.append(undo)


def _chunk(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> int:
    return int(args[0] if args else kwargs[name])


def _backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """B for a whole backward, I for the input gradient alone: ``backward_one_chunk(chunk, loss, full_backward=True, …)``."""
    return "B" if (args[2] if len(args) > 2 else kwargs.get("full_backward", True)) else "I"


def _loss(stage: Any, _output: Any, _targets: Any, microbatch: int, *_rest: Any, **_kwargs: Any) -> tuple[int, str, int] | None:
    """The loss is part of the last stage's forward; the other stages have none."""
    return (int(stage.stage_index), "F", int(microbatch)) if stage.is_last else None


def _in_runtime_schedule() -> bool:
    """Whether a schedule that writes ``PP:`` ranges of its own stands somewhere up the stack."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    writes = _PipelineScheduleRuntime._step_microbatches.__code__
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is writes:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
