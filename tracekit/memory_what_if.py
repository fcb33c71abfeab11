"""What would memory and the step take under another recomputation or microbatch size? From what a run measured.

Peak = what stood beside activations at the measured peak (of it input and temporary memory in proportion to the microbatch size) + the larger of two
moments: the end of forward (what layers keep, and the loss), and the backward of a checkpoint (what layers keep, and the whole activations of the
layers it repeats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from tracekit import theory
from tracekit.analysis import Analysis
from tracekit.errors import UsageError
from tracekit.job.base import Job
from tracekit.job.closed_forms import CORE, TOO_LARGE, per_layer, recompute_mode, refusal
from tracekit.metrics.base import Result, unavailable
from tracekit.vocabulary import Axis
from tracekit.what_if import what_if_document

#: How far what is foretold may miss what the run itself took.
TRUSTED = 0.15
MODES = ("none", "selective", "full", "every", "sqrt")
#: Most samples per microbatch, and layers per repeated one, that can be asked for.
MOST = 2**20
_COLUMNS = ["label", "mode", "every", "microbatch_size", "basis", "time_basis", "activation_peak_bytes", "memory_peak_bytes", "step_ns", "recompute_ns"]
_COLUMNS += ["step_reason", "fixed_bytes", "grows_bytes", "fits", "largest_microbatch", "largest_microbatch_reason"]


@dataclass(frozen=True)
class Recomputation:
    """Something to try: ``every`` repeats one layer in ``every``; ``microbatch_size`` None is the run's.

    Raises:
        UsageError: there is no such mode, or a number is not within 1 and ``MOST``.
    """

    mode: str
    every: int | None = None
    microbatch_size: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES or (self.mode == "every") != (self.every is not None) or not 1 <= (self.every or 1) <= MOST or self.every == 0:
            raise UsageError(f"--recompute is none, selective, full, sqrt or every:K (K from 1 to {MOST}), not {self.mode!r}")
        if self.microbatch_size is not None and not 1 <= self.microbatch_size <= MOST:
            raise UsageError(f"--microbatch-size is from 1 to {MOST}, not {self.microbatch_size}")


@dataclass(frozen=True)
class _Basis:
    """What the fullest rank of the run took, in bytes and ns, at its own microbatch size.

    Attributes:
        mode: what ran: none, selective or full.
        whole: activations of each layer that repeats nothing, in order.
        kept: what a repeated layer keeps.
        core: what of a layer is core attention's.
        standing: activations of no layer, at the measured peak.
        loss: what the end of forward adds to them.
        grows: input and temporary bytes at the measured peak.
        fixed: all else at the measured peak.
        forward: forward in a step of the layers of ``whole``.
        step_ns, recompute_ns: the step as measured, and what of it was repeated compute.
        compute_ns: forward and backward in it, nothing repeated.
        microbatch_size: samples per microbatch.
        why_no_time: why only the step that ran is known, or None.
        activation_peak, memory_peak: as measured.
        layer_error_ratio: measured bytes of a layer / its closed form - 1; None where layers are closed forms.
    """

    mode: str
    whole: tuple[float, ...]
    kept: float
    core: float
    standing: float
    loss: float
    grows: float
    fixed: float
    forward: tuple[float, ...]
    step_ns: float
    recompute_ns: float
    compute_ns: float
    microbatch_size: int
    why_no_time: str | None
    activation_peak: float
    memory_peak: float
    layer_error_ratio: float | None


def memory_what_if(analysis: Analysis, alternatives: Sequence[Recomputation] | None = None, memory_limit_bytes: int | None = None) -> Result:
    """Peak of the fullest rank and step time of each alternative; unavailable, with the reason, where the run does not tell.

    Returns:
        Table ``alternatives`` and the summary: ``trusted``, what it follows from (``activation_error_ratio`` and ``memory_error_ratio``: what is
        foretold of the run itself / what was measured - 1; ``layer_error_ratio``: a measured layer / its closed form - 1), what ran.
        Of an alternative, ``fixed_bytes`` stand at any microbatch size, and ``grows_bytes`` at the run's own.
    """
    found = _basis(analysis)
    if isinstance(found, str):
        return unavailable(found)
    asked = alternatives if alternatives is not None else [Recomputation(m, 2 if m == "every" else None) for m in MODES]
    table = pd.DataFrame([_row(found, one) for one in asked]).astype({"every": "Int64", "step_ns": "Int64", "recompute_ns": "Int64"})
    errors = _errors(found)
    trusted = all(abs(e) <= TRUSTED for e in errors.values() if e is not None)
    summary: dict[str, Any] = {"trusted": trusted, **errors, "microbatch_size": found.microbatch_size, "layers": len(found.whole), "mode": found.mode}
    summary |= {"step_without_recompute_ns": round(found.step_ns - found.recompute_ns)}
    notes = ["Assumed: activations, input, temporary memory and compute grow in proportion to the microbatch size; all other memory, unknown bytes too, stays."]
    notes.append("Peaks add the most activations to what stood beside them at the measured peak, which may be another moment: they tend to be high.")
    notes += [f"Step times are unknown: {why}." for why in table["step_reason"].dropna().unique()]
    if found.mode == "full":
        notes.append("The run repeats layers: their whole activations, and what the loss holds at the end of forward, are closed forms.")
    if not trusted:
        notes.append("These numbers cannot be trusted: the run's own peaks, or its measured layers by the closed form, are not met within 15 %.")
    return limited(Result(summary, {"alternatives": table}, notes=tuple(notes)), memory_limit_bytes)


def limited(result: Result, memory_limit_bytes: int | None = None) -> Result:
    """A memory what-if that is available, against the memory of a device: what fits, and samples per microbatch at most.

    Args:
        result: of :func:`memory_what_if`, against whatever limit.
        memory_limit_bytes: memory of a device; None: none.
    """
    table, ran = result.tables["alternatives"], int(result.summary["microbatch_size"])
    judged = pd.DataFrame([_judged(row, ran, memory_limit_bytes) for row in table.to_dict("records")], index=table.index)
    table = table.assign(**judged).astype({"fits": "boolean", "largest_microbatch": "Int64"})
    return replace(result, summary={**result.summary, "memory_limit_bytes": memory_limit_bytes}, tables={"alternatives": table.reindex(columns=_COLUMNS)})


def _judged(row: Mapping[Any, Any], ran: int, limit: int | None) -> dict[str, Any]:
    """Whether an alternative fits, and the largest microbatch with which it does; or why that is not known. ``ran``: samples of the run's own."""
    fits = None if limit is None else bool(row["memory_peak_bytes"] <= limit)
    largest, why = 0, "no memory limit was given"
    if limit is not None and "fixed_bytes" not in row:
        why = "it was stored by an earlier tracekit; read the run again"
    elif limit is not None:
        most = floor((limit - row["fixed_bytes"]) * ran / row["grows_bytes"])
        largest, why = max(most, row["microbatch_size"] if fits else 0), "not even one sample fits"
    return {"fits": fits, "largest_microbatch": largest if largest >= 1 else None, "largest_microbatch_reason": None if largest >= 1 else why}


