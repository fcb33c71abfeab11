"""How does a single process train? The reference that every other recipe must equal."""

from __future__ import annotations

from functools import partial

import torch
from torch.distributed.device_mesh import DeviceMesh

from instrumentation.config import RunConfig
from instrumentation.recipes.parts import Parts, accumulate, build_model


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """Plain PyTorch."""
    model = build_model(config, device)
    return Parts([model], partial(accumulate, model))
