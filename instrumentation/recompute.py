"""What is thrown away in forward and computed again in backward? Activation recomputation, by mode.

- ``full``: every layer keeps only its input (Chen et al. 2016; Megatron's "full").
- ``sqrt``: about √N runs of about √N layers each keep only the run's input (Chen et al. 2016, §4.3).
- ``selective:core_attention``: softmax, its mask and its products are repeated, nothing else (Korthikanti et al. 2022, §5).
- ``selective:op``: results of matrix products and of collectives are kept, everything else is repeated (torchtitan's).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from instrumentation.model import Attention, Decoder, chain


def apply_recompute(model: Decoder, mode: str) -> None:
    """Make a model (or a stage of one) recompute; ``none`` leaves it alone.

    Raises:
        ValueError: an unknown mode.
    """
    match mode:
        case "none":
            pass
        case "full":
            model.run_layers = each_layer
        case "selective:op":
            model.run_layers = partial(each_layer, context_fn=partial(create_selective_checkpoint_contexts, keep_products))
        case "selective:core_attention":
            for module in model.modules():
                if isinstance(module, Attention):
                    module.run_core = checkpointed
        case "sqrt":
            model.run_layers = each_segment
        case _:
            raise ValueError(f"no recomputation {mode!r}")


def checkpointed(module: nn.Module, *args: Tensor, **options: Any) -> Tensor:
    """Run a module, keeping only its inputs."""
    return checkpoint(module, *args, use_reentrant=False, **options)


def each_layer(layers: Sequence[nn.Module], x: Tensor, **options: Any) -> Tensor:
    """Run layers, keeping only each one's input."""
    return chain([partial(checkpointed, layer, **options) for layer in layers], x)


def each_segment(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Run layers in about √N segments, keeping only each segment's input."""
    for start, end in segments(len(layers)):
        x = checkpoint(chain, layers[start:end], x, use_reentrant=False)
    return x


def segments(layers: int) -> list[tuple[int, int]]:
    """Cut a number of layers into round(√layers) runs whose lengths differ by at most one.

    >>> segments(8)
    [(0, 3), (3, 5), (5, 8)]
    """
    count = max(1, round(math.sqrt(layers)))
    edges = [round(i * layers / count) for i in range(count + 1)]
    return list(pairwise(edges))


#: Operators whose results ``selective:op`` keeps: products with weights, and what came over the wire.
KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.linear.default,
    torch.ops._c10d_functional.all_reduce.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops._c10d_functional.all_gather_into_tensor.default,
}


def keep_products(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """The policy of ``selective:op``."""
    return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