def _errors(b: _Basis) -> dict[str, float | None]:
    """How far what the account says of the run itself is from what was measured, and measured layers from the closed form that other rows rest on."""
    own = _activations(b, Recomputation(b.mode))
    return {
        "activation_error_ratio": own / b.activation_peak - 1,
        "memory_error_ratio": (b.fixed + own + b.grows) / b.memory_peak - 1,
        "layer_error_ratio": b.layer_error_ratio,
    }


def _basis(analysis: Analysis) -> _Basis | str:
    job, memory, again = analysis.job, analysis.result("memory"), analysis.result("recompute")
    for result in (memory, again):
        if not result.available:
            return str(result.reason)
    if job.emulated or job.run.get("emulate_compute_ns"):
        return "compute was emulated: no activations of a model are there"
    if int(job.mesh.get(Axis.PP, 1)) > 1:
        return "the run has a pipeline: a stage holds several microbatches, which this account does not cover"
    mode = again.summary["mode"]
    if mode not in ("none", "full", "selective"):
        return f"recomputation of kind {mode} ran: what its layers keep cannot be told apart"
    if mode == "selective" and recompute_mode(job) != CORE:
        return f"some operators of each layer were repeated, and run.json does not state that they are core attention's (recompute: {CORE})"
    forms = _forms(job)
    if isinstance(forms, str):
        return forms
    peaks = memory.tables["peaks"]
    at = {c: memory.summary[c] for c in ("rank", "device_type", "device")}
    own_peaks = _where(peaks[peaks["step"].isna()], at)
    top = own_peaks.sort_values("allocated_peak_bytes", ascending=False, kind="stable").iloc[0]
    layers = memory.tables["by_layer"]
    mine = _where(layers[layers["step"].isna() & layers["layer_index"].notna()], {**at, "capture": top["capture"]})
    held = mine.sort_values("layer_index")["activation_bytes"].astype(float).tolist()
    if sum(held) <= 0 or top[["activation_peak_bytes", "activation_bytes", "input_bytes", "temporary_bytes"]].isna().any():
        return "no activations of numbered layers are known at the peak"
    times = _times(job, again, {"rank": top["rank"], "capture": top["capture"]})
    if times is None or len(times["forward"]) != len(held):
        return "step times or the forward of each layer are not known for the fullest rank"
    at_peak, activation_peak, memory_peak = (float(top[c]) for c in ("activation_bytes", "activation_peak_bytes", "allocated_peak_bytes"))
    grows = float(top["input_bytes"]) + float(top["temporary_bytes"])
    layer = forms["whole"] - (forms["core"] if mode == "selective" else 0.0)
    return _Basis(
        mode=mode,
        whole=tuple([forms["whole"]] * len(held) if mode == "full" else [n - layer + forms["whole"] for n in held]),
        kept=forms["kept"],
        core=forms["core"],
        standing=at_peak - sum(held),
        loss=forms["loss"] if mode == "full" else max(0.0, activation_peak - at_peak),
        grows=grows,
        fixed=memory_peak - at_peak - grows,
        microbatch_size=int(job.run["training"]["microbatch_size"]),
        why_no_time=_why_no_time(job, again),
        activation_peak=activation_peak,
        memory_peak=memory_peak,
        layer_error_ratio=None if mode == "full" else median(held) / layer - 1,
        **times,
    )


