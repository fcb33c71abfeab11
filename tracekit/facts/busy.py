"""How much of each step did a device compute, communicate, copy and idle? Interval algebra per device and step.

compute, comm and copies are unions of intervals; overlap is comm under compute, exposed comm the rest; idle is the
span minus the union of everything, and so never negative. Work belongs to the step that launched it. Where some of
that work runs outside the step's window (a step cut by the recording), the window is widened to hold it. Communication of which only
host records are left has no time on a device: what depends on it is null. A CUDA graph that was recorded as one piece is busy time
of which nobody knows what ran: with one among the work, what depends on the division is null.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, Rows
from tracekit.executions import host_records
from tracekit.intervals import intersect, merge, subtract, total
from tracekit.trace import RankTrace
from tracekit.windows import step_windows
from tracekit.work import devices, intervals_of, work_masks, work_rows


def busy(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """``busy``: one row per device and step, and one per device over the whole trace (``schema.BUSY``)."""
    windows = step_windows(trace)
    masks, work = work_masks(trace), work_rows(trace)
    rows = []
    for one in devices(trace):
        if (one, None) not in work:
            continue  # a host that only launched: nothing is known of a device
        rows.append({"device": one, "step": None, **_measure(trace, masks, work[one, None], None)})
        for number, start, end in zip(windows["step"], windows["window_start_ns"], windows["window_end_ns"], strict=True):
            if (one, number) in work:  # else it is not known whether the device was idle or its work was not recorded
                rows.append({"device": one, "step": number, **_measure(trace, masks, work[one, number], (int(start), int(end)))})
    if not rows:
        return {"busy": schema.empty(schema.BUSY)}
    frame = pd.DataFrame(rows, dtype=object).assign(device_type=trace.meta.device_type)
    if host_records(trace.events).any():
        unknown = ["comm_ns", "overlap_ns", "exposed_comm_ns", *(["busy_ns", "idle_ns"] if trace.meta.device_type == "cpu" else [])]
        frame = frame.drop(columns=unknown)
    return {"busy": schema.conform(frame, schema.BUSY)}


def _measure(trace: RankTrace, masks: dict[str, Mask], rows: Rows, window: tuple[int, int] | None) -> dict[str, Any]:
    kinds = ("compute", "communication", "copy", "emulated", "graph")
    compute, comm, copy, slept, graph = (intervals_of(trace.events, rows[masks[k][rows]]) for k in kinds)
    overlap = total(intersect(compute, comm))
    kernels = merge(compute, comm)
    ran = rows[masks["compute"][rows] | masks["communication"][rows]]
    everything = merge(kernels, copy, graph)
    first, last = (int(everything[0][0]), int(everything[1][-1])) if len(everything[0]) else (window or (0, 0))
    start, end = (first, last) if window is None else (min(window[0], first), max(window[1], last))
    whole = {"span_ns": end - start, "busy_ns": total(everything), "graph_ns": total(graph), "idle_ns": end - start - total(everything)}
    divided = {
        "compute_ns": total(compute),
        "comm_ns": total(comm),
        "overlap_ns": overlap,
        "exposed_comm_ns": total(comm) - overlap,
        "memcpy_ns": total(copy),
        "exposed_memcpy_ns": total(subtract(copy, kernels)),
        "kernel_sum_ns": int(trace.events["dur"].to_numpy()[ran].sum()),
        "kernels": len(ran),
    }
    return {**whole, "emulated_ns": total(slept), **(dict.fromkeys(divided) if total(graph) else divided)}
