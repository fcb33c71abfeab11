"""What do the files say outright? The tables that a Flight Recorder, a log of NCCL or a benchmark states, as they are."""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.stated import LEFT_BEHIND
from tracekit.trace import RankTrace


def stated(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """The tables of ``schema.STATED`` that the rank's files hold; empty ones where they hold none, and where they serve one rank alone."""
    kept = {name: frame for name, frame in trace.stated.items() if name not in LEFT_BEHIND}
    return {name: schema.conform(kept[name], table) if name in kept else schema.empty(table) for name, table in schema.STATED.items()}
