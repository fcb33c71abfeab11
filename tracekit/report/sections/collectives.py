"""What do the collectives of each layer cost, and is it waiting for the last rank or moving bytes?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import Row, group, steady_steps, table, total
from tracekit.report.sections.common import section
from tracekit.wording import span_of_layers

#: What sums over ranks, over collectives, or neither; their names alone do not say.
WORDS = {
    "instances": "collectives",
    "calls": "calls, all ranks",
    "p2p": "sends",
    "p2p_kernels": "kernels of sends and receives, all ranks",
    "p2p_kernel_total_ns": "kernels of sends and receives, all ranks",
    "peer_copies": "copies to other GPUs",
    "unknown_kinds": "kinds unknown",
    "unknown_sizes": "sizes unknown",
    "host_time_instances": "known to the host only",
    "host_time_total_ns": "host time of these",
    "host_wait_total_ns": "host waiting for collectives, all ranks",
    "nbytes": "bytes, all collectives",
    "wire_bytes": "ring bytes one member sends, summed over collectives",
    "transfer_total_ns": "transfer, all collectives",
    "wait_total_ns": "waiting, all ranks",
    "exposed_total_ns": "exposed, all ranks",
    "wait_share_ratio": "waiting, of the calls' time",
    "unknown_transfers": "transfers unknown",
    "unknown_waits": "waits unknown",
    "p2p_transfer_total_ns": "send to receive, transfer",
    "p2p_transfer_upper_bound_total_ns": "send to receive, at most",
    "p2p_recv_wait_total_ns": "receives posted before their send",
    "layer_from_fsdp_ratio": "layer from FSDP range",
    "layer_from_range_ratio": "layer from recorder range",
    "layer_from_module_ratio": "layer from module frame",
    "layer_from_sequence_ratio": "layer from sequence number",
    "layer_from_inferred_ratio": "layer inferred",
    "tp_layers": "tensor-parallel layers",
    "tp_variant": "their scheme",
    "tp_layers_that_differ": "layers unlike their siblings",
    "tp_recompute_per_layer_microbatch": "tp collectives issued again, per layer and microbatch",
    "tp_recompute_duration_per_layer_microbatch_ns": "time of these, per layer, microbatch and rank",
    "recompute_instances": "collectives issued again by recomputation",
    "recompute_total_ns": "time of these, all ranks",
    "tp_layer_wire_bytes": "ring bytes one member sends, tp inside layers",
}
#: Schemes of tensor parallelism as people say them.
SCHEMES = {
    "tensor_parallel": "tensor parallel",
    "sequence_parallel": "sequence parallel",
    "sequence_parallel_regather_1": "sequence parallel, one gather repeated in backward",
    "sequence_parallel_regather_2": "sequence parallel, two gathers repeated in backward",
}
VALUES = ["count", "nbytes", "wait_ns", "transfer_ns", "exposed_ns"]


def per_step(rows: list[Row] | tuple[Row, ...], steps: frozenset[int], keys: list[str]) -> tuple[list[Row], str]:
    """Sums per group and step, and whether they are per step or over the whole recording.

    Rows of the steady steps are summed and divided by the number of those steps; where a table has no rows by step,
    the rows of the whole recording (step null) stand as they are.
    """
    picked = [r for r in rows if r.get("step") in steps]
    over = len(steps) if picked else 1
    chosen = picked or [r for r in rows if r.get("step") is None]
    out: list[Row] = []
    for key, of in group(chosen, keys).items():
        sums = {v: total(r.get(v) for r in of) for v in VALUES if any(v in r for r in of)}
        out.append(dict(zip(keys, key, strict=True)) | {v: None if s is None else _whole(s / over) for v, s in sums.items()})
    return out, "per step" if picked else "all recorded steps together"


def collectives(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``collectives``: by kind, then by layer and direction."""
    steps = steady_steps(document)
    by_layer = tuple({**r, "layer": span_of_layers(r.get("layer"), r.get("layer_last"))} for r in table(document, "collectives", "by_layer"))
    layers, per = per_step(by_layer, steps, ["layer", "layer_index", "direction", "kind"])
    layers.sort(key=lambda r: (r.get("layer_index") is None, r.get("layer_index") or 0, r.get("layer") is None, str(r.get("layer")), str(r.get("direction"))))
    left_out = ""
    if len(layers) > 24:
        layers.sort(key=lambda r: -(r.get("exposed_ns") or 0))
        left_out = ", the most exposed first"
    parts, _ = per_step(tuple(table(document, "collectives", "by_sublayer")), steps, ["sublayer", "direction", "kind"])
    kinds = table(document, "collectives", "by_kind")
    # the whole of a call where it cannot be divided into waiting and transfer, and whose time it is
    more = [
        *(["time_source"] if any(r.get("time_source") == "host" for r in kinds) else []),
        *(["duration_ns"] if any(r.get("transfer_ns") is None for r in kinds) else []),
    ]
    columns = [
        c
        for c in ("step", "kind", "axis", "direction", *more, *VALUES, "algbw_gbps", "busbw_gbps", "link_gbps", "busbw_of_link_ratio")
        if any(r.get(c) is not None for r in kinds)
    ]
    kind_rows = [r for r in kinds if r.get("step") is None] or list(kinds)
    grids = (
        grid("By kind, all recorded steps together", kind_rows, [c for c in columns if c != "step"]),
        grid(f"By part of the layer, {per}", parts, ["sublayer", "direction", "kind", *VALUES]),
        grid(f"By layer and direction, {per}", layers, ["layer", "direction", "kind", *VALUES], left_out=left_out),
    )
    sources = {r.get("layer_source") for r in table(document, "collectives", "instances")}
    tags = ("measured", "inferred") if "inferred" in sources else ("measured",)
    obtained = (
        "measured: each collective is matched over its ranks; wait is until the last rank came, transfer from then on; "
        "waiting and exposed add the ranks, transfer adds the collectives"
    )
    if "inferred" in sources:
        obtained += "; some layers are inferred from repetition"
    summary = dict(document["metrics"]["collectives"].get("summary") or {})
    if summary.get("tp_variant"):
        summary["tp_variant"] = SCHEMES.get(summary["tp_variant"], summary["tp_variant"])
    if summary.get("p2p_transfer_total_ns") is not None:
        summary.pop("p2p_transfer_upper_bound_total_ns", None)
    return section(document, "collectives", obtained, tags, facts(summary, ("instances",), WORDS), grids)


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value
