"""How is the batch split over replicas? DistributedDataParallel all-reduces the gradients in buckets."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from instrumentation.config import RunConfig
from instrumentation.recipes.parts import Parts, accumulate, build_model


def build(config: RunConfig, mesh: DeviceMesh | None, device: torch.device) -> Parts:
    """A whole model on every rank; gradients are averaged under the last microbatch's backward."""
    assert mesh is not None
    return data_parallel(build_model(config, device), mesh["dp_replicate"])


def data_parallel(model: nn.Module, mesh: DeviceMesh) -> Parts:
    """A model whose gradients are averaged over a mesh axis."""
    replica = DistributedDataParallel(model, process_group=mesh.get_group(), gradient_as_bucket_view=True)

    def sync(last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else replica.no_sync()

    return Parts([replica], partial(accumulate, replica, sync=sync))
