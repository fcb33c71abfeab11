"""How is each kind of parallelism put together from PyTorch's parts? One short function per recipe.

A recipe takes the configuration, the mesh and the device, and hands back a :class:`~instrumentation.recipes.parts.Parts`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.distributed.device_mesh import DeviceMesh

from instrumentation.config import RunConfig
from instrumentation.recipes import cp, ddp, dense, fsdp, pp, threed, tp
from instrumentation.recipes.parts import Parts

Recipe = Callable[[RunConfig, DeviceMesh | None, torch.device], Parts]

RECIPES: dict[str, Recipe] = {
    "dense": dense.build,
    "ddp": ddp.build,
    "fsdp": fsdp.build,
    "tp": tp.build,
    "tp-sp": tp.build,
    "cp": cp.build,
    "pp": pp.build,
    "3d": threed.build,
}
