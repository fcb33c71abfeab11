"""How many bytes does each layer save by being recomputed, measured against a layer that is kept, or else by the closed form?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.job.base import Job
from tracekit.job.closed_forms import closed_forms, recompute_mode
from tracekit.vocabulary import LAYER_INDEX

_STEP = ["rank", "capture", "step"]
_LAYER = [*_STEP, "layer"]
#: What makes two layers of a step the same: their path but for the number, and what their forwards ran.
_KIND = [*_STEP, "kind", "forward_runs", "forward_products"]


def saved_by_layer(job: Job, layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Bytes that layers save at the peak of allocated memory, beside their rows.

    Args:
        job: the job.
        layers: rows of the fact ``recompute`` that have a layer, each (rank, capture, step, layer) once.
        mode: the mode that the trace shows.

    Returns:
        Index of ``layers``; ``saved_bytes`` (Int64) and ``saved_source``: ``measured`` where a layer of the same kind was kept in
        the same step (the most that one holds at the peak, minus what this one holds there; null where that is less than nothing),
        ``closed_form`` where the model's sizes are known (mode none minus this mode, times the microbatches held), null where
        neither tells and for layers that are kept.
    """
    repeated = layers["recompute_runs"].gt(0)
    measured = _measured(job, layers).where(repeated)
    formed = _formed(job, layers, mode).where(repeated)
    source = pd.Series(None, index=layers.index, dtype=object)
    source = source.mask(formed.notna(), "closed_form").mask(measured.notna(), "measured")
    return pd.DataFrame({"saved_bytes": measured.fillna(formed), "saved_source": source})


def _measured(job: Job, layers: pd.DataFrame) -> pd.Series:
    held = job.table("memory_layers")
    gpu = held["device_type"].eq("gpu")
    held = held[gpu] if gpu.any() else held
    # a layer without bytes may have been freed before the peak: it tells nothing
    sums = held[held["activation_bytes"].gt(0)].groupby(_LAYER, dropna=False)["activation_bytes"].sum().astype("Int64").rename("held").reset_index()
    frame = layers[[*_LAYER, "forward_runs", "forward_products", "recompute_runs"]].merge(sums, on=_LAYER, how="left")
    frame = frame.assign(kind=[LAYER_INDEX.sub("#", str(path)) for path in frame["layer"]])
    kept = frame["held"].where(frame["recompute_runs"].eq(0))
    most = frame.assign(kept=kept).groupby(_KIND, dropna=False)["kept"].transform("max")
    saved = most - frame["held"]
    return pd.Series(saved.mask(saved.lt(0)).array, index=layers.index, dtype="Int64")


def saved_by_rank(job: Job, layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Bytes that each rank saves in a step, at its peak of allocated memory.

    Args:
        job: the job.
        layers: as in :func:`saved_by_layer`, with its columns beside.
        mode: the mode that the trace shows.

    Returns:
        rank, capture, step, ``saved_bytes``, ``saved_source``; one row where anything was repeated. The sum over the repeated
        layers where each of them is measured; else the closed form of the rank's peak without recomputation minus that of this
        mode, which is less than the layers' sum: one checkpoint is whole again while it is repeated.
    """
    again = layers[layers["recompute_runs"].gt(0)]
    groups = again.assign(measured=again["saved_source"].eq("measured")).groupby(_STEP, dropna=False)
    frame = groups.agg(saved_bytes=("saved_bytes", "sum"), measured=("measured", "all")).reset_index()
    forms = closed_forms(job).set_index("rank")
    paper = forms["activation_without_recompute_theory_bytes"] - forms["activation_theory_bytes"]
    formed = pd.Series(paper.reindex(frame["rank"]).array, index=frame.index, dtype="Int64").where(np.full(len(frame), _declared(job, mode)))
    saved = frame["saved_bytes"].astype("Int64").where(frame["measured"], formed)
    source = frame["measured"].map({True: "measured", False: "closed_form"}).astype(object).where(saved.notna(), None)
    return frame[_STEP].assign(saved_bytes=saved, saved_source=source)


def _declared(job: Job, mode: str) -> bool:
    """Whether the trace shows the mode that the run states, so that its closed forms are of this run."""
    return mode not in ("none", "unknown") and mode == str(recompute_mode(job) or "").split(":")[0]


def _formed(job: Job, layers: pd.DataFrame, mode: str) -> pd.Series:
    if not _declared(job, mode):
        return pd.Series(pd.NA, index=layers.index, dtype="Int64")
    forms = closed_forms(job).set_index("rank")
    kept = forms["activation_without_recompute_theory_bytes"].astype("Float64") / forms["layers"].astype("Float64")
    now = forms["activation_per_layer_theory_bytes"].astype("Float64") * forms["in_flight_microbatches"]
    saved = (kept - now).round().astype("Int64")
    # a number is of a numbered layer: embedding and head are not in the closed form
    return pd.Series(saved.reindex(layers["rank"]).array, index=layers.index, dtype="Int64").where(layers["layer_index"].notna())
