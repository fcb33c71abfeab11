"""How do the parts of a recording work together? The Recorder: entered before the loop, told of every step, left after it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tracekit.recorder import flight_recorder, run_json, variables
from tracekit.recorder.actions import ActionRanges
from tracekit.recorder.files import capture_directory, clear_captures, rank_directory, ranks_beyond, write_json
from tracekit.recorder.guard import Guard
from tracekit.recorder.layers import LayerRanges
from tracekit.recorder.memory import MemoryRecord
from tracekit.recorder.spans import StepSpans
from tracekit.recorder.windows import Window, Windows

_WINDOW = Window()


class Recorder:
    """Records windows of a training run into a run directory.

    Enter it after the model was parallelised and the process group made, call :meth:`step` after every training step.
    The recorder never stops the training: when something of its own fails it says so once, takes its hooks away and
    goes quiet. Errors of the training pass through it, and what was recorded until then is still written.

    Args:
        directory: the run directory; ``rank00000`` and so on are made inside it, rank 0 writes ``run.json``.
        model: the module, or the list of stage modules that this rank holds; plain, DDP, ``fully_shard`` or DTensor.
        optimizer: the optimizer or optimizers, for the memory baseline.
        config: fields of ``run.json`` that the process cannot find out: recipe, mesh, model sizes, schedule.
        schedule: of torch.distributed.pipelining: the schedule (or stages) that runs the model, for action ranges.
        window: which steps are recorded, a Window or (wait, warmup, active, repeat).
        with_stack: also record Python stacks and module frames; three times the size.
        layer_ranges: put ranges around modules (``layers.3.attention.forward`` and so on). Without them a trace names no
            layer but those in FSDP's own ranges: forward is told from backward and recomputation by autograd alone, and
            the layer of a collective or an activation is inferred or unknown. Actions of a pipeline keep their ranges.

    Example:
        >>> with Recorder("runs/mine", model=model, optimizer=optimizer) as recorder:  # doctest: +SKIP
        ...     for batch in loader:
        ...         train_step(batch)
        ...         recorder.step()
    """

    def __init__(
        self,
        directory: str | Path,
        model: nn.Module | Iterable[nn.Module] | None = None,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
        config: Mapping[str, Any] | None = None,
        schedule: Any = None,
        window: Window | tuple[int, int, int, int] = _WINDOW,
        with_stack: bool = False,
        layer_ranges: bool = True,
    ) -> None:
        self.directory = Path(directory)
        self._models = [model] if isinstance(model, nn.Module) else list(model or ())
        self._optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer or ())
        self._config = dict(config or {})
        self._schedule = schedule
        self._window = window if isinstance(window, Window) else Window(*window)
        self._with_stack = with_stack
        self._layer_ranges = layer_ranges
        self._guard = Guard(self._close_ranges)
        self._rank = 0
        self._spans: StepSpans | None = None
        self._windows: Windows | None = None
        self._layers: LayerRanges | None = None
        self._actions: ActionRanges | None = None
        self._memory: MemoryRecord | None = None

    def __enter__(self) -> Recorder:
        with self._guard:
            distributed = dist.is_available() and dist.is_initialized()
            self._rank = dist.get_rank() if distributed else int(os.environ.get("RANK", "0"))
            clear_captures(self.directory, self._rank)
            if self._rank == 0:
                content = run_json.describe(self._models, self._optimizers, self._schedule is not None, {"layer_ranges": self._layer_ranges, **self._config})
                write_json(self.directory / "run.json", content, indent=2)
                self._say_what_is_missing(content["world_size"], dist.get_backend() if distributed else None)
            self._spans = StepSpans(rank_directory(self.directory, self._rank) / "spans.jsonl")
            folder = lambda capture: capture_directory(self.directory, self._rank, capture)  # noqa: E731
            self._windows = Windows(self._window, folder, self._begin, self._end, self._with_stack)
            self._windows.start()
        if self._guard.failed:
            self._stop()
        return self

    def step(self, **values: float) -> None:
        """End a training step. A window that ends with it is written before this returns.

        Args:
            values: numbers to keep beside the step's times in ``spans.jsonl``, such as ``loss=2.3``.
        """
        if self._windows is None or self._spans is None:
            return
        if not self._guard.failed:
            with self._guard:
                if self._layers is not None:
                    self._layers.close()
                self._spans.step(values)
                self._windows.step()
        if self._guard.failed:
            self._stop(step_ended=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    @property
    def recording(self) -> bool:
        """Whether a window is open now."""
        return self._memory is not None

    @property
    def failed(self) -> bool:
        """Whether the recorder failed and switched itself off; what it wrote is not whole then."""
        return self._guard.failed

    def _begin(self, folder: Path) -> None:
        """A window is about to open: baseline first, then the ranges."""
        folder.mkdir(parents=True, exist_ok=True)
        self._close_ranges()
        self._memory = MemoryRecord(self._models, self._optimizers, self._guard.fail)
        self._memory.write(folder / "memory.json", ended=False)
        self._layers = LayerRanges(self._models, self._guard.fail) if self._layer_ranges else None
        self._actions = ActionRanges(self._schedule)

    def _end(self, folder: Path) -> None:
        """A window has been written: ranges away, then what is known at its end."""
        if self._memory is not None:
            self._memory.write(folder / "memory.json")
        flight_recorder.dump(folder / "flight_recorder.json")
        self._close_ranges()

    def _say_what_is_missing(self, world_size: int, backend: str | None) -> None:
        """Name, once and on rank 0, what the run directory will lack or has too much."""
        for line in variables.missing(os.environ, backend):
            self._guard.notice(line)
        left_over = ranks_beyond(self.directory, world_size)
        if left_over:
            self._guard.notice(f"left over from a run with more ranks: {', '.join(left_over)} in {self.directory}; remove them before the analysis")

    def _close_ranges(self) -> None:
        for part in (self._layers, self._actions, self._memory):
            if part is not None:
                part.remove()
        self._layers = self._actions = self._memory = None

    def _stop(self, step_ended: bool = False) -> None:
        """Stop the profiler, which exports an open window as far as it got, and take everything away."""
        windows, self._windows = self._windows, None
        spans, self._spans = self._spans, None
        with self._guard:
            if self._layers is not None:
                self._layers.close()
            if windows is not None:
                if self._rank == 0 and not self._guard.failed and (reason := windows.nothing_recorded()):
                    self._guard.notice(reason)
                windows.stop(step_ended)
        with self._guard:
            self._close_ranges()
            if spans is not None:
                spans.close()
