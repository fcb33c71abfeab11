"""When did each device do nothing, and what does the recording say of why?

Idle is what of a step's window no work covers. While the host fetched data (the ``__next__`` of a DataLoader) it is *input*; where the
work that ended it was launched only after the device had run dry, the host was late: *launch*, the latency of the launch included.
Of the rest (work that was queued in time and still waited: events, streams, start-up) the cause is not known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, integers, named
from tracekit.executions import host_records
from tracekit.intervals import Ints, Union, intersect, subtract, union
from tracekit.trace import RankTrace
from tracekit.windows import step_windows
from tracekit.work import device_of, devices, intervals_of, work_masks

#: At most so many pieces of a cause keep their own place; the shorter ones are put together with their neighbours.
_PIECES = 256
_INPUT = "enumerate(DataLoader)#"
_ACTION = ["stage", "action", "microbatch"]


def idle(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """Table ``idle_pieces`` (``schema.IDLE_PIECES``), of every device and step with work; step null where the trace has no steps."""
    events, masks, device = trace.events, work_masks(trace), device_of(trace)
    if trace.meta.device_type == "cpu" and host_records(events).any():
        return {"idle_pieces": schema.empty(schema.IDLE_PIECES)}
    step, windows = integers(events["step"]), step_windows(trace)
    fetching = intervals_of(events, events["device"].isna().to_numpy() & named(events, lambda name: name.startswith(_INPUT)))
    choices = list(windows[["step", "window_start_ns", "window_end_ns"]].astype(object).itertuples(index=False, name=None)) or [(None, None, None)]
    found = []
    for one in devices(trace):
        for number, start, end in choices:
            here = masks["work"] & (device == one) & (True if number is None else step == number)
            if here.any():
                found.append(_pieces(trace, np.flatnonzero(here), fetching, start, end).assign(device=one, step=pd.array([number], dtype="Int64")[0]))
    return {"idle_pieces": schema.conform(pd.concat(found, ignore_index=True), schema.IDLE_PIECES) if found else schema.empty(schema.IDLE_PIECES)}


def _pieces(trace: RankTrace, rows: Ints, fetching: Union, start: int | None, end: int | None) -> pd.DataFrame:
    """Idle pieces between some work: start_ns, end_ns, idle_ns, cause, in_action."""
    events = trace.events
    ts = events["ts"].to_numpy(np.int64)[rows]
    busy = union(ts, ts + events["dur"].to_numpy(np.int64)[rows])
    if not len(busy[0]):
        return pd.DataFrame(columns=["start_ns", "end_ns", "idle_ns", "cause", "in_action"])
    first, last = int(busy[0][0]), int(busy[1][-1])
    gaps = subtract(union([first if start is None else min(start, first)], [last if end is None else max(end, last)]), busy)
    late = _launched_late(trace, rows, gaps)
    place = _in_action(events, rows, gaps)
    frames = []
    for cause, pieces in (("input", intersect(gaps, fetching)), (None, subtract(gaps, fetching))):
        at = np.searchsorted(gaps[0], pieces[0], "right") - 1
        causes = np.full(len(at), cause, object)
        if cause is None:
            causes[late[at]] = "launch"
        length = pieces[1] - pieces[0]
        frames.append(pd.DataFrame({"start_ns": pieces[0], "end_ns": pieces[1], "idle_ns": length, "cause": causes, "in_action": place[at]}))
    return _put_together(pd.concat(frames, ignore_index=True))


def _launched_late(trace: RankTrace, rows: Ints, gaps: Union) -> Mask:
    """Whether what ended each gap was launched within it; false where no launch is known, and on CPU runs, which launch nothing."""
    out = np.zeros(len(gaps[0]), bool)
    if trace.meta.device_type == "cpu":
        return out
    events = trace.events
    ts, launch = events["ts"].to_numpy(np.int64), integers(events["launch"])[rows]
    order = np.argsort(ts[rows], kind="stable")
    starts, launched = ts[rows][order], launch[order]
    next_ = np.searchsorted(starts, gaps[1], "left")
    ended = next_ < len(starts)
    by = launched[np.minimum(next_, len(starts) - 1)]
    out[:] = ended & (by >= 0) & (ts[np.maximum(by, 0)] >= gaps[0])
    return out


def _in_action(events: pd.DataFrame, rows: Ints, gaps: Union) -> Mask:
    """Whether each gap lies between two pieces of work of one pipeline action; true everywhere where no work is of any."""
    part = events.iloc[rows]
    inside = (part["action"].notna() & part["microbatch"].notna() & part["stage"].notna() & part["collective"].isna()).to_numpy()
    if not inside.any():
        return np.ones(len(gaps[0]), bool)
    part = part[inside].sort_values("ts", kind="stable")
    code = part.groupby(_ACTION, observed=True, sort=False).ngroup().to_numpy()
    at = np.searchsorted(part["ts"].to_numpy(np.int64), gaps[0], "left")
    between = (at > 0) & (at < len(code))
    return np.asarray(between & (code[np.maximum(at - 1, 0)] == code[np.minimum(at, len(code) - 1)]), bool)


def _put_together(pieces: pd.DataFrame) -> pd.DataFrame:
    """One row per cause of what lies inside actions; of the rest the longest pieces keep their place, shorter neighbours are summed."""
    alone = ~pieces["in_action"]
    rank = pieces["idle_ns"].where(alone, -1).groupby(pieces["cause"], dropna=False).rank(method="first", ascending=False)
    long = alone & rank.le(_PIECES)
    ordered = pieces.sort_values("start_ns", kind="stable")
    # between two long pieces short ones have a common number
    between = long.reindex(ordered.index).cumsum().reindex(pieces.index).to_numpy(np.int64)
    bucket = pd.Series(np.where(long, between + len(pieces), np.where(alone, between, -1)), index=pieces.index)
    keys = [pieces["cause"].fillna("").rename("_cause"), pieces["in_action"], bucket.rename("_bucket")]
    out = pieces.drop(columns="in_action").groupby(keys, sort=False).agg({"start_ns": "min", "end_ns": "max", "idle_ns": "sum", "cause": "first"})
    return out.reset_index()[["start_ns", "end_ns", "idle_ns", "cause", "in_action"]]
