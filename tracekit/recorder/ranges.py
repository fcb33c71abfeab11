"""How is a range opened in one hook and closed in another? Torch's profiler calls, typed, in one place."""

from __future__ import annotations

import torch
from torch.autograd.profiler import record_function


def profiling() -> bool:
    """Whether a profiler records this thread now."""
    return bool(torch._C._autograd._profiler_enabled())


def in_backward() -> bool:
    """Whether autograd is running on this thread: a forward that runs now is a recomputation."""
    return graph_task() != -1


def graph_task() -> int:
    """Number of the backward that runs on this thread, -1 outside."""
    return int(torch._C._current_graph_task_id())


class Range:
    """A ``record_function`` range without a ``with`` block; it must be closed exactly once.

    It opens past any dispatch mode. ``record_function`` is an operator, and a mode (selective checkpointing is one)
    would hand it to its policy and count it among the model's own.
    """

    def __init__(self, name: str) -> None:
        self._record = record_function(name)
        with torch._C._DisableTorchDispatch():
            self._record.__enter__()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """End the range."""
        with torch._C._DisableTorchDispatch():
            self._record.__exit__(None, None, None)
