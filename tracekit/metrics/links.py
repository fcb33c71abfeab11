"""What could be tied to the call that caused it, and which operators took the device's time?"""

from __future__ import annotations

import pandas as pd

from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable

_COUNTS = ["device_work", "by_correlation", "by_external_id", "by_order", "before_recording", "unlinked", "stepless", "graph_work"]
_COUNTS += ["launches", "launches_without_work", "backward_nodes", "backward_unpaired", "communication", "communication_without_record"]
_TIMES = ["pieces", "duration_ns", "outermost_pieces", "outermost_duration_ns"]


def compute(job: Job) -> Result:
    """Counts of what was tied and what was not, per rank and in all; device time by operator over all ranks."""
    ranks = job.table("links")
    if not len(ranks) or not ranks[["device_work", "launches", "backward_nodes"]].to_numpy().any():
        return unavailable("neither device work nor calls that launch any were recorded")
    summary: dict[str, int | float | None] = {name: int(ranks[name].sum()) for name in _COUNTS}
    tied = ranks[["by_correlation", "by_external_id", "by_order"]].to_numpy().sum()
    work = int(ranks["device_work"].sum())
    summary |= {"linked": int(tied), "linked_of_work_ratio": float(tied) / work if work else None, "most_per_launch": int(ranks["most_per_launch"].max())}
    summary["launches_matched"] = int((ranks["launches"] - ranks["launches_without_work"]).sum())
    times = job.table("operator_times")
    operators = times.groupby("operator", dropna=False, sort=False)[_TIMES].sum().reset_index()
    operators = operators.assign(operator=operators["operator"].astype(object).where(operators["operator"].notna(), None))
    operators = operators.sort_values(["duration_ns", "outermost_duration_ns"], ascending=False, kind="stable", ignore_index=True)
    return Result(summary, {"ranks": ranks, "operators": operators}, notes=_notes(ranks))


def _notes(ranks: pd.DataFrame) -> tuple[str, ...]:
    notes = []
    if ranks["before_recording"].any():
        notes.append("Work that was launched before the recording began runs at its start; it belongs to no step, layer or operator.")
    if ranks["graph_work"].any():
        notes.append("Kernels of a graph share the one call that launched the graph: its operator and step are theirs, and no layer can be told apart.")
    if (ranks["device_work"].gt(0) & ranks["launches"].eq(0) & ranks["by_order"].eq(0)).any():
        notes.append("No launch call was recorded (CUDA activity alone): profile with CPU and CUDA activities together to tie kernels to operators and layers.")
    return tuple(notes)


METRIC = Metric(
    name="links",
    title="Links",
    question="What could be tied to the call that caused it?",
    definition=(
        "Device work is tied to its launch call (CUDA or HIP runtime, driver, graph) by correlation id, or by the trace's arrows where it bears "
        "none, else to an operator by External id; a gloo execution to its call by order. before_recording has a correlation id below every recorded "
        "call's; unlinked is the rest. A backward node is paired with its forward operator by Sequence number. operators: summed durations of device "
        "work by the innermost operator around its launch call, and by the outermost. Source: CUPTI's correlation ids as Kineto writes them."
    ),
    compute=compute,
)
