"""What fills the memory at its peak?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import Row, metric, table
from tracekit.report.sections.common import section, told_by_layer

_SNAPSHOT = [
    "rank", "device", "records", "frees_without_alloc", "allocated_before_bytes", "allocated_peak_bytes", "rounded_peak_bytes", "active_peak_bytes",
    "reserved_peak_bytes", "inactive_end_bytes", "largest_inactive_end_bytes", "split_inactive_end_bytes",
    "expandable_segments",
]  # fmt: skip
_IN_FLIGHT = [
    "stage", "rank", "step", "microbatches", "in_flight_microbatches", "in_flight_theory_microbatches", "in_flight_order_microbatches", "activation_peak_bytes",
]  # fmt: skip
CATEGORIES = ["parameter_bytes", "gradient_bytes", "optimizer_state_bytes", "activation_bytes", "input_bytes", "temporary_bytes", "unknown_bytes"]


def peaks(document: Mapping[str, Any]) -> list[Row]:
    """One row per rank and device: the peak of the whole trace, or the highest step where no row spans it."""
    rows = table(document, "memory", "peaks")
    whole = [r for r in rows if r.get("step") is None] or list(rows)
    best: dict[tuple[Any, ...], Row] = {}
    for row in whole:
        key = tuple(row.get(k) for k in ("rank", "device_type", "device"))
        if key not in best or (row.get("allocated_peak_bytes") or 0) > (best[key].get("allocated_peak_bytes") or 0):
            best[key] = row
    return sorted(best.values(), key=lambda r: -(r.get("allocated_peak_bytes") or 0)) if len(best) > 16 else list(best.values())


def fullest(document: Mapping[str, Any]) -> Row | None:
    """The row of the device with the highest peak: of the GPUs, where there are any."""
    rows = peaks(document)
    own = [r for r in rows if r.get("device_type") == "gpu"] or rows
    return max(own, key=lambda r: r.get("allocated_peak_bytes") or 0, default=None)


def memory(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``memory``: the peak of each rank by category, then activations by layer on the fullest rank."""
    rows, most = peaks(document), fullest(document)
    several = len({r.get("rank") for r in rows}) < len(rows)
    where = ["rank", "device_type", "device"] if several else ["rank"]
    title = "At the peak, per rank and device" if several else "At the peak, per rank"
    grids = [grid(title, rows, [*where, "allocated_peak_bytes", "reserved_peak_bytes", *CATEGORIES], limit=16, left_out=", the fullest first")]
    if most is not None:
        same = [k for k in ("rank", "device_type", "device", "step") if k in most]
        of = [r for r in table(document, "memory", "by_layer") if all(r.get(k) == most.get(k) for k in same if k in r)]
        columns = ["layer", *[c for c in dict.fromkeys(k for r in of for k in r) if c.endswith("_bytes")]]
        grids.append(grid(f"Activations alive at the peak of rank {most.get('rank')}", of, columns))
        owned = [r for r in table(document, "memory", "owners") if all(r.get(k) == most.get(k) for k in same if k in r)]
        columns = ["nbytes", "blocks", "category", "layer", "sublayer", "microbatch", "maker", "since", "rule"]
        grids.append(
            grid(f"What was alive at the peak of rank {most.get('rank')}, by owner and maker", owned, columns, limit=16, left_out=", the largest first")
        )
        grids.append(grid("How owners were told", _rules(document, owned), ["rule", "told by"]))
    held = [r for r in table(document, "memory", "in_flight") if r.get("stage") is not None]
    grids.append(grid("Microbatches in flight, per stage and step", held, _IN_FLIGHT, limit=16))
    snapshots = table(document, "memory", "snapshots")
    grids.append(grid("CUDA memory snapshots, per rank and device", snapshots, _SNAPSHOT, limit=16))
    theory = table(document, "memory", "theory")
    grids.append(grid("Beside the closed form, per rank", theory, _pairs(theory), limit=16))
    whole = metric(document, "memory").get("summary") or {}
    summary = {k: v for k, v in whole.items() if k not in CATEGORIES or k == "activation_bytes"}
    obtained = "measured: the allocator's events and the blocks that stood before the recording; the categories, unknown among them, sum to the peak exactly"
    stacks = any(str(r.get("rule")).startswith("stack_") for r in table(document, "memory", "owners"))
    if stacks:
        obtained += "; owners of a snapshot's blocks are inferred from the stacks of its records"
    obtained, tags = told_by_layer(document, obtained)
    return section(
        document,
        "memory",
        obtained,
        tuple(dict.fromkeys((*tags, "inferred"))) if stacks else tags,
        facts(summary, ("allocated_peak_bytes", "rank", "activation_bytes", "activation_theory_bytes")),
        tuple(grids),
    )


def _rules(document: Mapping[str, Any], owned: Sequence[Row]) -> list[Row]:
    """The rules that decided something at the peak, in words."""
    used = {r.get("rule") for r in owned}
    return [{"rule": r.get("code"), "told by": r.get("says")} for r in table(document, "memory", "rules") if r.get("code") in used]


def _pairs(rows: Sequence[Row]) -> list[str]:
    """Columns of the table of closed forms: each measured one and the form beside it, where some rank has a form."""
    known = [c for c in dict.fromkeys(k for r in rows for k in r) if c.endswith("_theory_bytes") and any(r.get(c) is not None for r in rows)]
    whole, without = "activation_theory_bytes", "activation_without_recompute_theory_bytes"
    if all(r.get(without) == r.get(whole) for r in rows):
        known = [c for c in known if c != without]
    pairs = dict.fromkeys(c for form in sorted(known) for c in (form.replace("_theory", ""), form))
    held = [c for c in pairs if any(c in r for r in rows)]
    return ["rank", "in_flight_microbatches", *held] if held else []
