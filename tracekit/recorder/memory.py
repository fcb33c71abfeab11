"""What memory stood before a recording began, and what is it? Parameters, gradients and optimizer state by address."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tracekit.recorder.files import write_json
from tracekit.vocabulary import LAYER_INDEX, clean_module_path

SCHEMA = "tracekit.memory/1"

Block = dict[str, Any]


class MemoryRecord:
    """``memory.json`` of one capture, built while it runs.

    ``blocks`` stood when the capture began, ``later`` when it ended. A gradient that is freed within its step is in
    neither, so the optimizers are watched too: ``seen`` holds the gradients that were alive when an optimizer's step
    began, at ``time_ns`` (Unix epoch). Addresses are used again: a block of ``seen`` is the one that lived at its address
    then. Each storage stands once in ``blocks`` and ``later``, and once per optimizer step in ``seen``.

    Args:
        models: the model, or the stage modules of this rank.
        optimizers: its optimizers.
        fail: told of an error inside a hook.
    """

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], fail: Callable[[Exception], None]) -> None:
        self._models, self._optimizers, self._fail = models, optimizers, fail
        self._before = blocks(models, optimizers)
        self._seen: list[Block] = []
        self._handles = [optimizer.register_step_pre_hook(self._look) for optimizer in optimizers]

    def remove(self) -> None:
        """Stop watching the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def write(self, path: Path, ended: bool = True) -> None:
        """Write the file; before the capture has ended it holds what stood at its beginning only."""
        content: dict[str, Any] = {"schema": SCHEMA, "blocks": self._before}
        if ended:
            content |= {"later": blocks(self._models, self._optimizers), "seen": self._seen}
        write_json(path, content)

    def _look(self, *_: Any) -> None:
        """Note the gradients that are alive as an optimizer's step begins."""
        try:
            now = time.time_ns()
            self._seen.extend({**block, "time_ns": now} for block in _unique(_gradients(self._models)))
        except Exception as error:
            self._fail(error)


def blocks(models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> list[Block]:
    """Storages that are known now: addr, bytes, category, layer, device_type (0 CPU, 1 CUDA), device (null on CPU).

    Categories are parameter, gradient, optimizer_state, and unknown for the model's buffers. A DTensor counts by its
    local part, a view (a flat gradient bucket) by the whole storage it lies in; each storage is listed once, under the
    first of these categories.
    """
    return list(_unique([*_parameters(models), *_gradients(models), *_states(models, optimizers), *_buffers(models)]))


def layer_of(name: str) -> str | None:
    """Layer of a parameter by its qualified name, wrappers left out; None outside the numbered layers.

    >>> layer_of("module.layers.3._checkpoint_wrapped_module.attention.qkv.weight"), layer_of("embedding.weight")
    ('layers.3', None)
    """
    path = clean_module_path(name)
    m = LAYER_INDEX.search(path)
    return path[: m.end("index")] if m else None


def _unique(found: Iterable[tuple[torch.Tensor, str, str | None]]) -> Iterator[Block]:
    """One block per storage that holds memory."""
    known: set[tuple[str, int]] = set()
    for tensor, category, layer in found:
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor.device.type == "meta" or tensor.layout != torch.strided:
            continue
        storage = tensor.untyped_storage()
        where = (str(tensor.device), storage.data_ptr())
        if where[1] == 0 or storage.nbytes() == 0 or where in known:
            continue
        known.add(where)
        on_cpu = tensor.device.type == "cpu"
        yield {
            "addr": where[1],
            "bytes": storage.nbytes(),
            "category": category,
            "layer": layer,
            "device_type": 0 if on_cpu else 1,
            "device": None if on_cpu else tensor.device.index,
        }


def _parameters(models: Sequence[nn.Module]) -> Iterator[tuple[torch.Tensor, str, str | None]]:
    return ((p, "parameter", layer_of(name)) for model in models for name, p in model.named_parameters())


def _gradients(models: Sequence[nn.Module]) -> Iterator[tuple[torch.Tensor, str, str | None]]:
    return ((p.grad, "gradient", layer_of(name)) for model in models for name, p in model.named_parameters() if p.grad is not None)


def _buffers(models: Sequence[nn.Module]) -> Iterator[tuple[torch.Tensor, str, str | None]]:
    return ((b, "unknown", layer_of(name)) for model in models for name, b in model.named_buffers())


def _states(models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[tuple[torch.Tensor, str, str | None]]:
    names: dict[torch.Tensor, str] = {p: name for model in models for name, p in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            layer = layer_of(names[parameter]) if parameter in names else None
            for tensor in _tensors(state):
                yield tensor, "optimizer_state", layer


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors inside nested mappings and sequences."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
