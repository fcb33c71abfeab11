"""Where did the time go, in one sentence, and what can be done about the largest loss?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.report import format as fmt
from tracekit.report.rows import mean, metric, of_steps, steady_steps, table, total
from tracekit.report.sections.budget import mean_parts

#: Word in a part's name -> what helps; the first that matches counts.
ADVICE: tuple[tuple[str, str], ...] = (
    ("bubble", "more microbatches per step, or an interleaved or zero-bubble schedule, make it smaller."),
    ("wait", "ranks reach the collective at different times; look for the rank that comes last and why (uneven work, a slow rank, a late launch)."),
    ("transfer", "bytes are moved while nothing computes; overlap it with compute, send fewer bytes, or use a faster link or a smaller group."),
    ("exposed", "communication is not hidden under compute; overlap it, or send fewer bytes."),
    ("recompute", "recompute less (selective instead of full) if the memory allows."),
    ("cop", "copies run while nothing computes; use pinned memory and asynchronous copies."),
    ("launch", "the host does not feed the device; launch fewer, larger kernels (fusion, compilation, graphs)."),
    ("host", "the host does not feed the device; launch fewer, larger kernels (fusion, compilation, graphs)."),
    ("gap", "the device had nothing to do; look at what the host did between its operators."),
    ("idle", "the device had nothing to do; look at what the host did between its operators."),
    ("inefficien", "kernels run below the device's peak; larger matrices and fused kernels help."),
    ("unknown", "the traces do not tell what this time was; see the health findings and what is unknown below."),
)


def headline(document: Mapping[str, Any]) -> tuple[str, str]:
    """(where the time went, what to do), for any report; says so where it is unknown."""
    parts = mean_parts(document)
    whole = total(p["duration_ns"] for p in parts)
    if not whole:
        parts = _coarse(document)
        whole = total(p["duration_ns"] for p in parts)
    if not parts or not whole:
        return f"Where the time of a step went is unknown: {_reason(document)}.", ""
    largest = max(parts, key=lambda p: p["duration_ns"])
    losses = [p for p in parts if not is_compute(p["part"])]
    first = f"A step takes {fmt.duration(whole)}; most of it, {_share(largest, whole)}, is {fmt.part(largest['part'], largest['axis'])}."
    if not losses:
        return first, "Nothing but compute was found in it: faster kernels or more devices are what is left."
    loss = max(losses, key=lambda p: p["duration_ns"])
    name = fmt.part(loss["part"], loss["axis"])
    advice = next((text for word, text in ADVICE if word in str(loss["part"])), "see its section below.")
    if loss is largest:
        return first, f"To win it back: {advice}"
    return f"{first} The largest loss is {article(name)}, {_share(loss, whole)}.", f"To win it back: {advice}"


def _coarse(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same kind of rows from the breakdown alone, which knows no axes, no waiting and no bubble."""
    rows = of_steps(table(document, "breakdown", "devices"), steady_steps(document))
    columns = {"compute": "compute_ns", "exposed_comm": "exposed_comm_ns", "exposed_copies": "exposed_memcpy_ns", "idle": "idle_ns"}
    parts = [{"part": part, "axis": None, "duration_ns": mean(r.get(c) for r in rows)} for part, c in columns.items()]
    return [p for p in parts if p["duration_ns"]]


def article(name: str) -> str:
    """A part's name with the article that it needs in a sentence."""
    return f"the {name}" if name.endswith("bubble") else name


def is_compute(part: str) -> bool:
    """Whether a part of the budget is the work itself and no loss."""
    return part in ("compute", "ideal_compute", "forward_compute", "backward_compute", "optimizer_compute", "optimizer", "other_compute")


def _share(part: Mapping[str, Any], whole: float) -> str:
    return f"{fmt.duration(part['duration_ns'])} ({fmt.percent(part['duration_ns'] / whole)})"


def _reason(document: Mapping[str, Any]) -> str:
    found = metric(document, "budget")
    return fmt.clean(found.get("reason") or "no step was recorded", 300).rstrip(".")
