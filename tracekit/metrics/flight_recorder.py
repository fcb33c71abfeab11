"""Which rank is missing from which collective? The Flight Recorder dumps of all ranks, compared."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit.job.base import Job
from tracekit.job.flight import Flight
from tracekit.metrics.base import Metric, Result, unavailable


def compute(job: Job) -> Result:
    """Collectives by group with who is missing and why, mismatches, sends and receives, and the suspects."""
    flight = job.flight
    if flight is None:
        return unavailable("no Flight Recorder dump: set TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before PyTorch 2.9) and add the ranks' dumps")
    tables = {name: _with_lists(getattr(flight, name)) for name in ("faults", "mismatches", "groups", "ranks", "p2p", "missing", "collectives")}
    return Result(summary=_summary(flight), tables=tables, notes=_notes(flight))


_LISTS = frozenset({"group_ranks", "present", "missing", "not_enqueued", "behind", "completed_elsewhere", "ranks_with_entries", "ranks", "others", "suspects"})


def _with_lists(table: pd.DataFrame) -> pd.DataFrame:
    """The table with ranks as lists; null where a group's ranks are unknown."""
    return table.assign(**{c: pd.Series([_listed(ranks) for ranks in table[c]], index=table.index, dtype=object) for c in table.columns if c in _LISTS})


def _listed(ranks: tuple[int, ...] | str) -> list[int] | None:
    if isinstance(ranks, str):
        return [int(rank) for rank in ranks.split(",")] if ranks else None
    return list(ranks)


def _summary(flight: Flight) -> dict[str, Any]:
    ranks, calls, p2p = flight.ranks, flight.collectives, flight.p2p
    late = sorted({rank for row in calls["not_enqueued"] for rank in row})
    behind = sorted({rank for row in calls["behind"] for rank in row})
    held = ranks[ranks["dump"]]
    alone = len(held) < 2
    return {
        "dumps": len(held),
        "entries": int(held["entries"].sum()),
        "groups": len(flight.groups),
        "collectives": len(calls),
        "collectives_matched": None if alone else int(calls["matched"].sum()),
        "p2p_matched": None if alone else int(p2p["paired"].sum()),
        "mismatches": None if alone else int((calls["mismatch"].notna() & calls["mismatch"].ne("none")).sum() + p2p["size_mismatches"].sum()),
        "ranks_not_enqueued": None if alone else late,
        "ranks_behind": None if alone else behind,
        "suspects": None if alone else sorted({*late, *behind}),
        "ranks_without_entries": held.loc[held["entries"].eq(0), "rank"].tolist(),
        "ranks_without_dump": ranks.loc[~ranks["dump"], "rank"].tolist(),
    }


def _notes(flight: Flight) -> tuple[str, ...]:
    notes = []
    if flight.ranks["dump"].sum() < 2:
        notes.append("one dump alone shows what its rank enqueued, not who is missing: add the dumps of the other ranks")
    unknown = flight.groups["group_size"].isna().sum() if len(flight.groups) else 0
    if unknown:
        notes.append(f"the ranks of {unknown} groups stand in no file: whether their collectives are complete is unknown")
    if len(flight.missing):
        why = flight.missing["why"].value_counts()
        notes.append("entries absent because " + ", ".join(f"{_WHY[str(reason)]}: {n}" for reason, n in why.items()))
    return tuple(notes)


_WHY = {
    "completed": "the rank had completed the call and its dump leaves completed calls out",
    "not_enqueued": "the rank did not enqueue the call",
    "dropped": "the full ring no longer holds it",
    "no_dump": "the rank's dump is not here",
    "unknown": "nothing tells",
}

METRIC = Metric(
    name="flight_recorder",
    title="Flight Recorder",
    question="Which rank is missing from which collective?",
    definition=(
        "Entries of torch's Flight Recorder (pytorch/pytorch, torch/csrc/distributed/c10d/FlightRecorder*.hpp) are the same collective where process "
        "group (name and ranks) and collective_seq_id are. Of each member without an entry: completed (its last completed number is not below), "
        "not_enqueued (its last enqueued number is below), dropped (enqueued, but overwritten in the ring), no_dump, unknown. A rank is behind where it "
        "still holds what another rank of the group completed. Suspects are the ranks behind or not enqueued. A mismatch is a collective whose ranks "
        "disagree on operation, size (nccl-tests'; an all-to-all's may differ by rank) or element type. Sends and receives have their own numbering "
        "(p2p_seq_id) and pair by group, source, destination and order; torch/distributed/flight_recorder reads the dumps the same way."
    ),
    compute=compute,
)
