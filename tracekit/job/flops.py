"""How many FLOPs does the model ask of the job, and of each rank, per step, and how many does recomputation add?

From the sizes in ``Job.run``. What cannot be told is None with a reason: no number is made from a formula that does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracekit import flop_counts
from tracekit.errors import UsageError
from tracekit.job.base import Job
from tracekit.model_sizes import ModelSizes, device_peak, global_batch, sizes_of
from tracekit.vocabulary import Axis

#: A repeated layer that runs at least this share of its weight products again is repeated whole: torch stops as soon as it has what it needs.
WHOLE_LAYER_SHARE = 0.5
_NEEDED = ("hidden", "layers", "sequence", "vocabulary")


@dataclass(frozen=True)
class Flops:
    """FLOPs of one step; None is unknown.

    Attributes:
        model: forward and backward of the whole job (``flop_counts.model_flops``).
        why_not: why ``model`` is None.
        repeated: what recomputation adds (``flop_counts.repeated_flops``).
        why_not_repeated: why ``repeated`` is None.
        repeated_source: ``trace``, ``inferred`` (by the trace, layers that are not in it taken to be treated like those that are) or
            ``declared``: who says what was repeated.
        by_rank: the part of ``model`` that each rank computes; ranks of which it is not known are absent.
        why_not_by_rank: why ``by_rank`` is empty.
        devices: ranks of the job.
        peak: FLOP/s of one device.
        peak_source: where it comes from, or why it is None.
    """

    model: int | None = None
    why_not: str | None = None
    repeated: int | None = None
    why_not_repeated: str | None = None
    repeated_source: str | None = None
    by_rank: Mapping[int, float] = field(default_factory=dict)
    why_not_by_rank: str | None = None
    devices: int | None = None
    peak: float | None = None
    peak_source: str = ""


def flops(job: Job) -> Flops:
    """FLOPs of one step of the job."""
    try:
        sizes = sizes_of(job.run)
    except UsageError as error:
        return Flops(why_not=str(error))
    batch = global_batch(sizes, job.mesh, job.world_size)
    if reason := _why_not(job, sizes, batch):
        return Flops(why_not=reason)
    assert batch is not None and sizes.layers and sizes.sequence and sizes.hidden and sizes.vocabulary
    s, h, layers = sizes.sequence, sizes.hidden, sizes.layers
    per_layer = _per_layer(sizes)
    model = flop_counts.model_flops(batch, layers, s, h, sizes.vocabulary, per_layer)
    again, source, why = _repeated_layers(job, layers)
    repeated = (
        None if again is None else flop_counts.repeated_flops(batch, s, h, whole=again[0], core=again[1], per_layer=per_layer, attention=_widths(sizes)[0])
    )
    by_rank, why_by_rank = _by_rank(job, model, 3 * batch * s * per_layer, 6 * batch * s * h * sizes.vocabulary, layers)
    names = tuple(sorted({name for facts in job.ranks.values() for name in facts.meta.device_names}))
    on_gpu = any(facts.meta.device_type == "gpu" for facts in job.ranks.values())
    peak, said = (sizes.peak_flops, "given") if sizes.peak_flops else device_peak(names, sizes.dtype) if on_gpu else (None, _CPU)
    return Flops(model, None, repeated, why, source, by_rank, why_by_rank, job.world_size, peak, said)


_CPU = "the job ran on CPUs, whose peak is not known here: give --peak-flops"


def _why_not(job: Job, sizes: ModelSizes, batch: int | None) -> str | None:
    """Why the job's model FLOPs are unknown, or None where they are known."""
    missing = [name for name in _NEEDED if getattr(sizes, name) is None]
    if job.emulated or job.run.get("emulate_compute_ns"):
        return "compute was emulated: the ranks slept and did no FLOPs of the model"
    if missing:
        return f"the model's sizes are not known: {', '.join(missing)} stand in no run.json; give {' '.join('--' + name for name in missing)}"
    if (sizes.experts or 1) > 1 or job.mesh.get(Axis.EP, 1) > 1:
        return "the model has experts, for which the formula does not hold"
    if job.world_size is None:
        return "the files do not say how many ranks the job has"
    if batch is None:
        return "how many samples a step has is not known: give --global-batch, or --microbatch-size and --microbatches where the mesh is known"
    return "how wide the heads are is not known: give --heads" if (sizes.kv_heads or sizes.head_size) and not sizes.heads else None


