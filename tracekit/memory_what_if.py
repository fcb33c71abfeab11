"""What would memory and the step take under another recomputation or microbatch size? From what a run measured.

Peak = what stood beside activations at the measured peak + the larger of two moments: the end of forward (what layers keep, and the loss), and
the backward of a checkpoint (what layers keep, and the whole activations of the layers it repeats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import pandas as pd

from tracekit import theory
from tracekit.analysis import Analysis, plain, records
from tracekit.errors import UsageError
from tracekit.job.closed_forms import per_layer
from tracekit.metrics.base import Result, unavailable
from tracekit.what_if import WHAT_IF_SCHEMA

#: How far the basis may miss the run's own activation peak.
TRUSTED = 0.15
MODES = ("none", "selective", "full", "every", "sqrt")
_COLUMNS = ["label", "mode", "every", "microbatch_size", "basis", "time_basis", "activation_peak_bytes", "memory_peak_bytes", "step_ns", "recompute_ns"]
_COLUMNS += ["fits", "largest_microbatch", "largest_microbatch_reason"]


@dataclass(frozen=True)
class Recomputation:
    """Something to try: ``every`` repeats one layer in ``every``; ``microbatch_size`` None is the run's."""

    mode: str
    every: int | None = None
    microbatch_size: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES or (self.mode == "every") != (self.every is not None) or (self.every is not None and self.every < 1):
            raise UsageError(f"--recompute is none, selective, full, sqrt or every:K (K at least 1), not {self.mode!r}")


@dataclass(frozen=True)
class _Basis:
    """Of the fullest rank, bytes and ns; ``whole`` per layer in order, ``forward`` the same layers' forward in a step."""

    whole: tuple[float, ...]
    kept: float
    core: float
    standing: float
    loss: float
    beside: float
    forward: tuple[float, ...]
    step_ns: float
    compute_ns: float
    microbatch_size: int
    basis: str
    error_ratio: float


def memory_what_if(analysis: Analysis, alternatives: Sequence[Recomputation] | None = None, memory_limit_bytes: int | None = None) -> Result:
    """Peak of the fullest rank and step time of each alternative; unavailable, with the reason, where the run does not tell.

    Returns:
        Table ``alternatives`` and the summary: ``trusted``, ``activation_error_ratio`` (the run's own peak from the basis), what ran.
    """
    found = _basis(analysis)
    if isinstance(found, str):
        return unavailable(found)
    asked = alternatives if alternatives is not None else [Recomputation(m, 2 if m == "every" else None) for m in MODES]
    table = pd.DataFrame([_row(found, one, memory_limit_bytes) for one in asked], columns=_COLUMNS)
    table = table.astype({"every": "Int64", "largest_microbatch": "Int64", "fits": "boolean", "step_ns": "Int64", "recompute_ns": "Int64"})
    trusted = abs(found.error_ratio) <= TRUSTED
    summary: dict[str, Any] = {
        "trusted": trusted,
        "activation_error_ratio": found.error_ratio,
        "microbatch_size": found.microbatch_size,
        "layers": len(found.whole),
    }
    summary |= {"step_without_recompute_ns": round(found.step_ns), "memory_limit_bytes": memory_limit_bytes}
    notes = ["Assumed: activations and compute grow in proportion to the microbatch size; everything beside activations stays as at the measured peak."]
    notes.append("Peaks add the most activations to what stood beside them at the measured peak, which may be another moment: they tend to be high.")
    if table["mode"].eq("selective").any():
        notes.append("What repeating core attention takes is not measured by this run, so the step time of selective is unknown.")
    if found.basis == "closed_form":
        notes.append("The run repeats layers: their whole activations are closed forms, and what the loss holds at the end of forward is not counted.")
    if not trusted:
        notes.append("These numbers cannot be trusted: the run's own activation peak is not met within 15 %.")
    return Result(summary, {"alternatives": table}, notes=tuple(notes))


