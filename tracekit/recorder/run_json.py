"""What run is this? The fields of ``run.json`` that a process can find out by itself, under those that the user gives."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tracekit.vocabulary import Axis

SCHEMA = "tracekit.run/1"


def describe(models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], pipelined: bool, config: Mapping[str, Any]) -> dict[str, Any]:
    """Content of ``run.json``: what was found out, overlaid by ``config`` (one level deep: ``model`` is merged by key).

    What cannot be known is absent. The number of parameters is that of the whole model, so it is left out for a
    pipeline, where a rank sees only its own stages.
    """
    distributed = dist.is_available() and dist.is_initialized()
    parameters = [p for model in models for p in model.parameters()]
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "device": next((p.device.type for p in parameters), "cpu"),
        "backend": dist.get_backend() if distributed else None,
        "world_size": dist.get_world_size() if distributed else 1,
        "model": _model(parameters, pipelined),
        "training": _training(optimizers),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "tracekit": _own_version()},
        "git_commit": git_commit(),
        "host": platform.node(),
        "created": datetime.now(UTC).isoformat(),
    }
    mesh = find_mesh(models, found["world_size"])
    if mesh is not None:
        found["mesh"] = mesh
    return merged(found, config)


def merged(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` over ``found``; where both hold a mapping, key by key.

    >>> merged({"model": {"dtype": "float32"}, "host": "a"}, {"model": {"layers": 4}})
    {'model': {'dtype': 'float32', 'layers': 4}, 'host': 'a'}
    """
    result = dict(found)
    for key, value in given.items():
        old = result.get(key)
        result[key] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) and key != "mesh" else value
    return result


def find_mesh(models: Sequence[nn.Module], world_size: int) -> dict[str, int] | None:
    """Mesh axes in rank order, where a parameter's DeviceMesh names them all and covers every rank; else None."""
    names = {axis.value for axis in Axis}
    for model in models:
        for parameter in model.parameters():
            mesh = getattr(parameter, "device_mesh", None)
            root = getattr(mesh, "_get_root_mesh", lambda mesh=mesh: mesh)()
            dims = getattr(root, "mesh_dim_names", None)
            if dims and set(dims) <= names and root.size() == world_size and root.mesh.flatten().tolist() == list(range(world_size)):
                return dict(zip(dims, root.mesh.shape, strict=True))
    return None


def git_commit() -> str | None:
    """Commit of the working directory, or None outside a repository or without git."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True, cwd=Path.cwd())
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _model(parameters: Sequence[nn.Parameter], pipelined: bool) -> dict[str, Any]:
    dtype = next((p.dtype for p in parameters if p.is_floating_point()), None)
    known: dict[str, Any] = {} if dtype is None else {"dtype": str(dtype).removeprefix("torch."), "dtype_bytes": dtype.itemsize}
    return known if pipelined or not parameters else known | {"parameters": sum(p.numel() for p in parameters)}


def _training(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    if not optimizers:
        return {}
    rate = optimizers[0].param_groups[0].get("lr")
    return {"optimizer": type(optimizers[0]).__name__.lower(), "learning_rate": float(rate) if rate is not None else None}


def _own_version() -> str | None:
    try:
        return version("tracekit-train")
    except PackageNotFoundError:
        return None
