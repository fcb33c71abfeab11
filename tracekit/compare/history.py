"""What creeps? A metric over the runs of the rolling baseline and the head, for steps too small for any one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tracekit import thresholds
from tracekit.compare.catalog import Sort
from tracekit.compare.drift import drift
from tracekit.compare.rules import Rules
from tracekit.compare.snapshot import Snapshot
from tracekit.wording import signed_percent

#: The baseline's runs by commit, oldest first.
History = Sequence[tuple[str, Sequence[Snapshot]]]
#: Commits that are looked back at.
MOST = 60


def creeping(history: History, head: Sequence[Snapshot], rules: Rules) -> list[dict[str, Any]]:
    """Metrics with a change point in their history, judged where last level and head both differ by more than is immaterial from the first level.

    Only the step and its parts are looked at, one number per commit: the median of its runs.
    """
    series: dict[Any, list[tuple[str, float]]] = {}
    for commit, runs in [*history, ("head", head)][-MOST:]:
        for key in sorted({k for s in runs for k in s.timed}):
            values = [s.timed[key] for s in runs if key in s.timed]
            if rules.entry(key).sort in (Sort.STEP, Sort.PART) and len(values) == len(runs):
                series.setdefault(key, []).append((commit, float(median(values))))
    steps = [v for key, points in series.items() if key.metric == "step_time_ns" for _, v in points[:1]]
    out = []
    families = {sort: max(1, sum(1 for k in series if rules.entry(k).sort == sort)) for sort in (Sort.STEP, Sort.PART)}
    for key, points in sorted(series.items()):
        entry, values = rules.entry(key), [v for _, v in points]
        if min(values) <= 0:
            continue
        share = thresholds.STEP_SHARE if entry.sort == Sort.STEP else thresholds.PART_SHARE
        # no finer than what the permutations can tell
        found = drift(values, alpha=max(rules.false_alarm * share / families[entry.sort], 0.001), seed=rules.seed)
        if found.shift is None or found.first is None or found.last is None:
            continue
        head_shift = values[-1] / found.first - 1
        verdict = thresholds.crept(
            entry.direction,
            level=found.shift,
            head=head_shift,
            min_effect=entry.min_effect if not key.metric.endswith("_ratio") else entry.min_effect / found.first,
            material=thresholds.material(found.last - found.first, steps[0] if steps and key.metric.endswith("_ns") else None, entry.min_share),
        )
        out.append(
            {
                "metric": key.metric,
                "where": dict(key.where),
                "id": key.id,
                "title": entry.title,
                "severity": entry.severity.value,
                "verdict": verdict.value,
                "shift": found.shift,
                "head_shift": head_shift,
                "p": found.p,
                "points": [points[i][0] for i in found.points],
                "commits": [c for c, _ in points],
                "values": values,
                "sentence": f"{entry.title} crept {signed_percent(found.shift)} over {len(values)} commits, from {points[found.points[0]][0]} on",
            }
        )
    return out


def step_levels(history: History, head: Sequence[Snapshot]) -> list[dict[str, Any]]:
    """The step time by commit, oldest first and the head last: the median of each commit's runs; commits that lack it are left out."""
    points = []
    for commit, runs in [*history, ("head", head)][-MOST:]:
        values = [v for s in runs for k, v in s.timed.items() if k.metric == "step_time_ns" and not k.where]
        if values and len(values) == len(runs):
            points.append((commit, float(median(values))))
    if len(points) < 2:
        return []
    return [{"metric": "step_time_ns", "where": {}, "title": "step time", "commits": [c for c, _ in points], "values": [v for _, v in points]}]
