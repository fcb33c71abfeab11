"""How many microbatches should each stage hold, by the order that ran and by the schedule's closed form?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit import theory
from tracekit.job.base import Job
from tracekit.job.pipelines import pipelines
from tracekit.schedule.held import held_peaks

_KEYS = ["rank", "capture", "step", "stage"]


def held_microbatches(job: Job) -> pd.DataFrame:
    """Per rank, capture, step and stage of every pipeline what it should hold.

    Returns:
        rank, capture, step, stage, schedule (as recognised), ``in_flight_order_microbatches`` (most that the order of actions
        holds, ``schedule.held``) and ``in_flight_theory_microbatches`` (``theory.in_flight_microbatches``; null where the
        schedule has no closed form).
    """
    rows: list[dict[str, Any]] = []
    for one in pipelines(job):
        found, ranks = one.schedule, list(one.orders)
        for stage, place, most, *_ in held_peaks(list(one.orders.values()))[0].itertuples(index=False, name=None):
            known = found.microbatches is not None and found.virtual is not None
            paper = theory.in_flight_microbatches(found.name, stage, found.ranks, found.microbatches or 0, found.virtual or 0) if known else None
            where = {"rank": ranks[place], "capture": one.capture, "step": one.step, "stage": stage, "schedule": found.name}
            rows.append({**where, "in_flight_order_microbatches": most, "in_flight_theory_microbatches": paper})
    kinds = {"rank": "int64", "capture": "int64", "step": "Int64", "stage": "Int64", "schedule": "object"}
    numbers = dict.fromkeys(("in_flight_order_microbatches", "in_flight_theory_microbatches"), "Int64")
    return pd.DataFrame(rows, columns=[*kinds, *numbers], dtype=object).astype({**kinds, **numbers}).drop_duplicates(_KEYS)
