"""How can eight ranks run faithfully on two cores? Their layers sleep instead of computing.

The stages, the schedules and the communication stay real. A layer keeps its norms and, at toy size, the matrices that
tensor parallelism splits, so that what tensor, sequence and data parallelism do to them stays true; it has neither
attention core nor GeLU, since every operator left is one that all ranks run on the same few cores. Instead it
sleeps: T in forward, T on the path of the input gradient and T on the path of the weight gradient. The last two are
separate autograd nodes, so a schedule that splits backward into I and W really defers the second. One node with both
would run twice, once in each.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from instrumentation.config import RunConfig
from instrumentation.model import Decoder, seeded
from tracekit.vocabulary import EMULATED_COMPUTE


def sleep(seconds: float) -> None:
    """Compute, emulated: sleep inside a range that the analysis counts as compute."""
    with record_function(EMULATED_COMPUTE):
        time.sleep(seconds)


class InputPath(torch.autograd.Function):
    """Identity on the hidden states that sleeps in forward and again when the gradient of the input passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        """Sleep, and hand x on."""
        ctx.seconds = seconds
        sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Sleep, and hand the gradient on."""
        sleep(ctx.seconds)
        return gradient, None


class WeightPath(torch.autograd.Function):
    """Identity on a weight that sleeps when the weight's gradient is computed."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, seconds: float) -> Tensor:
        """Hand the weight on."""
        ctx.seconds = seconds
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Sleep; the gradient is zero so that the weight never changes."""
        sleep(ctx.seconds)
        return torch.zeros_like(gradient), None


class EmulatedCompute(nn.Module):
    """Adds nothing to x but time.

    Args:
        seconds: time of one layer's forward, and of each half of its backward.
    """

    def __init__(self, seconds: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.seconds = seconds
        self.weight = nn.Parameter(torch.zeros(1, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Sleep; x, of any shape, is returned equal."""
        return InputPath.apply(x, self.seconds) + WeightPath.apply(self.weight, self.seconds)


def layer_seconds(config: RunConfig) -> float:
    """Time that one layer sleeps: a rank's share of the layers takes ``emulate_compute_ns``, virtual stages or not."""
    return (config.emulate_compute_ns or 0) / 1e9 * config.pp / config.layers


def emulate(model: Decoder, config: RunConfig) -> None:
    """Let every layer of the model sleep instead of computing; nothing where the run is not emulated.

    The sleep comes first in the layer: recomputation stops early once it has what it needs, and has to sleep again.
    """
    if config.emulate_compute_ns is None:
        return
    dtype = getattr(torch, config.dtype)
    for number, layer in model.layers.items():
        layer.before = EmulatedCompute(layer_seconds(config), dtype)
        layer.attention, layer.mlp = seeded(
            config.seed,
            2 + int(number),
            lambda: (_products(config, "qkv", "out"), _products(config, "up", "down")),
        )


def _products(config: RunConfig, first: str, second: str) -> nn.Sequential:
    """The column-split and the row-split matrix of one half of a layer; where nothing is split, one stands for both."""
    names = (first, second) if config.tp > 1 else (second,)
    dtype = getattr(torch, config.dtype)
    return nn.Sequential(OrderedDict((name, nn.Linear(config.hidden, config.hidden, bias=False, dtype=dtype)) for name in names))
