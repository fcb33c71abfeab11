"""How do several runs stand beside each other, and beside theory? One row per run, every figure next to its closed form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit import wording as fmt
from tracekit.report.headline import headline
from tracekit.report.parts import Card, Grid
from tracekit.report.rows import mean, metric, of_steps, steady_steps, table, total
from tracekit.report.sections.collectives import per_step
from tracekit.report.sections.common import emulated

Document = Mapping[str, Any]

#: In a cell, where a run has no such thing at all: no pipeline, nothing recomputed.
NONE = "–"
_KINDS = ("all_reduce", "all_gather", "reduce_scatter")
_LAYER = re.compile(r"\.\d+(\.|$)")


@dataclass(frozen=True)
class Compared:
    """One run of a comparison: its name, where its report is, and what to read in it first."""

    name: str
    link: str
    document: Document


def tables(runs: Sequence[Compared]) -> tuple[Grid, ...]:
    """The runs as tables: time, communication, memory and recomputation. Cells hold measured figures, theory beside them."""
    return (_time(runs), _communication(runs), _memory(runs))


def sentences(runs: Sequence[Compared]) -> list[tuple[str, str, str]]:
    """(name, link, where its time went) of each run."""
    return [(r.name, r.link, headline(r.document)[0]) for r in runs]


def cards(runs: Sequence[Compared]) -> tuple[Card, ...]:
    """What each run was made to show, as one number: collectives per layer, the bubble, the cost of recomputation."""
    return tuple(c for r in runs for c in (_bubble_card(r) or _collectives_card(r), _recompute_card(r)) if c is not None)


def _bubble_card(run: Compared) -> Card | None:
    found = metric(run.document, "pipeline")
    s = found.get("summary") or {}
    if not found.get("available"):
        return None
    detail = f"closed form {fmt.percent(s.get('closed_form_bubble_ratio'))}; window {fmt.duration(s.get('window_ns'))}"
    return Card(f"{run.name}: pipeline bubble", fmt.percent(s.get("bubble_ratio")), detail + (" (emulated compute)" if emulated(run.document) else ""))


def _collectives_card(run: Compared) -> Card | None:
    s = metric(run.document, "collectives").get("summary") or {}
    names = {(k, d): f"tp_{k}_{d}_per_layer_microbatch" for k in _KINDS for d in ("forward", "backward")}
    counts = {key: s[name] for key, name in names.items() if name in s}
    if not any(counts.values()):
        return None
    ways = ", ".join(f"{fmt.scalar('', n)} {fmt.label(k)} {d}" for (k, d), n in counts.items() if n)
    return Card(f"{run.name}: collectives per layer", fmt.scalar("", total(counts.values())), f"per microbatch: {ways}")


def _recompute_card(run: Compared) -> Card | None:
    found = metric(run.document, "recompute")
    s = found.get("summary") or {}
    if not found.get("available") or s.get("mode") == "none":
        return None
    detail = (
        f"of compute, {fmt.percent(s.get('theory_overhead_of_step_compute_ratio'))} in theory; saves {fmt.size(s.get('activation_saved_bytes'))} of activations"
    )
    return Card(f"{run.name}: costs", fmt.percent(s.get("overhead_of_step_compute_ratio")), detail)


def _time(runs: Sequence[Compared]) -> Grid:
    rows = []
    for r in runs:
        pipe = metric(r.document, "pipeline")
        summary = pipe.get("summary") or {}
        piped = pipe.get("available")
        ratio = _breakdown(r.document, "exposed_comm_ns")
        rows.append(
            (
                r.name,
                _ranks(r.document),
                "emulated" if emulated(r.document) else "computed",
                fmt.duration(step_ns(r.document)),
                fmt.percent(ratio),
                fmt.percent(summary.get("bubble_ratio")) if piped else NONE,
                fmt.percent(summary.get("closed_form_bubble_ratio")) if piped else NONE,
                fmt.duration(summary.get("window_ns")) if piped else NONE,
            )
        )
    header = ("run", "ranks", "compute", "step, median over ranks", "exposed comm", "bubble, measured", "bubble, closed form", "pipeline window")
    return Grid("Time", header, tuple(rows), (False, True, False, True, True, True, True, True))


def _communication(runs: Sequence[Compared]) -> Grid:
    rows = []
    for r in runs:
        found = metric(r.document, "collectives")
        summary = found.get("summary") or {}
        if not found.get("available"):
            continue
        costs, per = per_step(tuple(table(r.document, "collectives", "by_layer")), steady_steps(r.document), ["kind", "layer"])
        for kind in _KINDS:
            counts = {d: summary.get(f"tp_{kind}_{d}_per_layer_microbatch") for d in ("forward", "backward")}
            of = [x for x in costs if x["kind"] == kind and _LAYER.search(str(x["layer"]))]
            if any(counts.values()) and of:
                each = total(counts.values())
                ways = " + ".join(f"{fmt.scalar('', n)} {d}" for d, n in counts.items())
                rows.append((r.name, kind, fmt.scalar("", each), ways, *_costs(of if per == "per step" else [])))
    header = ("run", "kind", "per layer and microbatch", "of which", "bytes per step, all groups", "waiting", "transfer")
    return Grid("Tensor-parallel collectives inside the layers", header, tuple(rows), (False, False, True, False, True, True, True))


def _costs(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    sums = {c: total(r.get(c) for r in rows) for c in ("nbytes", "wait_ns", "transfer_ns")}
    return fmt.size(sums["nbytes"]), fmt.duration(sums["wait_ns"]), fmt.duration(sums["transfer_ns"])


def _memory(runs: Sequence[Compared]) -> Grid:
    rows = []
    for r in runs:
        again = metric(r.document, "recompute")
        s = again.get("summary") or {}
        memory = metric(r.document, "memory").get("summary") or {}
        mode = s.get("mode")
        done = bool(again.get("available")) and mode != "none"
        rows.append(
            (
                r.name,
                fmt.size(memory.get("allocated_peak_bytes")),
                fmt.size(memory.get("activation_bytes")),
                fmt.size(memory.get("activation_theory_bytes")),
                fmt.clean(s.get("declared_mode") or mode or fmt.UNKNOWN),
                fmt.percent(s.get("overhead_of_step_compute_ratio")) if done else NONE,
                fmt.percent(s.get("theory_overhead_of_step_compute_ratio")) if done else NONE,
                fmt.size(s.get("activation_saved_bytes")) if done else NONE,
            )
        )
    header = (
        "run",
        "memory peak",
        "activations at it",
        "activations, closed form",
        "recompute",
        "overhead of compute",
        "overhead, theory",
        "activations saved",
    )
    return Grid("Memory and recomputation (fullest rank)", header, tuple(rows), (False, True, True, True, False, True, True, True))


def step_ns(document: Document) -> float | None:
    """Median of the steady steps of all ranks, ns: the metric's own figure, else the mean of its rows. Not that of the slowest rank."""
    summary = metric(document, "step_time").get("summary") or {}
    if summary.get("median_ns") is not None:
        return float(summary["median_ns"])
    return mean(r.get("duration_ns") for r in of_steps(table(document, "step_time", "steps"), steady_steps(document)))


def _breakdown(document: Document, column: str) -> float | None:
    rows = of_steps(table(document, "breakdown", "devices"), steady_steps(document))
    part, span = mean(r.get(column) for r in rows), mean(r.get("span_ns") for r in rows)
    return None if part is None or not span else part / span


def _ranks(document: Document) -> str:
    run = document.get("run") or {}
    mesh = " × ".join(f"{fmt.clean(k)} {v}" for k, v in (run.get("mesh") or {}).items() if v != 1)
    return f"{len(run.get('ranks') or ())}" + (f" ({mesh})" if mesh else "")