def _where(table: pd.DataFrame, values: Mapping[str, Any]) -> pd.DataFrame:
    """Rows with these values in these columns."""
    return table[np.logical_and.reduce([table[c].eq(v).fillna(False).to_numpy(bool) for c, v in values.items()])]


def _forms(job: Job) -> dict[str, float] | str:
    """Closed forms of a layer of the run (whole, kept, core) and of what the loss holds; or why there are none."""
    found = {mode: per_layer(job, mode) for mode in ("none", "full", CORE)}
    for mode, nbytes in found.items():
        if nbytes is None:
            return refusal(job, mode) or TOO_LARGE
    whole, kept, selective = (float(n or 0) for n in found.values())
    model, training = job.run["model"], job.run["training"]
    s, h, vocabulary, width = (int(model.get(n) or 0) for n in ("sequence", "hidden", "vocabulary", "dtype_bytes"))
    t = int(job.mesh.get(Axis.TP, 1)) if training.get("sequence_parallel") else 1
    loss = theory.output_activation_bytes(s, int(training["microbatch_size"]), h, vocabulary, t, width)
    return {"whole": whole, "kept": kept, "core": whole - selective, "loss": float(loss or 0)}


def _times(job: Job, again: Result, at: Mapping[str, Any]) -> dict[str, Any] | None:
    """Fields of ``_Basis`` in ns: means of a rank's steady steps; None where one is not known."""
    steps, cost, facts = (_where(t, at) for t in (job.table("steps"), again.tables["ranks"], again.tables["layers"]))
    steps, cost, facts = (t[t["step"].isin(job.steady_steps)] for t in (steps, cost, facts))
    forward = facts[facts["layer_index"].notna()].groupby("layer_index")["forward_ns"].mean().sort_index()
    if not len(steps) or not len(cost) or cost["recompute_ns"].isna().any():
        return None
    return {
        "forward": tuple(forward.astype(float).tolist()),
        "step_ns": float((steps["window_end_ns"] - steps["window_start_ns"]).mean()),
        "recompute_ns": float(cost["recompute_ns"].mean()),
        "compute_ns": float((cost["forward_ns"] + cost["backward_ns"]).mean()),
    }


