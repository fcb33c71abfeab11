"""How long did the host of a rank wait for collectives to end? The ``wait_tensor`` of functional collectives, per step.

A functional collective is one call (``_c10d_functional::all_gather_into_tensor``) and one wait (``wait_tensor``). The wait is no second
collective; it costs the host's time, and on gloo the process's.
"""

from __future__ import annotations

import pandas as pd

from tracekit import schema
from tracekit.columns import integers, named
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind


def host_waits(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``host_waits``: number and time of waits per step (``schema.HOST_WAITS``); a wait inside another counts once."""
    events = trace.events
    waits = events["kind"].eq(Kind.OPERATOR).to_numpy() & named(events, lambda name: name.endswith("::wait_tensor"))
    parent = integers(events["parent"])
    outermost = events[waits & ~((parent >= 0) & waits[parent])]
    grouped = outermost.groupby("step", dropna=False, sort=True)["dur"]
    rows = pd.DataFrame({"waits": grouped.size(), "host_wait_ns": grouped.sum()}).reset_index()
    return {"host_waits": schema.conform(rows, schema.HOST_WAITS)}
