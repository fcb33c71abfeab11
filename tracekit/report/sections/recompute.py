"""What does activation recomputation cost?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import mean_rows, metric, of_steps, steady_steps, table
from tracekit.report.sections.common import section, told_by_layer

FIRST = [
    "mode", "recompute_ns", "overhead_of_step_compute_ratio", "theory_overhead_of_step_compute_ratio", "overhead_of_backward_ratio",
    "reissued_collective_ns", "saved_bytes", "saved_source", "recompute_per_saved_gib_ns",
]  # fmt: skip
#: What to call a scalar whose name alone does not say what it counts.
WORDS = {
    "saved_bytes": "activations saved at the peak of allocated memory", "saved_source": "how that is known",
    "recompute_per_saved_gib_ns": "time repeated per GiB saved",
    "activation_saved_bytes": "closed form without recomputation, less the measured activation peak",
}  # fmt: skip
SOURCES = {"measured": "measured against layers that are kept", "closed_form": "closed forms of the two modes"}
PER_GIB = "time repeated per GiB saved_ns"
VALUES = ["forward_ns", "backward_ns", "recompute_ns"]
RATIOS = ["overhead_of_step_compute_ratio", "overhead_of_backward_ratio"]
SAVED = ["saved_bytes", "recompute_per_saved_gib_ns"]
#: What the summary holds twice, or under a longer name.
LEFT_OUT = ("declared_mode", "activation_peak_bytes")


def recompute(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``recompute``: the overhead, and each rank's share."""
    steps = steady_steps(document)
    rows = mean_rows(of_steps(table(document, "recompute", "ranks"), steps), ["rank"], VALUES)
    for row in rows:
        row |= _ratios(row)
    layers = of_steps(table(document, "recompute", "layers"), steps)
    keys = [k for k in ("layer", "layer_index") if any(k in r for r in layers)]
    values = [k for k in (*VALUES, "forward_runs", "recompute_runs", *SAVED) if any(r.get(k) is not None for r in layers)]
    by_layer = sorted(mean_rows(layers, keys, values), key=lambda r: (r.get("layer_index") is None, r.get("layer_index") or 0))
    by_layer = [{PER_GIB if k == "recompute_per_saved_gib_ns" else k: v for k, v in r.items()} for r in by_layer]
    shown = [PER_GIB if k == "recompute_per_saved_gib_ns" else k for k in values]
    parts = [r for r in of_steps(table(document, "recompute", "sublayers"), steps) if r.get("sublayer") is not None]
    by_part = mean_rows(parts, ["sublayer"], VALUES)
    for row in by_part:
        row |= _ratios(row)
    theory = [r for r in table(document, "recompute", "modes") if r.get("activation_per_layer_theory_bytes") is not None]
    grids = (
        grid("Per rank, mean step", rows, ["rank", *VALUES, *RATIOS], limit=16),
        grid("Per layer, mean over ranks and steps", by_layer, ["layer", *shown]),
        grid("Per sublayer, mean over layers, ranks and steps", by_part, ["sublayer", *VALUES, *RATIOS]),
        grid(
            "On paper: what a layer keeps of a microbatch in each mode", theory, ["mode", "tensor_parallel", "as_it_ran", "activation_per_layer_theory_bytes"]
        ),
    )
    whole = metric(document, "recompute").get("summary") or {}
    # one number of what was saved: that of the time beside it, or where there is none the other
    left_out = {*LEFT_OUT, "activation_saved_bytes" if whole.get("saved_bytes") is not None else "saved_source"}
    summary = {k: v for k, v in whole.items() if k not in left_out} | {"mode": whole.get("declared_mode") or whole.get("mode")}
    if "saved_source" in summary:
        summary["saved_source"] = SOURCES.get(str(summary["saved_source"]), summary["saved_source"])
    obtained = "measured: forward operators that ran again inside the backward"
    if whole.get("saved_source") == "closed_form":
        obtained += "; what that saves follows from closed forms"
    return section(document, "recompute", *told_by_layer(document, obtained), facts(summary, FIRST, WORDS), grids)


def _ratios(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The two overheads of a mean step: ratios of its sums, as in the summary, and no means of ratios."""
    forward, backward, again = (row.get(c) for c in VALUES)
    if forward is None or backward is None or again is None:
        return dict.fromkeys(RATIOS)
    return {name: again / base if base else None for name, base in zip(RATIOS, (forward + backward, backward), strict=True)}
