"""Which six numbers does a reader want first?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Card
from tracekit.report.rows import mean, metric, of_steps, span_word, steady_steps, table
from tracekit.report.sections.memory import CATEGORIES, fullest

Document = Mapping[str, Any]


#: A rank whose median step is longer than that of all by more than this share is named.
_SLOWER = 0.01


def cards(document: Document) -> tuple[Card, ...]:
    """The key numbers that this run has, at most six; a number that its run should have but cannot tell reads ``unknown``."""
    shares, utilized = _shares(document), _utilization(document)
    if utilized is not None:  # it says more than the share of compute, which stands in the headline too
        shares = (utilized, *(c for c in shares if c.label != "Compute"))
    made = (_step(document), *shares, _bubble(document), _memory(document), _recompute(document))
    return tuple(c for c in made if c is not None)


def _available(document: Document, name: str) -> bool:
    return bool(metric(document, name).get("available"))


def _step(document: Document) -> Card | None:
    if not _available(document, "step_time"):
        return None
    steps = steady_steps(document)
    rows = of_steps(table(document, "step_time", "steps"), steps)
    ranks = {r.get("rank") for r in rows}
    summary = metric(document, "step_time").get("summary") or {}
    median = summary.get("median_ns")
    detail = f"{'mean' if median is None else 'median'} of {fmt.plural(len(steps), 'step')}"
    if len(ranks) > 1:
        detail += f", {fmt.plural(len(ranks), 'rank')}"
        slowest = summary.get("slowest_rank_median_ns")
        if slowest is not None and median is not None and slowest > (1 + _SLOWER) * median:
            detail += f"; {fmt.duration(summary['slowest_rank_median_ns'])} on the slowest, rank {summary.get('slowest_rank')}"
    return Card("Step time", fmt.duration(mean(r.get("duration_ns") for r in rows) if median is None else median), detail)


def _shares(document: Document) -> tuple[Card, ...]:
    if not _available(document, "breakdown"):
        return ()
    rows = of_steps(table(document, "breakdown", "devices"), steady_steps(document))
    span = span_word(document)
    means = {k: mean(r.get(k) for r in rows) for k in ("span_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "graph_ns")}
    if means["compute_ns"] is None and means["graph_ns"]:
        whole = fmt.duration(means["graph_ns"])
        return (Card("Whole CUDA graphs", _ratio(means["graph_ns"], means["span_ns"]), f"of the {span}; {whole} per rank, not divided"),)
    silent = means["comm_ns"] == 0
    made = (
        Card("Compute", _ratio(means["compute_ns"], means["span_ns"]), f"of the {span}; {fmt.duration(means['compute_ns'])} per rank"),
        Card(
            "Exposed communication",
            _ratio(means["exposed_comm_ns"], means["span_ns"]),
            f"of the {span}; {fmt.duration(means['exposed_comm_ns'])} of {fmt.duration(means['comm_ns'])} is not hidden",
        ),
    )
    return made[:1] if silent else made


def _utilization(document: Document) -> Card | None:
    s = metric(document, "utilization").get("summary") or {}
    if s.get("mfu_ratio") is None:
        return None
    speed = f"{fmt.scalar('device_flops_per_s', s.get('device_flops_per_s'))} per device of {fmt.scalar('peak_flops_per_s', s.get('peak_flops_per_s'))}"
    return Card("MFU", fmt.percent(s["mfu_ratio"]), f"{speed} ({fmt.clean(s.get('peak_source') or fmt.UNKNOWN)}); HFU {fmt.percent(s.get('hfu_ratio'))}")


def _bubble(document: Document) -> Card | None:
    if not _available(document, "pipeline"):
        return None
    s = metric(document, "pipeline").get("summary") or {}
    schedule = f"{fmt.clean(s.get('schedule') or fmt.UNKNOWN)}, p = {s.get('pipeline_ranks')}, m = {s.get('microbatches')}"
    detail = f"closed form {fmt.percent(s.get('closed_form_bubble_ratio'))} ({schedule})"
    return Card("Pipeline bubble", fmt.percent(s.get("bubble_ratio")), detail)


def _memory(document: Document) -> Card | None:
    if not _available(document, "memory"):
        return None
    highest = fullest(document)
    if highest is None:
        return None
    peak = highest.get("allocated_peak_bytes")
    known = {c: highest.get(c) or 0 for c in CATEGORIES}
    most = max(known, key=lambda c: known[c])
    detail = f"rank {highest.get('rank')}; {_ratio(known[most], peak)} of it {'of unknown owner' if most == 'unknown_bytes' else fmt.label(most)}"
    theory = (metric(document, "memory").get("summary") or {}).get("activation_theory_bytes")
    detail += "" if theory is None else f"; {fmt.size(theory)} of activations in theory, {fmt.size(highest.get('activation_bytes'))} measured"
    return Card("Peak memory", fmt.size(peak), detail)


def _recompute(document: Document) -> Card | None:
    if not _available(document, "recompute"):
        return None
    s = metric(document, "recompute").get("summary") or {}
    if s.get("mode") == "none":
        return None
    theory = s.get("theory_overhead_of_step_compute_ratio")
    detail = f"on top of forward + backward ({fmt.clean(s.get('declared_mode') or s.get('mode') or 'mode unknown')}); {fmt.duration(s.get('recompute_ns'))}"
    detail += "" if theory is None else f"; {fmt.percent(theory)} in theory"
    return Card("Recomputation", fmt.percent(s.get("overhead_of_step_compute_ratio")), detail)


def _ratio(part: float | None, whole: float | None) -> str:
    return fmt.UNKNOWN if part is None or not whole else fmt.percent(part / whole)
