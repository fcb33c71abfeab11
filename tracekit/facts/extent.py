"""From when to when was this rank recorded, and how much?"""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.trace import RankTrace


def extent(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``extent``: one row, first start and last end of all events (without any: of the memory events), and their number (``schema.EXTENT``)."""
    events, ts = trace.events, trace.samples["ts"]
    if not len(events):
        row = {"start_ns": [ts.min() if len(ts) else 0], "end_ns": [ts.max() + 1 if len(ts) else 0], "events": [0]}
        return {"extent": schema.conform(pd.DataFrame(row), schema.EXTENT)}
    row = {"start_ns": [events["ts"].min()], "end_ns": [(events["ts"] + events["dur"]).max()], "events": [len(events)]}
    return {"extent": schema.conform(pd.DataFrame(row), schema.EXTENT)}
