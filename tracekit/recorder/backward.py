"""Which layer's backward runs now? Ranges that open when a module's output gradient arrives and close at its input's.

Module ranges of the backward cannot come from module hooks (torch's full backward hooks put a node of their own into
the graph, which views, in-place operators and split backwards do not all survive). Tensor hooks change nothing: the
gradient of a module's output is ready where its backward begins, that of its input where it ends.

Ranges are flat: a block is level 0, its sublayers level 1, and opening one closes those of its level and below. What
is open when the backward ends (a first layer, whose input needs no gradient) is closed by autograd's final callback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import Variable
from torch.utils.weak import WeakTensorKeyDictionary

from tracekit.recorder.ranges import Range, graph_task, profiling
from tracekit.vocabulary import Direction, module_span


@dataclass
class _Open:
    """A range that is open: its level, name, autograd graph task and handle."""

    level: int
    name: str
    task: int
    range: Range


@dataclass
class _Stack:
    """Open ranges of one thread, outermost first, and the graph tasks whose end is watched."""

    ranges: list[_Open] = field(default_factory=list)
    watched: set[int] = field(default_factory=set)

    def open(self, level: int, name: str, task: int) -> None:
        """Open a range, closing those of its level and below (of the same graph task: an outer one goes on)."""
        while self.ranges and self.ranges[-1].task == task and self.ranges[-1].level >= level:
            self._pop()
        self.ranges.append(_Open(level, name, task, Range(module_span(name, Direction.BACKWARD))))

    def close(self, name: str, task: int) -> None:
        """Close a range and what stands in it; nothing where it is not open."""
        if any(r.name == name and r.task == task for r in self.ranges):
            while self.ranges[-1].name != name or self.ranges[-1].task != task:
                self._pop()
            self._pop()

    def finish(self, task: int | None = None) -> None:
        """Close every range of a graph task, or (None) of all."""
        if task is not None:
            self.watched.discard(task)
        while self.ranges and (task is None or any(r.task == task for r in self.ranges)):
            self._pop()

    def _pop(self) -> None:
        self.ranges.pop().range.close()


@dataclass
class _Border:
    """What happens when one tensor's gradient is ready: names to close, then (level, name) to open."""

    closes: list[str] = field(default_factory=list)
    opens: list[tuple[int, str]] = field(default_factory=list)


class BackwardRanges:
    """Backward ranges of all modules of a rank, on whichever thread autograd runs them.

    Args:
        fail: told of an error inside a hook.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._borders: Any = WeakTensorKeyDictionary()
        self._local = threading.local()
        self._stacks: list[_Stack] = []
        self._on_leaves: list[Any] = []
        self._active = True

    def output(self, value: Any, name: str, level: int) -> None:
        """The module's range opens when the gradient of one of these outputs arrives."""
        for tensor in differentiable(value):
            opens = self._border(tensor).opens
            if (level, name) not in opens:
                opens.append((level, name))

    def input(self, value: Any, name: str) -> None:
        """The module's range closes when the gradient of the first of these inputs is ready."""
        tensor = next(differentiable(value), None)
        if tensor is not None:
            closes = self._border(tensor).closes
            if name not in closes:
                closes.append(name)

    def close(self) -> None:
        """Close whatever is open on any thread."""
        for stack in self._stacks:
            stack.finish()

    def switch_off(self) -> None:
        """Close all and do nothing from now on; hooks on tensors die with their graphs."""
        self._active = False
        for handle in self._on_leaves:
            handle.remove()
        self._on_leaves.clear()
        self.close()

    def _border(self, tensor: torch.Tensor) -> _Border:
        """The border at a tensor. Each has one hook, so that a tensor that ends two modules opens the outer one first."""
        found = self._borders.get(tensor)
        if isinstance(found, _Border):
            return found
        border = _Border()

        def arrived(_gradient: torch.Tensor) -> None:
            self._arrived(border)

        handle = tensor.register_hook(arrived)  # type: ignore[no-untyped-call]
        if tensor.is_leaf:  # a receive buffer outlives its graph, and the hook with it
            self._on_leaves.append(handle)
        self._borders[tensor] = border
        return border

    def _arrived(self, border: _Border) -> None:
        if not self._active or not profiling():
            return
        try:
            task = graph_task()
            stack = self._stack()
            for name in border.closes:
                stack.close(name, task)
            for level, name in sorted(border.opens):
                stack.open(level, name, task)
            if border.opens and task not in stack.watched:
                stack.watched.add(task)
                Variable._execution_engine.queue_callback(lambda: stack.finish(task))
        except Exception as error:
            self._fail(error)

    def _stack(self) -> _Stack:
        stack: _Stack | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = _Stack()
            self._stacks.append(stack)
        return stack


def differentiable(value: Any) -> Iterator[torch.Tensor]:
    """Tensors with a gradient inside nested tuples, lists and mappings, in order."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from differentiable(part)
    elif hasattr(value, "values") and hasattr(value, "keys"):
        for part in value.values():
            yield from differentiable(part)
