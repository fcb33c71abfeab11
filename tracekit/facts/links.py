"""What of this rank's device work could be tied to the call that caused it, and which operators took the device's time?

Launch and device work share a correlation id; where the launch call is absent, work and operator may share an External id. A backward
node carries the Sequence number of its forward operator. The passes did the tying; here it is counted.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, Rows, integers, named, take
from tracekit.executions import host_records
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind
from tracekit.windows import before_recording
from tracekit.work import WORK, kernel_launches, lost_launches

_NODE = "autograd::engine::evaluate_function"


def links(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``links``: one row of counts; ``operator_times``: one row per operator (``schema.LINKS``, ``schema.OPERATOR_TIMES``)."""
    events = trace.events
    if not len(events):
        return {"links": schema.empty(schema.LINKS), "operator_times": schema.empty(schema.OPERATOR_TIMES)}
    kind = events["kind"]
    communication = kind.eq(Kind.COMMUNICATION).to_numpy()
    on_device = (events["device"].notna() & kind.isin(WORK)).to_numpy()
    work: Mask = on_device | (communication & events["device"].isna().to_numpy() & ~host_records(events))
    launch = integers(events["launch"])
    cause = kind.cat.codes.to_numpy()[np.maximum(launch, 0)]
    called = work & (launch >= 0) & (cause == kind.cat.categories.get_loc(Kind.LAUNCH))
    early = work & before_recording(trace)
    shared = events.loc[on_device, "correlation"].dropna().value_counts()
    node, paired = _backward(events)
    row = {
        "device_work": work.sum(),
        "by_correlation": called.sum(),
        "by_external_id": (on_device & (launch >= 0) & ~called).sum(),
        "by_order": (work & ~on_device & (launch >= 0)).sum(),
        "before_recording": early.sum(),
        "unlinked": (work & (launch < 0) & ~early).sum(),
        "stepless": (work & events["step"].isna().to_numpy()).sum() if events["step"].notna().any() else 0,
        "graph_work": shared[shared > 1].sum(),
        "most_per_launch": shared.max() if len(shared) else 0,
        "launches": kernel_launches(events).sum(),
        "launches_without_work": lost_launches(trace).sum(),
        "backward_nodes": node.sum(),
        "backward_unpaired": (node & ~paired).sum(),
        "communication": communication.sum(),
        "communication_without_record": (communication & events["group"].isna().to_numpy() & events["nbytes"].isna().to_numpy()).sum(),
    }
    frame = pd.DataFrame([{k: int(v) for k, v in row.items()}])
    return {"links": schema.conform(frame, schema.LINKS), "operator_times": _operator_times(events, np.flatnonzero(on_device), launch)}


def _backward(events: pd.DataFrame) -> tuple[Mask, Mask]:
    """Autograd nodes with a Sequence number, and which events bear one that a forward operator bears too."""
    sequence = integers(events["sequence"])
    node = named(events, lambda name: name.startswith(_NODE)) & (sequence >= 0)
    forward = (integers(events["fwd_thread"]) <= 0) & events["kind"].eq(Kind.OPERATOR).to_numpy() & ~named(events, lambda name: name.startswith(_NODE))
    return node, np.isin(sequence, sequence[forward & (sequence >= 0)])


def _operator_times(events: pd.DataFrame, rows: Rows, launch: Rows) -> pd.DataFrame:
    """Durations of device work by innermost and by outermost operator of its launch."""
    if not len(rows):
        return schema.empty(schema.OPERATOR_TIMES)
    inner, outer = _operators(events, launch[rows])
    names = events["name"].to_numpy(object)
    dur = events["dur"].to_numpy(np.int64)[rows]
    parts = []
    for at, prefix in ((inner, ""), (outer, "outermost_")):
        label = take(names, at)
        grouped = pd.Series(dur).groupby(pd.Series(label, dtype=object), dropna=False)
        parts.append(pd.DataFrame({f"{prefix}pieces": grouped.size(), f"{prefix}duration_ns": grouped.sum()}))
    frame = parts[0].join(parts[1], how="outer").fillna(0).rename_axis("operator").reset_index()
    frame = frame.assign(operator=frame["operator"].astype(object).where(frame["operator"].notna(), None))
    frame = frame.sort_values(["duration_ns", "outermost_duration_ns"], ascending=False, kind="stable", ignore_index=True)
    return schema.conform(frame, schema.OPERATOR_TIMES)


def _operators(events: pd.DataFrame, at: Rows) -> tuple[Rows, Rows]:
    """Innermost and outermost operator around each row (itself included); -1 where there is none."""
    parent = integers(events["parent"])
    operator = events["kind"].eq(Kind.OPERATOR).to_numpy()
    at = at.copy()
    inner, outer = np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
    while (at >= 0).any():
        here = (at >= 0) & operator[np.maximum(at, 0)]
        inner = np.where(here & (inner < 0), at, inner)
        outer = np.where(here, at, outer)
        at = np.where(at >= 0, parent[np.maximum(at, 0)], -1)
    return inner, outer
