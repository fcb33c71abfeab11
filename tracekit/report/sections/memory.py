"""What fills the memory at its peak?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import Row, metric, table
from tracekit.report.sections.common import section

CATEGORIES = ["parameter_bytes", "gradient_bytes", "optimizer_state_bytes", "activation_bytes", "input_bytes", "temporary_bytes", "unknown_bytes"]


def peaks(document: Mapping[str, Any]) -> list[Row]:
    """One row per rank and device: the peak of the whole trace, or the highest step where no row spans it."""
    rows = table(document, "memory", "peaks")
    whole = [r for r in rows if r.get("step") is None] or list(rows)
    best: dict[tuple[Any, Any], Row] = {}
    for row in whole:
        key = (row.get("rank"), row.get("device"))
        if key not in best or (row.get("allocated_peak_bytes") or 0) > (best[key].get("allocated_peak_bytes") or 0):
            best[key] = row
    return sorted(best.values(), key=lambda r: -(r.get("allocated_peak_bytes") or 0)) if len(best) > 16 else list(best.values())


def memory(document: Mapping[str, Any]) -> Section:
    """The section of the metric ``memory``: the peak of each rank by category, then activations by layer on the fullest rank."""
    rows = peaks(document)
    grids = [
        grid("At the peak, per rank", rows, ["rank", "allocated_peak_bytes", "reserved_peak_bytes", *CATEGORIES], limit=16, left_out=", the fullest first")
    ]
    fullest = max(rows, key=lambda r: r.get("allocated_peak_bytes") or 0, default=None)
    if fullest is not None:
        of = [r for r in table(document, "memory", "by_layer") if r.get("rank") == fullest.get("rank") and r.get("step") == fullest.get("step")]
        columns = ["layer", *[c for c in dict.fromkeys(k for r in of for k in r) if c.endswith("_bytes")]]
        grids.append(grid(f"Activations alive at the peak of rank {fullest.get('rank')}", of, columns))
    theory = table(document, "memory", "theory")
    grids.append(grid("Beside the closed form, per rank", theory, _pairs(theory), limit=16))
    whole = metric(document, "memory").get("summary") or {}
    summary = {k: v for k, v in whole.items() if k not in CATEGORIES or k == "activation_bytes"}
    obtained = "measured: the allocator's events and the blocks that stood before the recording; the categories, unknown among them, sum to the peak exactly"
    return section(
        document,
        "memory",
        obtained,
        ("measured",),
        facts(summary, ("allocated_peak_bytes", "rank", "activation_bytes", "activation_theory_bytes")),
        tuple(grids),
    )


def _pairs(rows: Sequence[Row]) -> list[str]:
    """Columns of the table of closed forms: each measured one and the form beside it, where some rank has a form."""
    known = [c for c in dict.fromkeys(k for r in rows for k in r) if c.endswith("_theory_bytes") and any(r.get(c) is not None for r in rows)]
    whole, without = "activation_theory_bytes", "activation_without_recompute_theory_bytes"
    if all(r.get(without) == r.get(whole) for r in rows):
        known = [c for c in known if c != without]
    pairs = dict.fromkeys(c for form in sorted(known) for c in (form.replace("_theory", ""), form))
    held = [c for c in pairs if any(c in r for r in rows)]
    return ["rank", "in_flight_microbatches", *held] if held else []
