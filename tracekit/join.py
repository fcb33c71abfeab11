"""How do several files of one rank become one trace? Slices from the timeline, everything else from whoever has it.

Kernels come from the profiler's trace, groups and sequence numbers from the Flight Recorder, memory from a snapshot where
the trace recorded none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import pandas as pd

from tracekit import schema
from tracekit.trace import RankMeta, RankTrace


def join(trace: RankTrace, others: Sequence[RankTrace]) -> RankTrace:
    """The trace, completed by what the other files of its rank say.

    Args:
        trace: the timeline: what it says of itself stands.
        others: files beside it, in any order.
    """
    for other in others:
        trace = replace(
            trace,
            samples=_samples(trace.samples, other.samples),
            meta=_meta(trace.meta, other.meta, bool(len(other.samples))),
            findings=(*trace.findings, *other.findings),
            stated=together(trace.stated, other.stated),
        )
    return trace


def together(first: Mapping[str, pd.DataFrame], second: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Stated tables of two files, one below the other."""
    both = {**first, **second}
    for name in first.keys() & second.keys():
        parts = [part for part in (first[name], second[name]) if len(part)]
        both[name] = pd.concat([schema.conform(part, schema.STATED[name]) for part in parts], ignore_index=True) if parts else first[name]
    return both


def _samples(own: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Memory events, of each kind of device from the first file that has any."""
    more = other[~other["device_type"].isin(own["device_type"].unique())]
    if not len(own) or not len(more):
        return own if len(own) else more
    return pd.concat([own, more]).sort_values("ts", kind="stable").reset_index(drop=True)


def _meta(own: RankMeta, other: RankMeta, with_memory: bool) -> RankMeta:
    """What the first says of itself; what it leaves open, from the second."""
    filled = {f.name: getattr(other, f.name) for f in fields(RankMeta) if getattr(own, f.name) in (None, (), {}) and f.name != "memory_baseline"}
    filled["files"] = (*own.files, *other.files)
    filled["formats"] = (*own.formats, *other.formats)
    filled["packings"] = (*own.packings, *other.packings)
    filled["groups"] = {**other.groups, **own.groups}
    if own.memory_baseline is None and with_memory:
        filled["memory_baseline"] = other.memory_baseline
    return replace(own, **filled)
