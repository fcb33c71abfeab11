"""What does activation recomputation cost, and what does it save?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit import theory
from tracekit.job.base import Job
from tracekit.job.closed_forms import closed_forms, modes, recompute_mode
from tracekit.job.flops import WHOLE_LAYER_SHARE
from tracekit.job.saved import saved_by_layer, saved_by_rank
from tracekit.metrics.base import Metric, Result, unavailable

_STEP = ["rank", "capture", "step"]
_GIB = 2**30


def compute(job: Job) -> Result:
    """Cost of repeated forwards per rank and step and per layer; mode found; bytes saved where both sides are known."""
    facts = job.table("recompute")
    whole = facts[facts["layer"].isna()]
    if not len(whole) or not (whole["forward_ns"] + whole["backward_ns"]).any():
        return unavailable("no forward or backward compute was recognised: record operators (CPU activity), with layer ranges or with_stack=True")
    ranks = _with_ratios(whole).drop(columns=["layer", "layer_index"]).reset_index(drop=True)
    layers = _with_ratios(facts[facts["layer"].notna()]).reset_index(drop=True)
    steady = ranks[ranks["step"].isin(job.steady_steps)] if len(job.steady_steps) else ranks
    decidable = bool(steady["decidable"].all()) and len(steady) > 0
    mode, repeated_every = _mode(facts, decidable)
    layers = _per_gib(layers.join(saved_by_layer(job, layers, mode)))
    ranks = _per_gib(ranks.merge(saved_by_rank(job, layers, mode), on=_STEP, how="left"))
    sublayers = _with_ratios(job.table("recompute_sublayers")).reset_index(drop=True)
    steady = ranks[ranks["step"].isin(job.steady_steps)] if len(job.steady_steps) else ranks
    summary: dict[str, Any] = {
        "mode": mode,
        "mode_reason": _mode_reason(decidable) if mode == "unknown" else None,
        "repeated_every": repeated_every,
        "declared_mode": recompute_mode(job),
        **_cost(steady, decidable),
        **_saved(job, mode),
        **_saved_by_layers(steady),
    }
    model = job.run.get("model") or {}
    stated = summary["declared_mode"] if mode in ("selective", "full", "sqrt", "none") and summary["declared_mode"] else mode
    summary["theory_overhead_of_step_compute_ratio"] = theory.recompute_overhead_theory(stated, model.get("sequence"), model.get("hidden"))
    return Result(summary, {"ranks": ranks, "layers": layers, "sublayers": sublayers, "modes": modes(job)}, notes=_notes(job, decidable))


def _with_ratios(facts: pd.DataFrame) -> pd.DataFrame:
    """The two overheads; null without a denominator, and everything null where the trace cannot tell."""
    unknown = ~facts["decidable"] & facts["recompute_ns"].eq(0)
    again = facts["recompute_ns"].astype("Int64").mask(unknown)
    backward = facts["backward_ns"].astype("Float64")
    both = backward + facts["forward_ns"].astype("Float64")
    return facts.assign(
        recompute_ns=again,
        overhead_of_step_compute_ratio=(again.astype("Float64") / both.mask(both.eq(0))).astype("Float64"),
        overhead_of_backward_ratio=(again.astype("Float64") / backward.mask(backward.eq(0))).astype("Float64"),
        reissued_collective_ns=facts["reissued_collective_ns"].astype("Int64").mask(unknown),
        reissued_collectives=facts["reissued_collectives"].astype("Int64").mask(unknown),
    )


def _cost(steady: pd.DataFrame, decidable: bool) -> dict[str, Any]:
    """Means over ranks and steady steps; ratios of sums."""
    if not decidable and not steady["recompute_ns"].fillna(0).gt(0).any():
        return dict.fromkeys(("recompute_ns", "overhead_of_step_compute_ratio", "overhead_of_backward_ratio", "reissued_collective_ns", "reissued_collectives"))
    again, forward, backward = (float(steady[c].sum()) for c in ("recompute_ns", "forward_ns", "backward_ns"))
    return {
        "recompute_ns": round(again / len(steady)),
        "overhead_of_step_compute_ratio": theory.step_overhead(forward + backward, again),
        "overhead_of_backward_ratio": again / backward if backward else None,
        "reissued_collective_ns": round(float(steady["reissued_collective_ns"].sum()) / len(steady)),
        "reissued_collectives": float(steady["reissued_collectives"].sum()) / len(steady),
    }


def _per_gib(frame: pd.DataFrame) -> pd.DataFrame:
    """With the time repeated for each GiB saved; null where nothing was saved or it is not known."""
    saved = frame["saved_bytes"].astype("Float64")
    return frame.assign(recompute_per_saved_gib_ns=frame["recompute_ns"].astype("Float64") * _GIB / saved.mask(saved.le(0)))


def _saved_by_layers(steady: pd.DataFrame) -> dict[str, Any]:
    """Mean bytes saved per rank and steady step, and the time repeated for each GiB of them; null where one is not known."""
    out: dict[str, Any] = dict.fromkeys(("saved_bytes", "saved_source", "recompute_per_saved_gib_ns"))
    rows = steady[steady["recompute_ns"].fillna(0).gt(0) | steady["saved_bytes"].notna()]
    if not len(rows) or rows["saved_bytes"].isna().any():
        return out
    saved, again = float(rows["saved_bytes"].sum()), rows["recompute_ns"]
    out |= {"saved_bytes": round(saved / len(rows)), "saved_source": "measured" if rows["saved_source"].eq("measured").all() else "closed_form"}
    if saved > 0 and again.notna().all():
        out["recompute_per_saved_gib_ns"] = float(again.sum()) * _GIB / saved
    return out


def _mode_reason(decidable: bool) -> str:
    if not decidable:
        return "a repeated forward would not show: a compiled backward, or neither sequence numbers nor layer ranges were recorded"
    return "something was repeated, but no product with weights names the layer that it belongs to"


def _mode(facts: pd.DataFrame, decidable: bool) -> tuple[str, int | None]:
    """Which recomputation the trace shows: none, full, sqrt, segments, every_kth, some_layers, selective, unknown; and every how many layers."""
    layers = facts[facts["layer_index"].notna()]
    whole = facts[facts["layer"].isna()]
    if not whole["checkpoints"].any() and not whole["recompute_ns"].any():
        return ("none" if decidable else "unknown"), None
    runs = layers.groupby(["rank", "layer_index"])[["forward_runs", "recompute_runs", "forward_products", "recompute_products"]].sum(min_count=1).reset_index()
    again = runs[runs["recompute_runs"].gt(0)]
    products, repeated = float(again["forward_products"].sum()), float(again["recompute_products"].sum())
    if not len(again) or not products:
        return "unknown", None
    if repeated < WHOLE_LAYER_SHARE * products:
        return "selective", None
    if len(again) < len(runs):
        steps = again.groupby("rank")["layer_index"].apply(lambda n: frozenset(n.sort_values().diff().dropna().astype(int)))
        gaps = frozenset().union(*steps)
        return ("every_kth", int(min(gaps))) if len(gaps) == 1 and min(gaps) > 1 else ("some_layers", None)
    passes = float(runs["recompute_runs"].sum()) / len(runs)
    checkpoints = float(whole["checkpoints"].sum()) / passes / runs["rank"].nunique()
    count = len(runs) / runs["rank"].nunique()
    if checkpoints > 0.9 * count:
        return "full", None
    return ("sqrt" if abs(checkpoints - count**0.5) <= 1 else "segments"), None


def _saved(job: Job, mode: str) -> dict[str, Any]:
    """Activation peak measured, what it would be without recomputation by the closed form, and the difference, on the fullest rank."""
    peaks = job.table("memory_peaks")
    names = ("activation_peak_bytes", "activation_without_recompute_theory_bytes", "activation_saved_bytes")
    peaks = peaks[peaks["device_type"].eq("gpu")] if peaks["device_type"].eq("gpu").any() else peaks
    peaks = peaks[peaks["step"].isna() & peaks["activation_peak_bytes"].notna()]
    if not len(peaks):
        return dict.fromkeys(names)
    top = peaks.sort_values("activation_peak_bytes", ascending=False, kind="stable").iloc[0]
    forms = closed_forms(job).set_index("rank")["activation_without_recompute_theory_bytes"]
    without = forms.get(int(top["rank"]))
    measured = int(top["activation_peak_bytes"])
    known = without is not None and not pd.isna(without) and mode not in ("none", "unknown")
    paper = None if without is None or pd.isna(without) else int(without)
    return dict(zip(names, (measured, paper, paper - measured if known and paper is not None else None), strict=True))


def _notes(job: Job, decidable: bool) -> tuple[str, ...]:
    notes = ["Ratios are of summed compute time; forward and backward are counted without the repeated part. Collectives issued again are counted apart."]
    if not decidable:
        notes.append(
            "Whether anything was recomputed cannot be told: a compiled backward, or no sequence numbers; record uncompiled, or with the recorder's ranges."
        )
    if job.emulated:
        notes.append("Compute was emulated.")
    return tuple(notes)


METRIC = Metric(
    name="recompute",
    title="Recomputation",
    question="What does activation recomputation cost, and what does it save?",
    definition=(
        "Forward operators (a Sequence number, Fwd thread id 0) inside an autograd node run again. overhead_of_step_compute_ratio = "
        "repeated compute / (forward + backward), overhead_of_backward_ratio = repeated compute / backward, both without the repeated part "
        "in the denominator; full recomputation is 1/3 of the step's compute on paper (Korthikanti et al. 2022, arXiv 2205.05198). "
        "Collectives issued again are summed apart, waits included. Mode: a layer that repeats fewer than half of its weight products is "
        "recomputed selectively; several layers per checkpoint are segments, sqrt where their number is about the root of the layers'. "
        "activation_saved_bytes: the closed form without recomputation minus the measured activation peak. saved_bytes of a layer: what a layer "
        "of the same kind that is kept in the same step holds at the peak, minus what this one holds there (measured); else the closed "
        "form without recomputation minus that of this mode, times the microbatches held (closed_form); of a rank: the sum over its layers where all are "
        "measured, else the closed form of its peak without recomputation minus that of this mode. "
        "repeated_every names the k of every_kth: one layer in k is repeated."
    ),
    compute=compute,
)
