"""Which ranks work together along which axis? The device mesh of a run."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from instrumentation.config import RunConfig


def build_mesh(config: RunConfig) -> DeviceMesh | None:
    """The mesh of all ranks, with one named dimension per axis that is really split; None for a single process.

    Its groups are called ``mesh_<axis>``, except that the only axis of a one-dimensional mesh is the default group.
    """
    axes = {axis: degree for axis, degree in config.mesh.items() if degree > 1}
    return init_device_mesh(config.device, tuple(axes.values()), mesh_dim_names=tuple(axes)) if axes else None


def coordinate(mesh: DeviceMesh | None, *axes: str) -> int:
    """Place of this rank along the first of the axes that the mesh has; 0 where it has none."""
    for axis in axes:
        if mesh is not None and axis in (mesh.mesh_dim_names or ()):
            return mesh.get_local_rank(axis)
    return 0
