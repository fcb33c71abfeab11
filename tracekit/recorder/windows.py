"""When is the profiler on? Windows of torch's profiler on a schedule, each exported as one capture.

torch.profiler.profile has a schedule of its own; it is not used, because a failure inside it leaves a state in which
its ``stop`` ends the process (a segmentation fault in torch 2.13). The transitions are made here, one at a time, so
that it is always known whether a recording runs. Between windows nothing of the profiler exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from tracekit.recorder.nesting import compress
from tracekit.recorder.ranges import Range, profiling
from tracekit.vocabulary import step_span, unfinished_step_span


class Phase(Enum):
    """What the profiler does during a step."""

    OFF = "off"
    WARMUP = "warmup"  #: it runs and forgets
    RECORD = "record"


@dataclass(frozen=True)
class Window:
    """Which steps are recorded: skip ``wait``, warm up ``warmup``, record ``active``; all that ``repeat`` times.

    Attributes:
        wait: steps before each recording during which the profiler is off.
        warmup: steps during which it runs and forgets; the first recorded step would else pay for its start.
        active: steps recorded.
        repeat: number of recordings (captures); 0 goes on until the end of the run.

    Raises:
        ValueError: a number is negative, or no step would be recorded.
    """

    wait: int = 1
    warmup: int = 1
    active: int = 3
    repeat: int = 1

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup, self.repeat) < 0 or self.active < 1:
            raise ValueError(f"{self}: wait, warmup and repeat must be 0 or more, active 1 or more")

    @property
    def steps(self) -> int:
        """Steps a run needs for all its captures (for one, where they have no end).

        >>> Window(wait=1, warmup=1, active=3, repeat=2).steps
        10
        """
        return self._cycle * max(self.repeat, 1)

    def phase(self, step: int) -> Phase:
        """What the profiler does during a step, counted from 0.

        >>> [Window(1, 1, 2, 1).phase(step).value for step in range(5)]
        ['off', 'warmup', 'record', 'record', 'off']
        """
        cycle, at = divmod(step, self._cycle)
        if at < self.wait or (self.repeat and cycle >= self.repeat):
            return Phase.OFF
        return Phase.WARMUP if at < self.wait + self.warmup else Phase.RECORD

    def ends(self, step: int) -> bool:
        """Whether a capture ends with this step.

        >>> [Window(0, 0, 2, 2).ends(step) for step in range(5)]
        [False, True, False, True, False]
        """
        return self.phase(step) is Phase.RECORD and (step + 1) % self._cycle == 0

    @property
    def _cycle(self) -> int:
        return self.wait + self.warmup + self.active


class Windows:
    """Runs the profiler on a schedule and writes ``trace.json.gz`` of each capture.

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
        self._window, self._folder, self._begin, self._end, self._with_stack = window, folder, begin, end, with_stack
        self._step = 0
        self._capture = 0
        self._whole_steps = 0
        self._profiler: _KinetoProfile | None = None  # there is one from warm-up to export
        self._recording = False
        self._range: Range | None = None

    def start(self) -> None:
        """Begin step 0."""
        self._enter(0)

    def nothing_recorded(self) -> str | None:
        """Why there is no whole step in any capture, at the end of the run; None where there is one."""
        if self._whole_steps:
            return None
        skipped = f"{self._window.wait} + {self._window.warmup} steps (wait + warmup)"
        return f"no whole step was recorded: {self._step} ended, and the recording begins after {skipped}; ask for an earlier window, such as (0, 0, 1, 1)"

    def step(self) -> None:
        """End the present step and begin the next; a window that ends with it is exported before this returns."""
        self._leave()
        self._whole_steps += self._recording
        if self._window.ends(self._step):
            self._export()
        self._step += 1
        self._enter(self._step)

    def stop(self, step_ended: bool = False) -> None:
        """End the profiling; a window that is still open is exported as far as it got.

        Args:
            step_ended: the present step is over. Otherwise it began and was cut short, or nothing was left to do in it:
                its range is then called ``UnfinishedStep#N``, so that its length is taken for no step's time.
        """
        self._leave()
        if self._recording:
            self._export(unfinished=None if step_ended else self._step)
        elif self._profiler is not None:
            profiler, self._profiler = self._profiler, None
            _start(profiler)  # torch can leave the warm-up by way of a recording only
            profiler.stop_trace()

    def _enter(self, step: int) -> None:
        """Bring the profiler into the phase of a step."""
        phase = self._window.phase(step)
        if phase is Phase.OFF:
            return
        if self._profiler is None:
            self._profiler = _prepared(self._with_stack)
        if phase is Phase.RECORD:
            if not self._recording:
                self._begin(self._folder(self._capture))
                profiler, self._profiler = self._profiler, None
                _start(profiler)
                self._profiler, self._recording = profiler, True
            self._range = Range(step_span(step))

    def _leave(self) -> None:
        """Close the step's range."""
        running, self._range = self._range, None
        if running is not None:
            running.close()

    def _export(self, unfinished: int | None = None) -> None:
        """Stop the recording and write the capture; ``unfinished`` is the number of a step that did not end."""
        profiler, self._profiler, self._recording = self._profiler, None, False
        folder = self._folder(self._capture)
        self._capture += 1
        if profiler is None:
            return
        profiler.stop_trace()
        folder.mkdir(parents=True, exist_ok=True)
        raw = folder / ".trace.json"
        try:
            profiler.export_chrome_trace(str(raw))
            compress(raw, folder / "trace.json.gz", {} if unfinished is None else {step_span(unfinished): unfinished_step_span(unfinished)})
        finally:
            raw.unlink(missing_ok=True)
        self._end(folder)


def _prepared(with_stack: bool) -> _KinetoProfile:
    """A profiler that is warming up.

    Raises:
        RuntimeError: another profiler runs on this thread; torch has room for one.
    """
    if profiling():
        raise RuntimeError("another profiler is running already")
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available() and _cuda_in_use():
        activities.append(ProfilerActivity.CUDA)
    profiler = _KinetoProfile(activities=activities, record_shapes=True, profile_memory=True, with_stack=with_stack, with_modules=with_stack)
    profiler.prepare_trace()
    return profiler


def _start(profiler: _KinetoProfile) -> None:
    """Start recording; when that fails half-way the profiler is off again before the error goes on.

    Raises:
        RuntimeError: another profiler was started during the warm-up.
    """
    if profiling():
        raise RuntimeError("another profiler is running already")
    try:
        profiler.start_trace()
    except Exception:
        if profiling():
            profiler.stop_trace()
        raise


def _cuda_in_use() -> bool:
    """Whether this process has a CUDA context already; profiling must not be what makes one."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
