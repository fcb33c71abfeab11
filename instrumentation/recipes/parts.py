"""What does a recipe hand to the training loop, and how do recipes without a pipeline run a step?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from instrumentation.config import RunConfig
from instrumentation.emulate import emulate
from instrumentation.model import Decoder, cross_entropy
from instrumentation.recompute import apply_recompute

#: Inputs and targets of one microbatch, each [microbatch_size, sequence].
Microbatch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Parts:
    """A model made ready to train.

    Attributes:
        modules: the model, or this rank's pipeline stages.
        forward_backward: run a step's microbatches and leave the gradients of their mean loss in the parameters;
            returns that loss, or None on a rank that does not hold the end of the model.
        finish_gradients: what remains to be done to the gradients before the optimizer may use them.
        schedule: the pipeline schedule, where there is one.
    """

    modules: list[nn.Module]
    forward_backward: Callable[[Sequence[Microbatch]], Tensor | None]
    finish_gradients: Callable[[], None] = lambda: None
    schedule: Any = None


def build_model(config: RunConfig, device: torch.device, **part: Any) -> Decoder:
    """The model (or the part of it that ``Decoder``'s arguments name), recomputing and emulating as configured."""
    model = Decoder(config, **part)
    emulate(model, config)
    apply_recompute(model, config.recompute)
    return model.to(device)


def accumulate(
    model: nn.Module, microbatches: Sequence[Microbatch], sync: Callable[[bool], AbstractContextManager[Any]] = lambda last: nullcontext()
) -> Tensor:
    """Forward and backward of every microbatch, adding up gradients; the mean loss, detached.

    Args:
        model: anything that maps tokens to logits.
        microbatches: of one step.
        sync: context to run each microbatch in, told whether it is the last: gradients need to be reduced only then.
    """
    total = torch.zeros((), device=microbatches[0][0].device)
    for i, (tokens, targets) in enumerate(microbatches):
        with sync(i == len(microbatches) - 1):
            loss = cross_entropy(model(tokens), targets) / len(microbatches)
            loss.backward()
        total = total + loss.detach()
    return total