def _basis(analysis: Analysis) -> _Basis | str:
    job, memory, again = analysis.job, analysis.result("memory"), analysis.result("recompute")
    for result in (memory, again):
        if not result.available:
            return str(result.reason)
    if job.emulated or job.run.get("emulate_compute_ns"):
        return "compute was emulated: no activations of a model are there"
    if any(int(job.mesh.get(a, 1)) > 1 for a in ("pp",)):
        return "the run has a pipeline: a stage holds several microbatches, which this account does not cover"
    mode = again.summary["mode"]
    if mode not in ("none", "full", "selective"):
        return f"recomputation of kind {mode} ran: what its layers keep cannot be told apart"
    forms = memory.tables["modes"].set_index("mode")
    run_form = "tp_sp" if (job.run.get("training") or {}).get("sequence_parallel") else "tp" if job.mesh.get("tp", 1) > 1 else "none"
    names = (run_form, "tp_selective" if run_form == "none" else f"{run_form}_selective", "full")
    known = forms["activation_per_layer_theory_bytes"].dropna().astype("int64").to_dict()
    missing = [n for n in names if n not in known]
    if missing:
        return str(forms["reason"].to_dict()[missing[0]])
    whole_form, kept = float(known[run_form]), float(known["full"])
    size = int(job.run["training"]["microbatch_size"])
    core = _core(analysis, whole_form)
    if core is None:
        return "what core attention keeps is not known"
    rank = memory.summary["rank"]
    peaks, layers = memory.tables["peaks"], memory.tables["by_layer"]
    own_peaks = peaks[peaks["step"].isna() & peaks["rank"].eq(rank) & peaks["device_type"].eq(memory.summary["device_type"])]
    top = own_peaks.sort_values("allocated_peak_bytes").iloc[-1]
    mine = layers[layers["step"].isna() & layers["rank"].eq(rank) & layers["device_type"].eq(top["device_type"]) & layers["device"].eq(top["device"])]
    held = mine[mine["layer_index"].notna()].sort_values("layer_index")["activation_bytes"].astype(float).tolist()
    if not held or pd.isna(top["activation_peak_bytes"]) or pd.isna(top["activation_bytes"]):
        return "no activations of numbered layers are known at the peak"
    steps = job.table("steps")
    steps = steps[steps["rank"].eq(rank) & steps["step"].isin(job.steady_steps)]
    cost = again.tables["ranks"]
    cost = cost[cost["rank"].eq(rank) & cost["step"].isin(job.steady_steps)]
    facts = again.tables["layers"]
    facts = facts[facts["rank"].eq(rank) & facts["step"].isin(job.steady_steps) & facts["layer_index"].notna()]
    forward = facts.groupby("layer_index")["forward_ns"].mean().sort_index().astype(float).tolist()
    if not len(steps) or not len(cost) or cost["recompute_ns"].isna().any() or len(forward) != len(held):
        return "step times or the forward of each layer are not known for the fullest rank"
    standing = float(top["activation_bytes"]) - sum(held)
    peak = float(top["activation_peak_bytes"])
    whole = [n + (core if mode == "selective" else 0) for n in held] if mode != "full" else [whole_form] * len(held)
    own = standing + (sum(held) if mode != "full" else (len(held) - 1) * kept + whole_form)
    return _Basis(
        whole=tuple(whole),
        kept=kept,
        core=core,
        standing=standing,
        loss=0.0 if mode == "full" else max(0.0, peak - float(top["activation_bytes"])),
        beside=float(top["allocated_peak_bytes"]) - float(top["activation_bytes"]),
        forward=tuple(forward),
        step_ns=float((steps["window_end_ns"] - steps["window_start_ns"]).mean() - cost["recompute_ns"].mean()),
        compute_ns=float((cost["forward_ns"] + cost["backward_ns"]).mean()),
        microbatch_size=size,
        basis={"none": "measured"}.get(mode, "closed_form"),
        error_ratio=own / peak - 1,
    )


def _core(analysis: Analysis, whole: float) -> float | None:
    """Bytes per layer that recomputing core attention saves on a rank of the run."""
    selective = per_layer(analysis.job, "selective:core_attention")
    return None if selective is None else whole - selective


def _row(b: _Basis, one: Recomputation, limit: int | None) -> dict[str, Any]:
    size = one.microbatch_size or b.microbatch_size
    scale, n = size / b.microbatch_size, len(b.whole)
    again = [one.mode in ("full", "sqrt") or (one.mode == "every" and i % int(one.every or 1) == 0) for i in range(n)]
    keeps = [b.kept if r else w - (b.core if one.mode == "selective" else 0) for w, r in zip(b.whole, again, strict=True)]
    cut = theory.sqrt_checkpoints(n) if one.mode == "sqrt" else None
    segment = cut[1] if cut else 1
    inputs = cut[0] * b.kept if cut else sum(keeps)
    repeated = max((sum(b.whole[i : i + segment]) for i, r in enumerate(again) if r), default=0.0)
    activations = b.standing + max(inputs + b.loss, inputs + repeated - (b.kept if repeated else 0))
    extra = None if one.mode == "selective" else sum(f for f, r in zip(b.forward, again, strict=True) if r)
    peak = round(b.beside + activations * scale)
    largest = None if limit is None else floor((limit - b.beside) / (activations / b.microbatch_size))
    why = "no memory limit was given" if limit is None else "not even one sample fits" if largest is not None and largest < 1 else None
    name = f"every:{one.every}" if one.mode == "every" else one.mode
    closed = b.basis == "closed_form" or one.mode != "none"
    return {
        "label": f"{name}, b={size}",
        "mode": one.mode,
        "every": one.every,
        "microbatch_size": size,
        "basis": "closed_form" if closed else "measured",
        "time_basis": None if extra is None else "measured",
        "activation_peak_bytes": round(activations * scale),
        "memory_peak_bytes": peak,
        "step_ns": None if extra is None else round(b.step_ns + (scale - 1) * b.compute_ns + scale * extra),
        "recompute_ns": None if extra is None else round(scale * extra),
        "fits": None if limit is None else peak <= limit,
        "largest_microbatch": None if why else largest,
        "largest_microbatch_reason": why,
    }


def to_dict(result: Result) -> Mapping[str, Any]:
    """The document (schema ``tracekit.what_if/1``, kind ``memory``)."""
    return {
        "schema": WHAT_IF_SCHEMA,
        "kind": "memory",
        "available": result.available,
        "reason": result.reason,
        "notes": list(result.notes),
        "summary": plain(dict(result.summary)),
        "alternatives": records(result.tables["alternatives"]) if result.available else [],
    }
