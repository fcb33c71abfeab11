"""How much of what its devices can do does the job get out of them? MFU and HFU."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit import flop_counts
from tracekit.job.base import Job
from tracekit.job.flops import Flops, flops
from tracekit.metrics.base import Metric, Result, unavailable


def compute(job: Job) -> Result:
    """FLOPs of a step, time, devices and peak, and the two ratios; per rank where its part of the model is known."""
    found = flops(job)
    if found.model is None or found.devices is None:
        return unavailable(str(found.why_not))
    steps = job.table("steps")
    steady = steps[steps["step"].isin(job.steady_steps)]
    if not len(steady):
        return unavailable("no step is marked, so that the time of one is not known: call prof.step() once per training step")
    lengths = (steady["window_end_ns"] - steady["window_start_ns"]).astype("float64")
    step_ns = float(lengths.mean())
    hardware = None if found.repeated is None else found.model + found.repeated
    seconds = step_ns / 1e9
    summary: dict[str, Any] = {
        "mfu_ratio": _ratio(found.model, seconds, found),
        "hfu_ratio": _ratio(hardware, seconds, found),
        "model_flops": found.model,
        "hardware_flops": hardware,
        "step_ns": round(step_ns),
        "devices": found.devices,
        "device_flops_per_s": found.model / seconds / found.devices,
        "peak_flops_per_s": found.peak,
        "peak_source": found.peak_source if found.peak else None,
        "recompute_source": found.repeated_source,
        "sizes_given": ", ".join(job.run.get("given") or ()) or None,
    }
    return Result(summary, {"ranks": _ranks(lengths.groupby(steady["rank"]).mean(), found)}, notes=_notes(found))


def _ratio(count: float | None, seconds: float, found: Flops) -> float | None:
    return None if count is None or found.peak is None else flop_counts.flops_utilization(count, seconds, found.devices or 0, found.peak)


def _ranks(step_ns: pd.Series, found: Flops) -> pd.DataFrame:
    rows = []
    for rank, ns in zip(step_ns.index.astype(int).tolist(), step_ns.tolist(), strict=True):
        own = found.by_rank.get(rank)
        ratio = None if own is None or found.peak is None else flop_counts.flops_utilization(own, ns / 1e9, 1, found.peak)
        speed = None if own is None else own / (ns / 1e9)
        rows.append({"rank": rank, "step_ns": round(ns), "model_flops": own, "device_flops_per_s": speed, "mfu_ratio": ratio})
    return pd.DataFrame(rows).astype({"step_ns": "Int64", **dict.fromkeys(("model_flops", "device_flops_per_s", "mfu_ratio"), "Float64")})


def _notes(found: Flops) -> tuple[str, ...]:
    notes = []
    if found.peak is None:
        notes.append(f"MFU and HFU are unknown: {found.peak_source}.")
    if found.repeated is None:
        notes.append(f"HFU is unknown: {found.why_not_repeated}.")
    elif found.repeated and found.repeated_source == "declared":
        notes.append("What was recomputed is what run.json states; the trace cannot tell.")
    elif found.repeated and found.repeated_source == "inferred":
        notes.append("Not every layer of the model is in the trace: those that are not are taken to be recomputed like those that are.")
    if found.why_not_by_rank:
        notes.append(f"The FLOPs of single ranks are unknown: {found.why_not_by_rank}.")
    return tuple(notes)


METRIC = Metric(
    name="utilization",
    title="FLOPs utilization (MFU, HFU)",
    question="How much of what its devices can do does the job get out of them?",
    definition=(
        "mfu_ratio = model FLOPs of a step / (seconds per step x devices x peak FLOP/s of a device) (PaLM, arXiv 2204.02311 appendix B); hfu_ratio "
        "likewise with the FLOPs that recomputation adds, which count in nothing else. Model FLOPs of forward and backward: 3Bs(L(4hq + 4hk + 4sq + 2nhf) + "
        "2hV), with B samples of a step over all ranks, s sequence, L layers, h hidden, q = heads x head size, k = key and value heads x head size, f width of "
        "the MLP, n = 3 matrices of a gated MLP, else 2, V vocabulary; for GPT (q = k = h, f = 4h, n = 2) that is 72BLsh^2(1 + s/6h + V/12hL) "
        "(arXiv 2205.05198 eq. 7). A causal mask is not made use of. A layer that is repeated whole adds its forward once more, Bs(4hq + 4hk + 4sq + 2nhf); "
        "core attention repeated alone adds 12Bs^2q, as in arXiv 2205.05198 appendix A. What was repeated is read off the trace (inferred, "
        "where layers are in none); where it cannot tell, run.json says it. Seconds per step: mean over ranks and steady steps of their windows. "
        "The peak is given by the user, or that of dense 16-bit products on the vendor's data sheet. "
        "Models with experts, and emulated compute, have no number here."
    ),
    compute=compute,
)
