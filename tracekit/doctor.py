"""Can these files be trusted, what do they lack for which figure, and what is the smallest capture that would supply it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tracekit.analysis import Analysis, analyze, plain
from tracekit.errors import InputError
from tracekit.findings import finding
from tracekit.ingest import Progress
from tracekit.job.base import Job
from tracekit.needs import Presence, missing
from tracekit.reading import DEFAULT, Reading
from tracekit.vocabulary import Axis, Severity

DOCTOR_SCHEMA = "tracekit.doctor/1"


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor says.

    Attributes:
        verdict: ok, warnings or unusable.
        findings: health findings (rows of ``schema.FINDINGS`` as dicts), worst first.
        run: what ran, as in the report; {} where nothing could be read.
        needs: every need with its presence and what is lost without it (``needs.missing``).
        figures: metric -> {"available", "reason", "lacks"}.
        next_capture: {"ranks", "why", "lines"}: the smallest capture that would supply what is missing.
    """

    verdict: str
    findings: tuple[Mapping[str, Any], ...] = ()
    run: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[Mapping[str, Any], ...] = ()
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    next_capture: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The document (schema ``tracekit.doctor/1``): only str, int, float, bool, None, lists and dicts."""
        return {
            "schema": DOCTOR_SCHEMA,
            "health": {"verdict": self.verdict, "findings": [dict(f) for f in self.findings]},
            "run": plain(dict(self.run)),
            "needs": [plain(dict(n)) for n in self.needs],
            "figures": plain(dict(self.figures)),
            "next_capture": plain(dict(self.next_capture)),
        }


def examine(
    paths: str | Path | Sequence[str | Path],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    reading: Reading = DEFAULT,
    capture: int | None = None,
) -> Diagnosis:
    """Examine files without believing any: one that is refused becomes a finding, and the others are read.

    The arguments are those of :func:`tracekit.analyze`.
    """
    try:
        return diagnose(analyze(paths, workers=workers, progress=progress, reading=replace(reading, keep_going=True), capture=capture))
    except InputError as error:
        return Diagnosis("unusable", (finding("file_refused", Severity.ERROR, error.reason, file=error.path, offset=error.offset),))


def diagnose(analysis: Analysis) -> Diagnosis:
    """The diagnosis of an analysis that was made."""
    health, job = analysis.health(), analysis.job
    needs = missing(job)
    figures: dict[str, dict[str, Any]] = {}
    for metric in analysis.metrics:
        result = analysis.result(metric.name)
        lacks = [{"need": n["need"], "loses": _loses(n, metric.name)} for n in needs if metric.name in n["loses"] and n["presence"] in _LACKING]
        figures[metric.name] = {"title": metric.title, "available": result.available, "reason": result.reason, "lacks": lacks}
    return Diagnosis(health["verdict"], tuple(health["findings"]), analysis.run(), tuple(needs), figures, next_capture(job, needs))


def _loses(need: Mapping[str, Any], metric: str) -> str:
    what = str(need["loses"][metric])
    return what if need["presence"] == Presence.NONE else f"in part: {what}"


_LACKING = (Presence.NONE, Presence.SOME)
#: Arguments of torch.profiler.profile that supply a need.
_ARGUMENTS = {
    "device_work": "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "launches": "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "steps": "schedule=schedule(wait=1, warmup=1, active=3)",
    "sizes": "record_shapes=True",
    "memory_events": "profile_memory=True",
    "layers": "with_stack=True",
}
#: Which axis is asked for first, and what one group of it shows.
_FIRST = (
    (Axis.PP, "one pipeline: its bubble"),
    (Axis.TP, "one tensor-parallel group: who waits for whom in its layers"),
    (Axis.CP, "one context-parallel group: who waits for whom"),
    (Axis.EP, "one expert-parallel group: who waits for whom"),
    (Axis.DP_SHARD, "one data-parallel group: who waits for whom"),
    (Axis.DP_REPLICATE, "one data-parallel group: who waits for whom"),
)


def next_capture(job: Job, needs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The smallest capture that would supply what is missing.

    Returns:
        ranks: ranks to profile, or null where those that were profiled do.
        why: what they would show.
        lines: lines to change in the training script or its environment.
    """
    lacking = {n["need"]: n for n in needs if n["presence"] in _LACKING}
    ranks, why = _ranks_to_profile(job) if {"ranks", "links"} & lacking.keys() else (None, None)
    arguments = list(dict.fromkeys(_ARGUMENTS[name] for name in lacking if name in _ARGUMENTS))
    lines = [f"torch.profiler.profile({', '.join(arguments)})"] if arguments else []
    lines += [str(n["supply"]) for name, n in lacking.items() if name not in _ARGUMENTS and name not in ("ranks", "links")]
    if ranks is not None:
        lines.insert(0, f"if torch.distributed.get_rank() in ({', '.join(map(str, ranks))}): start the profiler")
    return {"ranks": ranks, "why": why, "lines": list(dict.fromkeys(lines))}


def _ranks_to_profile(job: Job) -> tuple[list[int] | None, str | None]:
    here = {rank for (rank, _), facts in job.ranks.items() if int(facts["extent"]["events"].iloc[0])}
    groups = [([int(r) for r in text.split(",")], axis) for text, axis in job.axis_of.items()]
    for wanted, shows in _FIRST:
        mine = sorted((ranks for ranks, axis in groups if axis == wanted and len(ranks) > 1), key=lambda ranks: (min(here, default=0) not in ranks, ranks))
        if mine and not any(set(ranks) <= here for ranks in mine):
            return mine[0], shows
    if job.world_size and job.world_size > 1 and len(here) < job.world_size and not any(len(r) > 1 and set(r) <= here for r, _ in groups):
        return list(range(min(job.world_size, 8))), "ranks that share a group: name the ranks of one group of your mesh"
    return None, None
