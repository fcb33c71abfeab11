"""Which call launched which device work, by the arrows of a trace, where its records bear no correlation id?

Old ROCm traces have none (mlcommons/chakra#128), yet Kineto draws an arrow (``ph`` s to f, one id) from the start of each launch call to the
start of what it launched. Where every piece of device work bears a correlation id, no arrow is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.numbers import nanoseconds
from tracekit.readers.chrome_events import Threads
from tracekit.readers.chrome_kinds import GPU_WORK
from tracekit.readers.chrome_records import Event
from tracekit.vocabulary import Kind

_ENDS = ["thread", "ts"]


def with_arrows(events: pd.DataFrame, records: list[Event], base: int, threads: Threads) -> pd.DataFrame:
    """The events, device work without a correlation id given that of the call from which an arrow leads to it.

    Args:
        events: rows of ``schema.EVENTS``.
        records: every record of the file.
        base: what is added to every time, ns.
        threads: codes of the threads.
    """
    lacking = events["kind"].isin(list(GPU_WORK)) & events["correlation"].isna()
    if not lacking.any():
        return events
    tails, heads = (_ends([e for e in records if e.ph == ph], base, threads) for ph in ("s", "f"))
    calls = events.loc[events["kind"].eq(Kind.LAUNCH), [*_ENDS, "correlation"]].rename_axis("call").reset_index()
    work = events.loc[lacking, _ENDS].rename_axis("work").reset_index()
    # several arrows of one id: the same call to the pieces of a graph
    arrows = tails.merge(calls, on=_ENDS).merge(heads.merge(work, on=_ENDS), on="arrow").drop_duplicates("work")
    if not len(arrows):
        return events
    free = int(events["correlation"].max()) + 1 if events["correlation"].notna().any() else 1
    new = pd.Series(free + pd.factorize(arrows["call"])[0], dtype="Int64", index=arrows.index)
    number = arrows["correlation"].fillna(new)
    correlation = events["correlation"].copy()
    correlation.loc[arrows["call"]] = number.array
    correlation.loc[arrows["work"]] = number.array
    return events.assign(correlation=correlation)


def _ends(records: list[Event], base: int, threads: Threads) -> pd.DataFrame:
    """Arrow (its category and id), thread and time of each end."""
    ts, usable = nanoseconds([bytes(e.ts) for e in records])
    arrow: list[Any] = [f"{e.cat} {e.id}" for e in records]
    frame = pd.DataFrame({"arrow": pd.Series(arrow, dtype=object), "thread": threads.of(records).astype(np.int32), "ts": ts + base})
    kept: pd.DataFrame = frame[usable & np.array([e.id is not None for e in records], bool)]
    return kept
