"""Where did each device's time go: compute, communication, copies, or nothing?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable

PARTS = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "memcpy_ns", "exposed_memcpy_ns", "idle_ns", "emulated_ns")


def compute(job: Job) -> Result:
    """Busy time per device and step, and the mean shares over steady steps."""
    busy = job.table("busy")
    if not len(busy):
        return unavailable("no device work was recorded: profile with CUDA activity, or with gloo on CPU")
    steady = busy[busy["step"].isin(job.steady_steps)]
    rows = steady if len(steady) else busy[busy["step"].isna()]
    span = float(rows["span_ns"].sum())
    summary: dict[str, float | int | None] = {"devices": len(busy[busy["step"].isna()])}
    for part in ("busy", "compute", "exposed_comm", "overlap", "exposed_memcpy", "idle", "emulated"):
        whole = _total(rows[f"{part}_ns"])
        summary[f"{part}_ratio"] = whole / span if span and whole is not None else None
    comm, overlap = _total(rows["comm_ns"]), _total(rows["overlap_ns"])
    summary["overlap_of_comm_ratio"] = overlap / comm if comm and overlap is not None else None
    notes = []
    stepless = job.table("links")["stepless"].sum()
    if stepless:
        notes.append(f"{stepless} pieces of device work belong to no step: they are in the figures of the whole trace alone.")
    if job.emulated:
        notes.append("Compute was emulated: the ranks slept inside real schedules and real communication.")
    if busy["device_type"].eq("cpu").any():
        notes.append("On a CPU run the device is the rank's process: compute is the union of operators, communication of gloo executions.")
    if (busy["device_type"].eq("gpu")).any():
        notes.append("A communication kernel that waits for another rank counts as communication here; the collectives and the pipeline tell waiting apart.")
    return Result(summary=summary, tables={"devices": busy}, notes=tuple(notes))


def _total(column: pd.Series[Any]) -> float | None:
    """Sum; null where a part is unknown."""
    return None if column.isna().any() else float(column.sum())


METRIC = Metric(
    name="breakdown",
    title="Breakdown",
    question="Where did each device's time go: compute, communication, copies, or nothing?",
    definition=(
        "Per rank, device and step: busy = union of all device work; comm = union of communication; compute = union of other kernels; overlap = comm under "
        "compute; exposed_comm = comm - overlap; memcpy = union of copies; idle = span - busy, never negative. Work belongs to the step that launched it. "
        "Interval algebra in integer ns; Holistic Trace Analysis' temporal breakdown with unrounded times and no dropped steps."
    ),
    compute=compute,
)
