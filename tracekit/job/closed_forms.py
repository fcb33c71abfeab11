"""What do the closed forms of memory and recomputation say for this job's model, rank by rank?

From the model sizes in ``run.json``; without them, or where a form does not hold (emulated compute, another kind of model),
the columns are null. Metrics put these beside what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pandas as pd

from tracekit import theory
from tracekit.job.base import Job
from tracekit.vocabulary import Axis

#: The selective recomputation that Table 2 knows, as ``run.json`` names it.
CORE = "selective:core_attention"
#: More bytes than fit the tables' columns: no closed form of a model that ran.
_MOST = 2**62
TOO_LARGE = "the sizes in run.json are too large for any device"
COLUMNS = ["rank", "layers", "in_flight_microbatches", "activation_per_layer_theory_bytes", "activation_theory_bytes"]
COLUMNS += ["activation_without_recompute_theory_bytes", "parameter_theory_bytes", "gradient_theory_bytes", "optimizer_state_theory_bytes"]
#: Columns of :func:`modes`.
MODE_COLUMNS = ["mode", "tensor_parallel", "as_it_ran", "activation_per_layer_theory_bytes", "reason"]


def closed_forms(job: Job) -> pd.DataFrame:
    """Closed forms per rank, columns ``COLUMNS``.

    - layers: layers that ran on the rank (as recorded).
    - in_flight_microbatches: layer-microbatches held at the rank's peak over its layers (``theory.in_flight_microbatches``); 1
      without a pipeline.
    - activation_per_layer_theory_bytes: what a layer keeps for one microbatch (``theory.activation_bytes_per_layer``).
    - activation_theory_bytes: the rank's peak. Without recomputation, or with selective: layers x microbatches x that. With ``full``
      and ``sqrt``: the kept inputs plus the whole activations of the layers that one checkpoint repeats. Embedding, head
      and loss are not in it.
    - parameter, gradient, optimizer state: ``theory.state_bytes`` of the rank's parameters; gathered copies are not in it.
    """
    layers = _layers(job)
    rows = [{"rank": rank, **_activations(job, rank, layers.get(rank)), **_state(job, rank, layers.get(rank))} for rank in sorted({r for r, _ in job.ranks})]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype({"rank": "int64", "in_flight_microbatches": "Float64", **dict.fromkeys(("layers", *COLUMNS[3:]), "Int64")})


def modes(job: Job) -> pd.DataFrame:
    """Bytes that a layer would keep for a microbatch in each mode of arXiv 2205.05198 Table 2, for the model that ran.

    Returns:
        One row per ``theory.ACTIVATION_MODES``, columns ``MODE_COLUMNS``. The degree of tensor parallelism is the run's; where it
        had none, the largest of 8, 4 and 2 that divides its heads. Bytes are null where the table does not hold, with the reason.
    """
    heads = _part(job, "model").get("heads")
    ran = job.mesh.get(Axis.TP, 1)
    degree = ran if ran > 1 else next((t for t in (8, 4, 2) if _whole(heads) and int(heads or 0) % t == 0), 1)
    sequence = bool(_part(job, "training").get("sequence_parallel"))
    rows = []
    for mode in theory.ACTIVATION_MODES:
        why = refusal(job, mode.recompute)
        alike = mode.recompute == "full" or (mode.tensor_parallel == (ran > 1) and mode.sequence_parallel == sequence)
        t = degree if mode.tensor_parallel else 1
        nbytes = None if why else _bytes(job, mode.recompute, t, mode.sequence_parallel)
        why = why or (TOO_LARGE if nbytes is None else None)
        rows.append((mode.name, t, alike and mode.recompute == recompute_mode(job), nbytes, why))
    frame = pd.DataFrame(rows, columns=MODE_COLUMNS)
    return frame.astype({"tensor_parallel": "int64", "as_it_ran": "bool", "activation_per_layer_theory_bytes": "Int64", "reason": "object"})


def refusal(job: Job, mode: str) -> str | None:
    """Why Table 2 does not hold for this job under a mode of recomputation; None where it does."""
    model, training = _part(job, "model"), _part(job, "training")
    sizes = {**model, "microbatch_size": training.get("microbatch_size")}
    missing = [n for n in ("sequence", "microbatch_size", "hidden", "heads", "dtype_bytes") if not _whole(sizes.get(n))]
    if missing:
        return f"run.json does not state {missing[0]}"
    if job.emulated or job.run.get("emulate_compute_ns"):
        return "compute was emulated: no activations of a model are there"
    if job.mesh.get(Axis.CP, 1) > 1:
        return "context parallelism divides the sequence of attention: the table has no such case"
    kind = str(model.get("dtype") or "").lower()
    if int(sizes["dtype_bytes"]) < 2 or "fp8" in kind or "float8" in kind:
        return "8-bit activations are kept beside scales and 16-bit copies: the table counts 16 bits"
    if training.get("activation_offload") or training.get("cpu_offload"):
        return "activations are offloaded to the host"
    if model.get("gated_mlp") or int(model.get("experts") or 1) > 1:
        return "the layer is no GPT block: its MLP is gated or has experts"
    if model.get("kv_heads") not in (None, model.get("heads")):
        return "the layer is no GPT block: query heads share keys and values"
    if mode == "none" and model.get("attention") not in ("math", "flash"):
        return f"whether attention of kind {model.get('attention') or 'unknown'} keeps its s x s matrix is not known (model.attention: math or flash)"
    if mode != "full" and model.get("dropout") is None:
        return "run.json does not state dropout: whether its masks are kept is not known"
    return None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def recompute_mode(job: Job) -> str | None:
    """The mode that ``run.json`` states, or None."""
    mode = job.run.get("recompute")
    return str(mode) if mode else None


def _layers(job: Job) -> dict[int, int]:
    """Numbered layers that ran on each rank."""
    table = job.table("recompute")
    known = table[table["layer_index"].notna()]
    counts = known.groupby("rank")["layer_index"].nunique()
    return dict(zip(counts.index.astype(int).tolist(), counts.astype(int).tolist(), strict=True))


def _activations(job: Job, rank: int, layers: int | None) -> dict[str, Any]:
    one, whole = per_layer(job, recompute_mode(job)), per_layer(job, "none")
    flight = _in_flight(job, rank)
    out: dict[str, Any] = {"layers": layers, "in_flight_microbatches": flight, "activation_per_layer_theory_bytes": one}
    if layers is None or flight is None:
        return out
    if whole is not None:
        out["activation_without_recompute_theory_bytes"] = _bounded(layers * flight * whole)
    mode = recompute_mode(job)
    if mode == "sqrt" and whole is not None:
        kept, cut = per_layer(job, "full"), theory.sqrt_checkpoints(layers)
        if kept is not None and cut is not None:
            out["activation_theory_bytes"] = _bounded(round(flight * cut[0] * kept) + cut[1] * whole)
    elif one is not None:
        repeated = whole if mode == "full" and whole is not None else 0
        out["activation_theory_bytes"] = _bounded(round(layers * flight * one) + repeated)
    return out


def _bounded(nbytes: float | None) -> int | None:
    return None if nbytes is None or not 0 <= nbytes < _MOST else round(nbytes)


def per_layer(job: Job, mode: str | None) -> int | None:
    """Bytes that a layer keeps for a microbatch on a rank; None where sizes are unknown or the form does not hold."""
    if mode is None or refusal(job, mode) is not None:
        return None
    return _bytes(job, mode, job.mesh.get(Axis.TP, 1), bool(_part(job, "training").get("sequence_parallel")))


def _bytes(job: Job, mode: str, t: int, sequence_parallel: bool) -> int | None:
    """Table 2 with the sizes of ``run.json``, which are there (:func:`refusal`)."""
    model, training = _part(job, "model"), _part(job, "training")
    s, b, h, a, width = (int(n) for n in (model["sequence"], training["microbatch_size"], model["hidden"], model["heads"], model["dtype_bytes"]))
    # DTensor keeps the gathered inputs whole; a run that was not sequence parallel is asked what the paper's would keep
    regather = training.get("regather_sequence", not training.get("sequence_parallel"))
    nbytes = theory.activation_bytes_per_layer(
        s,
        b,
        h,
        a,
        t,
        sequence_parallel=sequence_parallel,
        recompute=mode,
        flash=model.get("attention") == "flash",
        dtype_bytes=width,
        mask_bytes=1 if job.run.get("device") == "cuda" else width,
        dropout=float(model.get("dropout") or 0) > 0,
        mlp_ratio=Fraction(model["ffn_hidden"], h) if _whole(model.get("ffn_hidden")) else Fraction(model.get("mlp_ratio") or 4),
        regather=bool(regather),
    )
    return _bounded(nbytes)


def _in_flight(job: Job, rank: int) -> float | None:
    """Microbatches held at the peak, averaged over the rank's stages; 1 without a pipeline."""
    pipeline = _part(job, "pipeline")
    p = job.mesh.get(Axis.PP, 1)
    if p <= 1:
        return 1.0 if not pipeline else None
    v, m = int(pipeline.get("virtual") or 1), _part(job, "training").get("microbatches")
    at = pipeline_rank(job, rank)
    if at is None or not m or not pipeline.get("schedule"):
        return None
    held = [theory.in_flight_microbatches(str(pipeline["schedule"]), at + c * p, p, int(m), v) for c in range(v)]
    known = [n for n in held if n is not None]
    return sum(known) / v if len(known) == v else None


