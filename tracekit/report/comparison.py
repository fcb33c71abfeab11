"""How do several runs stand beside each other, and beside theory? One row per run, every figure next to its closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.report import format as fmt
from tracekit.report.headline import headline
from tracekit.report.parts import Grid
from tracekit.report.rows import mean, metric, of_steps, steady_steps, table
from tracekit.report.sections.collectives import per_step
from tracekit.report.sections.common import emulated
from tracekit.report.sections.memory import peaks

Document = Mapping[str, Any]

#: In a cell, where a run has no such thing at all: no pipeline, nothing recomputed.
NONE = "–"


@dataclass(frozen=True)
class Compared:
    """One run of a comparison: its name, where its report is, and what to read in it first."""

    name: str
    link: str
    document: Document


def compare(runs: Sequence[Compared]) -> tuple[Grid, ...]:
    """The runs as tables: time, communication, memory and recomputation. Cells hold measured figures, theory beside them."""
    return (_time(runs), _communication(runs), _memory(runs))


def sentences(runs: Sequence[Compared]) -> list[tuple[str, str, str]]:
    """(name, link, where its time went) of each run."""
    return [(r.name, r.link, headline(r.document)[0]) for r in runs]


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
    header = ("run", "ranks", "compute", "step", "exposed comm", "bubble, measured", "bubble, closed form", "pipeline window")
    return Grid("Time", header, tuple(rows), (False, True, False, True, True, True, True, True))


def _communication(runs: Sequence[Compared]) -> Grid:
    rows = []
    for r in runs:
        if not metric(r.document, "collectives").get("available"):
            continue
        found, per = per_step(tuple(table(r.document, "collectives", "by_layer")), steady_steps(r.document), ["kind", "layer", "direction"])
        layers = [x for x in found if x.get("layer") is not None]
        count = len({_layer(x["layer"]) for x in layers if _layer(x["layer"]) is not None})
        for kind in dict.fromkeys(x["kind"] for x in layers):
            of = [x for x in layers if x["kind"] == kind and _layer(x["layer"]) is not None]
            if of and count and per == "per step":
                microbatches = _microbatches(r.document)
                each = sum(x["count"] or 0 for x in of) / count / microbatches if microbatches else None
                ways = " + ".join(f"{_digits(sum(x['count'] or 0 for x in of if x['direction'] == d) / count / microbatches)} {fmt.clean(d)}" for d in dict.fromkeys(x["direction"] for x in of)) if microbatches else ""
                rows.append((r.name, fmt.clean(kind), fmt.UNKNOWN if each is None else _digits(each), ways, *_costs(of)))
    header = ("run", "kind", "per layer and microbatch", "of which", "bytes per step", "waiting", "transfer")
    return Grid("Collectives inside the layers", header, tuple(rows), (False, False, True, False, True, True, True))


def _costs(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    def add(column: str) -> float | None:
        values = [r.get(column) for r in rows]
        return None if any(v is None for v in values) else sum(v for v in values if v is not None)

    return fmt.size(add("nbytes")), fmt.duration(add("wait_ns")), fmt.duration(add("transfer_ns"))


def _memory(runs: Sequence[Compared]) -> Grid:
    rows = []
    for r in runs:
        again = metric(r.document, "recompute")
        s = again.get("summary") or {}
        top = max(peaks(r.document), key=lambda x: x.get("allocated_peak_bytes") or 0, default={})
        memory = metric(r.document, "memory").get("summary") or {}
        done = bool(again.get("available")) and s.get("recompute_ns") != 0
        rows.append(
            (
                r.name,
                fmt.size(top.get("allocated_peak_bytes")),
                fmt.size(top.get("activation_bytes")),
                fmt.size(memory.get("closed_form_activation_bytes")),
                fmt.clean((r.document.get("run") or {}).get("config", {}).get("recompute") or s.get("mode") or NONE),
                fmt.percent(s.get("overhead_of_step_compute_ratio")) if done else NONE,
                fmt.percent(s.get("closed_form_overhead_of_step_compute_ratio")) if done else NONE,
            )
        )
    header = ("run", "memory peak", "activations at it", "activations, closed form", "recompute", "overhead, measured", "overhead, closed form")
    return Grid("Memory and recomputation (fullest rank)", header, tuple(rows), (False, True, True, True, False, True, True))


def step_ns(document: Document) -> float | None:
    """Median steady step, ns: the metric's own figure, else the mean of its rows."""
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


def _microbatches(document: Document) -> int | None:
    found = ((document.get("run") or {}).get("config") or {}).get("training", {}).get("microbatches")
    return found if isinstance(found, int) and found > 0 else None


def _layer(layer: object) -> str | None:
    """``layers.3`` of ``layers.3.attention``; None for what stands outside the layers."""
    parts = str(layer).split(".")
    return ".".join(parts[:2]) if len(parts) > 1 and parts[1].isdigit() else None


def _digits(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"
