"""What fills each rank's memory at its peak, layer by layer, and what should it be on paper?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit.job.base import Job
from tracekit.job.closed_forms import closed_forms, modes, recompute_mode
from tracekit.job.held_microbatches import held_microbatches
from tracekit.metrics.base import Metric, Result, unavailable
from tracekit.owners import RULES, STACK_PREFIX

CATEGORIES = ("parameter_bytes", "gradient_bytes", "optimizer_state_bytes", "activation_bytes", "input_bytes", "temporary_bytes", "unknown_bytes")


def compute(job: Job) -> Result:
    """Peaks per rank, device and step; activations by layer; the curve; closed forms beside the measured peak."""
    peaks, snapshots = job.table("memory_peaks"), job.table("memory_snapshots")
    if not len(peaks):
        return unavailable(_why_not(snapshots))
    by_layer = job.table("memory_layers")
    first = _first(peaks)
    beside = _theory(job, first, by_layer)
    top = first[first["step"].isna()].sort_values("allocated_peak_bytes", ascending=False, kind="stable").iloc[0]
    own = beside[beside["rank"].eq(top["rank"])].iloc[0]
    summary: dict[str, Any] = {
        "rank": int(top["rank"]),
        "device_type": str(top["device_type"]),
        "device": int(top["device"]),
        "allocated_peak_bytes": int(top["allocated_peak_bytes"]),
        "reserved_peak_bytes": _number(top["reserved_peak_bytes"]),
        "allocated_before_bytes": _number(top["allocated_before_bytes"]),
        "allocated_lowest_bytes": _number(top["allocated_lowest_bytes"]),
        **{c: _number(top[c]) for c in CATEGORIES},
        "baseline_source": str(top["baseline_source"]),
        "activation_theory_bytes": _number(own["activation_theory_bytes"]),
        "activation_per_layer_bytes": _number(own["activation_per_layer_bytes"]),
        "activation_per_layer_theory_bytes": _number(own["activation_per_layer_theory_bytes"]),
        "recompute_mode": recompute_mode(job),
    }
    more = {name: job.table(f"memory_{name}") for name in ("owners", "microbatches", "in_flight", "accounts")}
    more["in_flight"] = more["in_flight"].merge(held_microbatches(job), on=["rank", "capture", "step", "stage"], how="left")
    by_stack = more["owners"]["rule"].astype(object).str.startswith(STACK_PREFIX).fillna(False).any()
    more["rules"] = pd.DataFrame([rule._asdict() for rule in RULES if by_stack or not rule.code.startswith(STACK_PREFIX)])
    peaks = peaks.assign(fragmentation_ratio=_fragmentation(peaks))
    tables = {"peaks": peaks, "by_layer": by_layer, "curve": job.table("memory_curve"), "theory": beside, "snapshots": snapshots, **more}
    return Result(summary, tables | {"modes": modes(job)}, notes=_notes(job, peaks, first))


def _first(peaks: pd.DataFrame) -> pd.DataFrame:
    """The memory that a run is short of: the GPUs' where there is any, else the host's."""
    gpu = peaks["device_type"].eq("gpu")
    return peaks[gpu] if gpu.any() else peaks


def _fragmentation(peaks: pd.DataFrame) -> pd.Series:
    """Share of the reserved memory that nothing was allocated in at the allocated peak; null where nothing is reserved."""
    reserved = peaks["reserved_at_peak_bytes"].astype("Float64")
    share = (reserved - peaks["allocated_peak_bytes"]) / reserved.where(reserved.gt(0))
    return share.where(share.ge(0))


def _why_not(snapshots: pd.DataFrame) -> str:
    if not len(snapshots):
        return "no memory events were recorded: profile with profile_memory=True (tracekit's recorder does)"
    reserved, allocated = (snapshots[c].sum(min_count=1) for c in ("reserved_end_bytes", "allocated_end_bytes"))
    stood = "" if pd.isna(reserved) else f", only what stood when it was taken: {allocated} bytes allocated, {reserved} reserved"
    return f"the memory snapshot holds no records{stood}; call torch.cuda.memory._record_memory_history() before the steps to look at"


def _theory(job: Job, peaks: pd.DataFrame, by_layer: pd.DataFrame) -> pd.DataFrame:
    """Closed forms per rank with the measured values of the rank's highest peak beside them."""
    whole = peaks[peaks["step"].isna()].sort_values("allocated_peak_bytes", ascending=False, kind="stable").drop_duplicates("rank")
    where = ["rank", "capture", "device_type", "device"]
    measured = whole[[*where, "activation_bytes", "parameter_bytes", "gradient_bytes", "optimizer_state_bytes"]]
    frame = closed_forms(job).merge(measured, on="rank", how="inner")
    numbered = by_layer[by_layer["step"].isna() & by_layer["layer_index"].notna()]
    middle = numbered.groupby(where)["activation_bytes"].median().rename("per_layer").reset_index()
    frame = frame.merge(middle, on=where, how="left")
    # a layer's share at the peak is what it keeps only where nothing is thrown away and the microbatches held are known
    keeps = recompute_mode(job) in ("none", "selective:core_attention")
    share = (frame["per_layer"] / frame["in_flight_microbatches"]).astype("Float64").round()
    return frame.assign(activation_per_layer_bytes=share.astype("Int64") if keeps else pd.array([None] * len(frame), "Int64")).drop(columns=["per_layer"])


