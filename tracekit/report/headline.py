"""Where did the time go, in one sentence, and what can be done about the largest loss?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.account_lines import WORTH
from tracekit.report.rows import mean, metric, of_steps, steady_steps, table, total
from tracekit.report.sections.budget import mean_parts
from tracekit.report.untimed import untimed
from tracekit.report.waterfall import account

#: Part of the budget -> what helps.
ADVICE: Mapping[str, str] = {
    "comm_wait": "Ranks reach the collective at different times; look for the rank that comes last and why (uneven work, a slow rank, a late launch).",
    "comm_transfer": "Bytes are moved while nothing computes; overlap them with compute, send fewer, or use a faster link or a smaller group.",
    "comm_unsplit": "Communication is not hidden under compute; give the traces of all ranks to tell waiting from moving bytes.",
    "exposed_comm": "Communication is not hidden under compute; the collectives below tell waiting from moving bytes.",
    "recompute": "Recompute less (selective instead of full) if the memory allows.",
    "copies": "Copies run while nothing computes; use pinned memory and asynchronous copies.",
    "input_wait": "The device waits for data; fetch them ahead: more workers, prefetching, pinned memory.",
    "launch_gap": "The host launches too late; launch fewer, larger kernels (fusion, compilation, CUDA graphs), and keep Python out of the step.",
    "kernel_inefficiency": "Kernels run below the peak; larger or fused ones, and fewer in 32 bits, come closer.",
    "idle": "The device had nothing to do; look at what the host does between its operators, or launch fewer, larger ones (fusion, compilation, graphs).",
}
#: Two numbers that differ by less than this share are said once.
_SAME = 0.02
_BUBBLE = "More microbatches per step, or an interleaved or zero-bubble schedule, make it smaller."
_BUBBLE_ZB = "The schedule already fills it with weight gradients; more microbatches per step and evenly cut stages make it smaller."
#: Schedules whose backward is split.
_SPLIT = frozenset({"zb_h1", "zb_h2", "interleaved_zb", "zbv", "dualpipev"})


def headline(document: Mapping[str, Any]) -> tuple[str, str]:
    """(where the time went, what to do), for any report; says so where it is unknown.

    The bubble of a pipeline may lie in several parts of the budget (collectives run meanwhile), so it is compared as a whole with the
    largest of them. What could come back of the largest loss at best follows the advice, and where most could.
    """
    parts = mean_parts(document)
    whole = total(p["duration_ns"] for p in parts)
    if not whole:
        parts = _coarse(document)
        whole = total(p["duration_ns"] for p in parts)
    if not parts or not whole:
        said = untimed(document)
        if said is not None and not (document.get("run") or {}).get("device"):
            return said
        return f"Where the time of a step went is unknown: {_reason(document)}.", said[0] if said else ""
    graphs = total(p["duration_ns"] for p in parts if p["part"] == "graph") or 0
    work = (total(p["duration_ns"] for p in parts if p["part"] in fmt.WORK) or 0) - graphs
    takes = (
        f"A step takes {fmt.duration(whole)} on average"
        if steady_steps(document)
        else f"The recording, in which no step is marked, spans {fmt.duration(whole)} per rank"
    )
    again = total(p["duration_ns"] for p in parts if p["part"] == "recompute") or 0
    first = f"{takes}, of which {_share(work + again, whole)} is compute" + (f", {fmt.duration(again)} of it recomputation." if again else ".")
    if graphs:
        first = f"{takes}, of which {_share(graphs, whole)} is busy with whole CUDA graphs: how much of it is compute is unknown."
    first += _utilization(document)
    losses = [p for p in parts if p["part"] not in fmt.WORK]
    if not losses:
        return first, "" if graphs else "Nothing but compute was found in it: faster kernels or more devices are what is left."
    loss = max(losses, key=lambda p: p["duration_ns"])
    pipeline = metric(document, "pipeline").get("summary") or {}
    if (pipeline.get("bubble_ns") or 0) >= loss["duration_ns"] or loss["axis"] == "pp" or loss["part"] == "bubble":
        bubble = pipeline.get("bubble_ns")
        share = (
            f"{fmt.duration(bubble)} per rank ({fmt.percent(pipeline.get('bubble_ratio'))} of the pipeline's window{_alone(parts, bubble)})"
            if bubble
            else _share(loss["duration_ns"], whole)
        )
        advice = _BUBBLE_ZB if str(pipeline.get("schedule")) in _SPLIT else _BUBBLE
        return f"{first} The largest loss is the pipeline bubble: {share}.", _with_return(document, advice, "bubble", None)
    name = fmt.part(loss["part"], loss["axis"])
    advice = ADVICE.get(loss["part"], "See the step budget below.")
    return f"{first} The largest loss is {name}: {_share(loss['duration_ns'], whole)}.", _with_return(document, advice, loss["part"], loss["axis"])


def _alone(parts: list[dict[str, Any]], bubble: float) -> str:
    """How much of a bubble stands as such in the account, where that is less: the account counts what runs in it as what it is.

    Nothing where the account has no such part: it is coarser then, and tells of no bubble at all.
    """
    own = total(p["duration_ns"] for p in parts if p["part"] == "bubble") or 0
    return "" if not own or own > (1 - _SAME) * bubble else f"; the step's account counts {fmt.duration(own)} of it, the rest as what runs meanwhile"


def _utilization(document: Mapping[str, Any]) -> str:
    """MFU, where it is known."""
    ratio = (metric(document, "utilization").get("summary") or {}).get("mfu_ratio")
    return "" if ratio is None else f" MFU is {fmt.percent(ratio)}."


def _with_return(document: Mapping[str, Any], advice: str, part: str, axis: str | None) -> str:
    """The advice, what could come back of that part at best, and where more could."""
    rows = [row for row in account(document) if (row.get("recoverable_ns") or 0) >= WORTH * (row["duration_ns"] / (row.get("of_step_ratio") or 1))]
    if not rows:
        return advice
    own = next((row for row in rows if (row.get("part"), row.get("axis")) == (part, axis)), None)
    most = max(rows, key=lambda row: row["recoverable_ns"])
    if own is not None:
        advice += f" At best {_back(own)} could come back{_if(own)}."
    if most is not own:
        advice += f" {'More' if own is not None else 'Most'} could come back from {fmt.part(most['part'], most['axis'])}: {_back(most)}{_if(most)}."
    return advice


def _back(row: Mapping[str, Any]) -> str:
    share = row["recoverable_ns"] / row["duration_ns"] * row["of_step_ratio"] if row.get("of_step_ratio") else None
    return fmt.duration(row["recoverable_ns"]) + ("" if share is None else f" ({fmt.percent(share)} of the step)")


def _if(row: Mapping[str, Any]) -> str:
    return f", {fmt.clean(row['what'], 200)}" if row.get("what") else ""


def _coarse(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same kind of rows from the breakdown alone, which knows no axes, no waiting and no bubble."""
    rows = of_steps(table(document, "breakdown", "devices"), steady_steps(document))
    columns = {"compute": "compute_ns", "exposed_comm": "exposed_comm_ns", "copies": "exposed_memcpy_ns", "idle": "idle_ns"}
    parts = [{"part": part, "axis": None, "duration_ns": mean(r.get(c) for r in rows)} for part, c in columns.items()]
    return [p for p in parts if p["duration_ns"]]


def _share(part: float, whole: float) -> str:
    return f"{fmt.duration(part)} ({fmt.percent(part / whole)})"


def _reason(document: Mapping[str, Any]) -> str:
    found = metric(document, "budget")
    return fmt.clean(found.get("reason") or "no step was recorded", 300).rstrip(".")