def pipeline_rank(job: Job, rank: int) -> int | None:
    """Place of a rank along the pipeline, from ``run.json``'s mesh (row-major, last axis fastest), or None."""
    mesh = job.run.get("mesh")
    if not isinstance(mesh, Mapping) or Axis.PP not in mesh:
        return None
    inner, seen = 1, False
    for axis, size in mesh.items():
        seen = seen or axis == Axis.PP
        inner *= int(size) if seen and axis != Axis.PP else 1
    return rank // inner % int(mesh[Axis.PP])


def _state(job: Job, rank: int, layers: int | None) -> dict[str, Any]:
    model, training = _part(job, "model"), _part(job, "training")
    total, hidden, count = (model.get(k) for k in ("parameters", "hidden", "layers"))
    ratio, width = int(model.get("mlp_ratio") or 4), model.get("dtype_bytes")
    if not (isinstance(total, int) and isinstance(hidden, int) and isinstance(count, int) and isinstance(width, int)) or layers is None:
        return {}
    if job.emulated or job.run.get("emulate_compute_ns"):  # layers that sleep have no weights
        return {}
    t, p = job.mesh.get(Axis.TP, 1), job.mesh.get(Axis.PP, 1)
    whole, split = theory.layer_parameters(hidden, 1, ratio), theory.layer_parameters(hidden, t, ratio)
    if whole is None or split is None:
        return {}
    if p > 1:  # embedding and head are on the outer ranks, and how they are split is not written down
        if pipeline_rank(job, rank) in (None, 0, p - 1) or int(_part(job, "pipeline").get("virtual") or 1) > 1:
            return {}
        own = layers * split
    else:
        own = total - count * (whole - split)
    state = theory.state_bytes(own, str(training.get("optimizer") or ""), width, job.mesh.get(Axis.DP_SHARD, 1))
    if state is None:
        return {}
    parts = {"parameter_theory_bytes": state.parameter, "gradient_theory_bytes": state.gradient, "optimizer_state_theory_bytes": state.optimizer_state}
    return {name: _bounded(nbytes) for name, nbytes in parts.items()}


def _part(job: Job, key: str) -> Mapping[str, Any]:
    part = job.run.get(key)
    return part if isinstance(part, Mapping) else {}
