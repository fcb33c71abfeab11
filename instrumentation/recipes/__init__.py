"""How is each kind of parallelism put together from PyTorch's parts? One short function per recipe.

A recipe takes the configuration, the mesh and the device, and hands back a :class:`~instrumentation.recipes.parts.Parts`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.distributed.device_mesh import DeviceMesh

from instrumentation.config import RunConfig
from instrumentation.recipes.cp import cp
from instrumentation.recipes.ddp import ddp
from instrumentation.recipes.dense import dense
from instrumentation.recipes.fsdp import fsdp
from instrumentation.recipes.parts import Parts
from instrumentation.recipes.pp import pp
from instrumentation.recipes.threed import threed
from instrumentation.recipes.tp import tp

Recipe = Callable[[RunConfig, DeviceMesh | None, torch.device], Parts]

RECIPES: dict[str, Recipe] = {
    "dense": dense,
    "ddp": ddp,
    "fsdp": fsdp,
    "tp": tp,
    "tp-sp": tp,
    "cp": cp,
    "pp": pp,
    "3d": threed,
}
