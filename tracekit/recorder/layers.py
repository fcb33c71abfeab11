"""Which layer runs now, forward or again? Ranges around modules, through forward hooks that stand outside all others.

The hooks are attached when a window begins, after the model was parallelised, and so that the pre-hook runs first and
the post-hook last: the collectives of DTensor layouts and of ``fully_shard`` lie inside the layer that needs them.
Between windows there are no hooks at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tracekit.recorder.backward import BackwardRanges
from tracekit.recorder.ranges import Range, in_backward, profiling
from tracekit.vocabulary import LAYER_INDEX, Direction, module_span, parse_module_span

#: Attributes under which wrappers keep the module they wrap; they are no part of a qualified name.
_WRAPPED = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod")
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_REPLICAS = ("DistributedDataParallel", "DataParallel")


@dataclass(frozen=True)
class Target:
    """A module that gets ranges: its qualified name without wrappers, and level 0 (block) or 1 (sublayer)."""

    module: nn.Module
    name: str
    level: int


def targets(models: Sequence[nn.Module]) -> list[Target]:
    """Modules that get ranges: numbered blocks, their direct children, and what stands beside the blocks.

    A block is a module whose path ends in ``layers.N``, ``blocks.N`` or ``h.N`` (vocabulary.LAYER_INDEX). In a model
    without blocks every child of the root counts, and of a list or Sequential every member. Nothing inside a compiled
    module is taken: a hook there would break its graph; one that was compiled in place (``module.compile()``) is found
    but gets no hooks. Modules whose path the span grammar cannot hold (a key with a dash) are left out.
    """
    found: dict[str, Target] = {}
    for model in models:
        modules = dict(_walk(_unwrapped(model), ""))
        blocks = [path for path in modules if _is_block(path)]
        above = {path[:i] for path in blocks for i in (0, *(k for k, c in enumerate(path) if c == "."))} or _transparent(modules)
        for path, module in modules.items():
            parent = path.rpartition(".")[0]
            level = 1 if parent in blocks else 0
            wanted = path in blocks or parent in blocks or (parent in above and path not in above)
            if wanted and parse_module_span(module_span(path, Direction.FORWARD)):
                found.setdefault(path, Target(module, path, level))
    return list(found.values())


def _transparent(modules: Mapping[str, nn.Module]) -> set[str]:
    """Paths of the root and of the lists, dicts and Sequentials that only lists, dicts and Sequentials hold below it."""
    found = {""}
    for path, module in modules.items():  # a parent stands before its children
        if path.rpartition(".")[0] in found and isinstance(_unwrapped(module), _CONTAINERS) and not _compiled(module):
            found.add(path)
    return found


def _is_block(path: str) -> bool:
    m = LAYER_INDEX.search(path)
    return m is not None and m.end() == len(path)


def _walk(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """All modules below one, with their paths; wrappers are passed through."""
    for name, child in module.named_children():
        below = f"{path}.{name}" if path else name
        if hasattr(child, "_checkpoint_wrapped_module"):
            child = _unwrapped(child)  # the recomputation calls the inner module, never the wrapper
        yield below, child
        if not _compiled(child):
            yield from _walk(_unwrapped(child), below)


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module inside checkpoint, FSDP and replication wrappers; a compiled one stays as it is."""
    while not _compiled(module):
        names = (*_WRAPPED, "module") if type(module).__name__ in _REPLICAS else _WRAPPED
        inner = next((getattr(module, name) for name in names if isinstance(getattr(module, name, None), nn.Module)), None)
        if inner is None:
            break
        module = inner
    return module


def _compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


class LayerRanges:
    """Forward, recompute and backward ranges of modules while it is attached.

    Args:
        models: the model, or the pipeline stage modules of this rank.
        fail: told of an error inside a hook.
    """

    def __init__(self, models: Sequence[nn.Module], fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._local = threading.local()
        self._stacks: list[list[tuple[str, Range]]] = []
        self._backward = BackwardRanges(fail)
        self._active = True
        self._handles: list[Any] = []
        for target in targets(models):
            if getattr(target.module, "_compiled_call_impl", None) is None:
                self._attach(target)

    def close(self) -> None:
        """Close every open range: at the end of a step nothing may be left, whatever was raised inside it."""
        for stack in self._stacks:
            while stack:
                stack.pop()[1].close()
        self._backward.close()

    def remove(self) -> None:
        """Take the hooks away and close every range."""
        self._active = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._backward.switch_off()
        self.close()

    def _attach(self, target: Target) -> None:
        name, level = target.name, target.level
        forward, again = module_span(name, Direction.FORWARD), module_span(name, Direction.RECOMPUTE)

        def before(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if not self._active or not profiling():
                return
            try:
                self._stack().append((name, Range(again if in_backward() else forward)))
                self._backward.input((args, kwargs), name)
            except Exception as error:
                self._fail(error)

        def after(_module: nn.Module, _args: Any, result: Any) -> None:
            try:
                stack = self._stack()
                if not any(entry[0] == name for entry in stack):
                    return
                if self._active:
                    self._backward.output(result, name, level)
                while stack:
                    entry = stack.pop()
                    entry[1].close()
                    if entry[0] == name:
                        break
            except Exception as error:
                self._fail(error)

        self._handles.append(target.module.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
        # always_call: non-reentrant checkpointing ends a repeated forward by an exception as soon as it has enough
        self._handles.append(target.module.register_forward_hook(after, always_call=True))

    def _stack(self) -> list[tuple[str, Range]]:
        stack: list[tuple[str, Range]] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
            self._stacks.append(stack)
        return stack
