"""When is the profiler on? Windows of torch.profiler on a schedule, each exported as one capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

from tracekit.recorder.nesting import compress

_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


@dataclass(frozen=True)
class Window:
    """Which steps are recorded: skip ``wait``, warm up ``warmup``, record ``active``; all that ``repeat`` times.

    Attributes:
        wait: steps before each recording during which the profiler is off.
        warmup: steps during which it runs and forgets; the first recorded step would else pay for its start.
        active: steps recorded.
        repeat: number of recordings (captures); 0 goes on until the end of the run.
    """

    wait: int = 1
    warmup: int = 1
    active: int = 3
    repeat: int = 1

    @property
    def steps(self) -> int:
        """Steps a run needs for all its captures.

        >>> Window(wait=1, warmup=1, active=3, repeat=2).steps
        10
        """
        return (self.wait + self.warmup + self.active) * max(self.repeat, 1)


class Windows:
    """Runs ``torch.profiler.profile`` on a schedule and writes ``trace.json.gz`` of each capture.

    Args:
        window: which steps are recorded.
        folder: capture number -> folder of that capture.
        begin: called with the capture's folder right before its recording begins.
        end: called with the capture's folder right after it was written.
        with_stack: record Python stacks and module frames too (three times the size, slower).
    """

    def __init__(
        self,
        window: Window,
        folder: Callable[[int], Path],
        begin: Callable[[Path], None],
        end: Callable[[Path], None],
        with_stack: bool = False,
    ) -> None:
        self._folder, self._begin, self._end = folder, begin, end
        self._actions = schedule(wait=window.wait, warmup=window.warmup, active=window.active, repeat=window.repeat)
        self._step = 0
        self._captures = 0
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available() and _cuda_in_use():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=self._actions,
            on_trace_ready=self._ready,
            record_shapes=True,
            profile_memory=True,
            with_stack=with_stack,
            with_modules=with_stack,
        )
        self._running = False

    def start(self) -> None:
        """Begin step 0."""
        if self._actions(0) in _RECORDS:
            self._begin(self._folder(self._captures))
        self._running = True
        self._profiler.start()

    def step(self) -> None:
        """End the present step and begin the next; a window that ends with it is exported before this returns."""
        before, after = self._actions(self._step), self._actions(self._step + 1)
        self._step += 1
        if after in _RECORDS and before != ProfilerAction.RECORD:
            ends = before == ProfilerAction.RECORD_AND_SAVE
            self._begin(self._folder(self._captures + ends))
        self._profiler.step()

    def stop(self) -> None:
        """End the profiling; a window that is still open is exported as far as it got."""
        if self._running:
            self._running = False
            self._profiler.stop()

    def _ready(self, profiler: profile) -> None:
        """Write the capture that has just ended."""
        folder = self._folder(self._captures)
        self._captures += 1
        folder.mkdir(parents=True, exist_ok=True)
        raw = folder / ".trace.json"
        try:
            profiler.export_chrome_trace(str(raw))
            compress(raw, folder / "trace.json.gz")
        finally:
            raw.unlink(missing_ok=True)
        self._end(folder)


def _cuda_in_use() -> bool:
    """Whether this process has a CUDA context already; profiling must not be what makes one."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
