"""What do these traces say? ``analyze(paths)`` reads, joins and measures; the Analysis is what every use shares."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysed import Analysed
from tracekit.ingest import Ingested, Progress, ingest
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.link_speed import link_speeds
from tracekit.metrics import METRICS, Metric, Result
from tracekit.model_sizes import ModelSizes, given_sizes
from tracekit.reading import DEFAULT, Reading
from tracekit.schema import REPORT_SCHEMA
from tracekit.vocabulary import Severity


def analyze(
    paths: str | Path | Sequence[str | Path],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    reading: Reading = DEFAULT,
    capture: int | None = None,
    link_gbps: float | str | Mapping[str, float] | None = None,
    model: ModelSizes | Mapping[str, Any] | None = None,
) -> Analysis:
    """Analyse the traces of one job.

    Args:
        paths: a run directory, trace files, archives, or folders that hold them; all of one job.
        workers: processes to read with; None picks by the size of the input.
        progress: called as ``progress(done, total, what)`` after each rank.
        reading: caps against hostile files, and whether to salvage damaged ones.
        capture: use only the captures (profiler cycles) of this number; None: all.
        link_gbps: speed of the links, GB/s (1e9) of bus bandwidth per GPU: one number, or one per mesh axis (``{"tp": 450.0, "dp": 50.0}``).
        model: sizes of the model and its step, and the peak of a device, above those of ``run.json`` (``model_sizes.ModelSizes``, or its names and values).

    Returns:
        The analysis; metrics are computed when they are first asked for.

    Raises:
        InputError: a path is missing, no trace, or damaged.
        UsageError: the paths are of several jobs, a link speed or a model size is none.

    Example:
        >>> report = analyze("runs/tp").to_dict()  # doctest: +SKIP
        >>> report["metrics"]["collectives"]["summary"]  # doctest: +SKIP
    """
    speeds, sizes = link_speeds(link_gbps), given_sizes(model)
    listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
    ingested = ingest(listed, workers=workers, progress=progress, reading=reading, capture=capture)
    return of_ranks(ingested, speeds, sizes)


def of_ranks(ingested: Ingested, link_gbps: Mapping[str, float] | None = None, model: ModelSizes | None = None) -> Analysis:
    """The analysis of ranks that were read already; arguments as :func:`analyze` makes them of its own.

    Raises:
        UsageError: the ranks are of several jobs.
    """
    job = build(ingested.ranks, model)
    return Analysis(replace(job, findings=(*ingested.findings, *job.findings), link_gbps=link_gbps or {}))


@dataclass(frozen=True)
class Analysis:
    """The metrics of one job, computed once each.

    Attributes:
        job: what is known of all ranks.
    """

    job: Job
    _results: dict[str, Result] = field(default_factory=dict, repr=False, compare=False)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric there is, in the order of the report."""
        return METRICS

    @property
    def steady_steps(self) -> frozenset[int]:
        """The steps over which means are taken: complete on every rank, and no warm-up."""
        return self.job.steady_steps

    def result(self, name: str) -> Result:
        """A metric's answer.

        Raises:
            KeyError: there is no metric of that name.
        """
        if name not in self._results:
            metric = next((m for m in METRICS if m.name == name), None)
            if metric is None:
                raise KeyError(f"no metric {name!r}; there are {', '.join(m.name for m in METRICS)}")
            self._results[name] = _labelled(metric.compute(self.job), self.job.emulated)
        return self._results[name]

    def health(self) -> dict[str, Any]:
        """Verdict and findings; comes before any number.

        ``unusable`` when an error stands, ``warnings`` when only warnings do, else ``ok``.
        """
        own = self.job.table("findings")
        rows = records(own.drop(columns=["capture"])) + [dict(f) for f in self.job.findings]
        order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
        columns: dict[str, Any] = dict.fromkeys(("code", "severity", "message", "file", "rank", "offset", "count"))
        rows = sorted(({**columns, **row} for row in rows), key=lambda row: order.index(row["severity"]))
        worst = {r["severity"] for r in rows}
        verdict = "unusable" if Severity.ERROR in worst else "warnings" if Severity.WARNING in worst else "ok"
        return {"verdict": verdict, "findings": rows}

    def run(self) -> dict[str, Any]:
        """What ran: ranks, world size, backend, device, mesh, steps, sources, and ``run.json`` where there is one."""
        metas = [facts.meta for facts in self.job.ranks.values()]
        steps = self.job.table("steps")
        return {
            "ranks": sorted({rank for rank, _ in self.job.ranks}),
            "captures": sorted({capture for _, capture in self.job.ranks}),
            "world_size": self.job.world_size,
            "backend": next((m.backend for m in metas if m.backend), None),
            "device": next((m.device_type for m in metas), None),
            "device_names": sorted({name for m in metas for name in m.device_names}),
            "mesh": dict(self.job.mesh),
            "steps": sorted({int(s) for s in steps["step"]}),
            "emulated": self.job.emulated,
            "source": [m.files[0] for m in metas if m.files],
            "formats": dict(Counter(_format(*pair) for m in metas for pair in zip(m.formats, m.packings, strict=True))),
            "config": plain(dict(self.job.run)),
        }

    def to_dict(self) -> dict[str, Any]:
        """The report document (schema ``tracekit.report/1``): only str, int, float, bool, None, lists and dicts."""
        return document_of(self)

    def to_json(self, indent: int | None = None) -> str:
        """The report document as strict JSON (no NaN, no Infinity)."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)


def document_of(analysis: Analysed) -> dict[str, Any]:
    """The report document of an analysis, be it stored or just made."""
    from tracekit import __version__

    metrics = {}
    for metric in analysis.metrics:
        result = analysis.result(metric.name)
        metrics[metric.name] = {
            "title": metric.title,
            "question": metric.question,
            "definition": metric.definition,
            "available": result.available,
            "reason": result.reason,
            "notes": list(result.notes),
            "summary": plain(dict(result.summary)),
            "tables": {name: records(table) for name, table in result.tables.items()},
        }
    return {"schema": REPORT_SCHEMA, "tracekit": __version__, "health": plain(analysis.health()), "run": analysis.run(), "metrics": metrics}


def _format(name: str, packing: str) -> str:
    """A format as the report names it: ``Kineto trace (zstd)``."""
    return name if packing == "plain" else f"{name} ({packing})"


def _labelled(result: Result, emulated: bool) -> Result:
    """The result with a note that its times follow from emulated compute, where they do and it does not say so itself."""
    if not emulated or not result.available or any("emulated" in note for note in result.notes):
        return result
    return replace(result, notes=(*result.notes, "Compute was emulated: the ranks slept; times that follow from it are emulated too."))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as plain dicts; every kind of null becomes None."""
    columns = {name: _plain_column(table[name]) for name in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] if columns else []


def _plain_column(column: pd.Series[Any]) -> list[Any]:
    if column.dtype.kind in "iub" and not isinstance(column.dtype, pd.api.extensions.ExtensionDtype):
        return list(column.tolist())
    return [plain(v) for v in column.astype(object).tolist()]


def plain(value: Any) -> Any:
    """A value as JSON knows it; NaN, NaT and NA become None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        return [plain(v) for v in value]
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return str(value)
