"""What do the files say outright? The tables that a Flight Recorder, a log of NCCL or a benchmark states, as they are."""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.trace import RankTrace


def stated(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """The tables of ``schema.STATED`` that the rank's files hold; empty ones where they hold none."""
    return {name: schema.conform(trace.stated[name], table) if name in trace.stated else schema.empty(table) for name, table in schema.STATED.items()}