def _notes(job: Job, everything: pd.DataFrame, peaks: pd.DataFrame) -> tuple[str, ...]:
    sources = set(peaks["baseline_source"])
    notes = []
    if len(everything) > len(peaks):
        notes.append("The summary is of the fullest GPU. The host's memory stands beside it and is added to nothing; it counts from the profiler's start.")
    if "snapshot" in sources:
        notes.append("Levels of a CUDA memory snapshot are requested bytes (whole blocks hold more). What a block was for is inferred from its stacks.")
    if "none" in sources:
        notes.append("What stood before the recording is not known: the peak counts from the profiler's start. tracekit's recorder writes a baseline.")
    if peaks["device_type"].eq("cpu").any() and len(job.table("calls")):
        notes.append(
            "torch records no CPU memory that gloo's threads free: such a block counts until its memory is handed out again (in unknown_bytes, where"
            " the recorder says that it is no gradient), so a peak may be too high by it, most of all in the last recorded step."
        )
    if "totals" in sources:
        notes.append("How much stood before the recording is known, not what it was: parameters and optimizer state are in unknown_bytes.")
    if job.emulated:
        notes.append("Compute was emulated: activations are those of the emulation, so no closed form stands beside them.")
    if (job.run.get("training") or {}).get("sequence_parallel"):
        notes.append("The closed form counts the gathered inputs of the linear layers whole on every rank, as DTensor keeps them.")
    return tuple(notes)


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


METRIC = Metric(
    name="memory",
    title="Memory",
    question="What fills each rank's memory at its peak, layer by layer, and what should it be on paper?",
    definition=(
        "Per rank, device (host memory, each GPU) and step: allocated_peak = highest Total Allocated after an allocator event within the step (CPU "
        "time), its first time, and what was alive then by category; the categories, unknown among them, sum to the peak exactly. A block made in forward "
        "and freed in backward is an activation of the layer that made it; made in backward and alive at the optimizer step a gradient "
        "(where the recorder looked, only what it found there); "
        "made in the optimizer and outliving the step optimizer state; a batch (made before the model ran) or receive buffer of "
        "activations input; gathered shards "
        "parameter; what ends where it began temporary; anything else unknown. What stood before the recording comes from the recorder's "
        "baseline; of a CUDA memory snapshot the level before its records is replayed: what they free without having allocated it, and what stands at "
        "the end without an allocation; owners are inferred from the stacks of "
        "its records (a category is null where no stack told it). "
        "Each group of blocks says which rule told its owner (tables owners and rules). Communication buffers are a part of "
        "temporary. A stage's microbatches in flight are those with live activations when its activations are most, beside the order that ran and the "
        "closed form (1F1B: min(p - stage, m), arXiv 2104.04473). fragmentation_ratio = (reserved - allocated) / reserved at the "
        "allocated peak. Reserved memory stands apart. Beside it: bytes per layer by Table 2 of Korthikanti et al. 2022 (arXiv 2205.05198) and "
        "model state by ZeRO (arXiv 1910.02054)."
    ),
    compute=compute,
)