def _widths(sizes: ModelSizes) -> tuple[int, int]:
    """Heads x head size of the queries, and of the keys and values."""
    h = sizes.hidden or 0
    if not sizes.heads:
        return h, h
    size = sizes.head_size or h // sizes.heads
    return sizes.heads * size, (sizes.kv_heads or sizes.heads) * size


def _per_layer(sizes: ModelSizes) -> int:
    h = sizes.hidden or 0
    query, key = _widths(sizes)
    width = sizes.ffn_hidden or round((sizes.mlp_ratio or 4) * h)
    return flop_counts.forward_flops_per_layer(sizes.sequence or 0, h, query, key, width, bool(sizes.gated_mlp))


def _repeated_layers(job: Job, layers: int) -> tuple[tuple[int, int] | None, str | None, str | None]:
    """(layers repeated whole, layers of which core attention was), who says so, and why it is not known."""
    declared = str(job.run.get("recompute") or "")
    table = job.table("recompute")
    table = table[table["step"].isin(job.steady_steps)] if table["step"].isin(job.steady_steps).any() else table
    whole = table[table["layer"].isna()]
    told = len(whole) > 0 and bool(whole["decidable"].all())
    if told and not whole["checkpoints"].any() and not whole["recompute_ns"].any():
        return (0, 0), "trace", None
    by_layer = table[table["layer_index"].notna()].groupby("layer_index")[["recompute_runs", "forward_products", "recompute_products"]].sum()
    again = by_layer[by_layer["recompute_runs"].gt(0)]
    entire = again["recompute_products"].ge(WHOLE_LAYER_SHARE * again["forward_products"]) & again["forward_products"].gt(0)
    if told and len(again) and (entire.all() or declared == "selective:core_attention"):
        # where some layers are not here, those that are stand for them only if all were treated alike
        count = len(again) if len(by_layer) == layers else layers if len(again) == len(by_layer) else None
        source = "trace" if len(by_layer) == layers else "inferred"
        if count is not None and entire.all():
            return (count, 0), source, None
        if count is not None and not again["recompute_products"].any():
            return (0, count), source, None
    if not told or not len(by_layer):
        stated = {"none": (0, 0), "full": (layers, 0), "sqrt": (layers, 0), "selective:core_attention": (0, layers)}.get(declared)
        if stated is not None:
            return stated, "declared", None
        return None, None, "whether anything was recomputed cannot be told from the trace, and no run.json says it"
    return None, None, "which operators of a layer were recomputed is not known well enough to count their FLOPs"


def _by_rank(job: Job, model: int, layer: int, head: int, layers: int) -> tuple[dict[int, float], str | None]:
    """The part of the model's FLOPs that each rank computes; ``layer`` and ``head``: FLOPs of one layer, and of the head, of the whole job."""
    ranks = sorted({rank for rank, _ in job.ranks})
    world, actions = job.world_size or 0, job.table("actions")
    p = job.mesh.get(Axis.PP, 1)
    if p == 1:
        return ({}, "the job has a pipeline whose size is not known") if len(actions) else (dict.fromkeys(ranks, model / world), None)
    table = job.table("recompute")
    held = table[table["layer_index"].notna()].groupby("rank")["layer_index"].nunique()
    copies = world / p
    if math.prod(job.mesh.values()) != world or not set(ranks) <= set(held.index) or len(ranks) != world or held.sum() != layers * copies:
        return {}, "which rank of the pipeline holds which layers is not known"
    last = set(actions.loc[actions["stage"].eq(actions["stage"].max()), "rank"]) if len(actions) else set()
    if len(last) != copies:
        return {}, "which rank of the pipeline holds the head is not known"
    return {rank: (int(held[rank]) * layer + (head if rank in last else 0)) / copies for rank in ranks}, None
