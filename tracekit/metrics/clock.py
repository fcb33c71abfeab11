"""How far do the ranks' clocks differ, and which waits can be told from none?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit.job.base import Job
from tracekit.metrics.base import Metric, Result, unavailable


def compute(job: Job) -> Result:
    """Offset, drift and residual of every rank's clock, and what they mean for the waits."""
    clocks = job.clocks
    if len(clocks) == 0 or clocks["rank"].nunique() < 2:
        return unavailable("there is one rank, and so one clock")
    if clocks["reference_rank"].eq(clocks["rank"]).all():
        return unavailable("nothing links the ranks' clocks: no matched collective, no sends both ways, no host that they share")
    reference = int(clocks["rank"].min())
    linked = clocks["reference_rank"].eq(reference)
    ranks = clocks.assign(offset_ns=clocks["offset_ns"].astype("Int64").where(linked), drift_ppm=clocks["drift_ppm"].where(linked))
    columns = ["rank", "capture", "offset_ns", "drift_ppm", "residual_ns", "moments", "source", "reference_rank", "origin_ns"]
    waits = job.by_rank[["instance", "wait_ns"]].merge(job.instances[["instance", "wait_resolution_ns"]], on="instance") if len(job.by_rank) else None
    summary: dict[str, Any] = {
        "reference_rank": reference,
        "ranks": int(clocks["rank"].nunique()),
        "linked_ranks": int(clocks.loc[linked, "rank"].nunique()),
        "aligned_ranks": int(ranks.loc[ranks["offset_ns"].fillna(0).ne(0) | ranks["drift_ppm"].fillna(0).ne(0), "rank"].nunique()),
        "offset_max_ns": _largest(ranks["offset_ns"].abs()),
        "drift_max_ppm": None if ranks["drift_ppm"].isna().all() else float(ranks["drift_ppm"].abs().max()),
        "residual_max_ns": _largest(clocks["residual_ns"]),
        "waits": None if waits is None else int(waits["wait_ns"].gt(0).sum()),
        "unresolvable_waits": None if waits is None else int((waits["wait_ns"].gt(0) & waits["wait_ns"].le(waits["wait_resolution_ns"])).sum()),
    }
    return Result(summary, {"ranks": ranks[columns].sort_values(["rank", "capture"], ignore_index=True)}, notes=_notes(ranks, linked, reference))


def _largest(column: pd.Series[Any]) -> int | None:
    return int(column.max()) if column.notna().any() else None


def _notes(ranks: pd.DataFrame, linked: pd.Series[bool], reference: int) -> tuple[str, ...]:
    notes = [f"Every time in this report is on rank {reference}'s clock. Durations of a rank's own work are on its own."]
    if not linked.all():
        lone = sorted(set(ranks.loc[~linked, "rank"].astype(int)))
        notes.append(
            f"Nothing links the clocks of {len(lone)} ranks (from rank {lone[0]}) with rank {reference}'s: no collective, no sends both ways, no common host. "
            "Their offset is unknown, and their times are aligned among those that share a reference_rank."
        )
    if ranks["source"].eq("bounds").any():
        notes.append("Where only sends and receives link two clocks, the offset lies between two bounds; the residual is half their distance.")
    if ranks.loc[linked, "drift_ppm"].isna().any():
        notes.append("drift_ppm is null where the recording is too short, or has too few common moments, to tell a drift.")
    return tuple(notes)


METRIC = Metric(
    name="clock",
    title="Clocks",
    question="How far do the ranks' clocks differ, and which waits can be told from none?",
    definition=(
        "offset_ns = the rank's clock minus the reference rank's (the lowest) at origin_ns; drift_ppm = how much faster it runs. From the ends of matched "
        "all-reduces, all-gathers, reduce-scatters, all-to-alls and barriers, which end together on all ranks: medians and least absolute lines, carried over "
        "groups that share a rank; where ranks share no collective, from sends and receives (a receive cannot end before its send began, in both "
        "directions). residual_ns = robust standard deviation of the rank's ends after correction. An offset below it, below 3 of its standard errors, "
        "below 100 us where fewer than 5 ends tell, or below 20 us on one host is 0; a drift counts from 4 standard errors. A wait below the largest "
        "residual of its ranks (wait_resolution_ns) cannot be told from none."
    ),
    compute=compute,
)