def _why_no_time(job: Job, again: Result) -> str | None:
    if again.summary["reissued_collectives"]:
        return "the run issued collectives again while it recomputed, and what they added to the step is not known"
    if int(job.mesh.get(Axis.TP, 1)) > 1:
        return "under tensor parallelism layers have collectives, and what these take under another microbatch size or issued again is not measured"
    return None


def _repeats(b: _Basis, one: Recomputation) -> list[bool]:
    """Whether each layer is repeated whole."""
    return [one.mode in ("full", "sqrt") or (one.mode == "every" and i % int(one.every or 1) == 0) for i in range(len(b.whole))]


def _activations(b: _Basis, one: Recomputation) -> float:
    """The most activations that are alive, at the run's microbatch size."""
    again = _repeats(b, one)
    keeps = [b.kept if r else w - (b.core if one.mode == "selective" else 0) for w, r in zip(b.whole, again, strict=True)]
    cut = theory.sqrt_checkpoints(len(b.whole)) if one.mode == "sqrt" else None
    segment = cut[1] if cut else 1
    inputs = cut[0] * b.kept if cut else sum(keeps)
    repeated = max((sum(b.whole[i : i + segment]) for i, r in enumerate(again) if r), default=0.0)
    return b.standing + max(inputs + b.loss, inputs + repeated - (b.kept if repeated else 0))


def _row(b: _Basis, one: Recomputation) -> dict[str, Any]:
    size = one.microbatch_size or b.microbatch_size
    ran = one.mode == b.mode and size == b.microbatch_size
    scale, activations = size / b.microbatch_size, _activations(b, one)
    grown = activations + b.grows
    peak = round(b.memory_peak if ran else b.fixed + grown * scale)
    return {
        "label": f"{f'every:{one.every}' if one.mode == 'every' else one.mode}, b={size}",
        "mode": one.mode,
        "every": one.every,
        "microbatch_size": size,
        "basis": "measured" if ran else "scaled" if one.mode == b.mode != "full" else "closed_form",
        "activation_peak_bytes": round(b.activation_peak if ran else activations * scale),
        "memory_peak_bytes": peak,
        **_time(b, one, size),
        "fixed_bytes": b.fixed,
        "grows_bytes": grown,
    }


def _time(b: _Basis, one: Recomputation, size: int) -> dict[str, Any]:
    """The step of an alternative: as it was measured where that is what ran, else compute in proportion and each repeated forward once more."""
    if one.mode == b.mode and size == b.microbatch_size:
        return {"time_basis": "measured", "step_ns": round(b.step_ns), "recompute_ns": round(b.recompute_ns), "step_reason": None}
    measured = one.mode == "selective" == b.mode
    why = "what repeating core attention takes was not measured" if one.mode == "selective" and not measured else None
    if why or b.why_no_time:
        return {"time_basis": None, "step_ns": None, "recompute_ns": None, "step_reason": b.why_no_time or why}
    again = b.recompute_ns if measured else sum(f for f, r in zip(b.forward, _repeats(b, one), strict=True) if r)
    scale, extra = size / b.microbatch_size, again
    step = b.step_ns - b.recompute_ns + (scale - 1) * b.compute_ns + scale * extra
    return {"time_basis": "scaled", "step_ns": round(step), "recompute_ns": round(scale * extra), "step_reason": None}


def to_dict(result: Result) -> Mapping[str, Any]:
    """The document (schema ``tracekit.what_if/1``, kind ``memory``)."""
    return what_if_document(result, "memory")
