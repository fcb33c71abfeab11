"""When did each device do nothing, and what does the recording say of why?

Idle is what of a step's window no work covers. While the host fetched data (the ``__next__`` of a DataLoader) it is *input*; where the
work that ended it was launched only after the device had run dry, the host was late: *launch*, the latency of the launch included.
Of the rest (work that was queued in time and still waited: events, streams, start-up) the cause is not known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.columns import Mask, Objects, Rows, choose, integers, named
from tracekit.executions import host_records
from tracekit.intervals import EMPTY, Union, intersect, subtract, union
from tracekit.trace import RankTrace
from tracekit.windows import step_windows
from tracekit.work import devices, intervals_of, work_masks, work_rows

#: At most so many pieces of a cause keep their own place; the shorter ones are put together with their neighbours.
_PIECES = 256
_INPUT = "enumerate(DataLoader)#"
_ACTION = ["stage", "action", "microbatch"]


def idle(trace: RankTrace) -> dict[str, pd.DataFrame]:
    """Table ``idle_pieces`` (``schema.IDLE_PIECES``), of every device and step with work; step null where the trace has no steps."""
    events, work = trace.events, work_rows(trace)
    if trace.meta.device_type == "cpu" and host_records(events).any():
        return {"idle_pieces": schema.empty(schema.IDLE_PIECES)}
    windows = step_windows(trace)
    fetching = intervals_of(events, events["device"].isna().to_numpy() & named(events, lambda name: name.startswith(_INPUT)))
    choices = list(windows[["step", "window_start_ns", "window_end_ns"]].astype(object).itertuples(index=False, name=None)) or [(None, None, None)]
    places = [(one, *choice) for one in devices(trace) for choice in choices if (one, choice[0]) in work]
    if not places:
        return {"idle_pieces": schema.empty(schema.IDLE_PIECES)}
    launched, action = _launched(trace), _actions(trace)
    found = [_pieces(events, work[one, number], launched, action, fetching, start, end).assign(place=i) for i, (one, number, start, end) in enumerate(places)]
    pieces = _put_together(pd.concat(found, ignore_index=True))
    place = pieces["place"].to_numpy()
    device, step = np.array([one for one, *_ in places])[place], pd.array([number for _, number, *_ in places], "Int64")[place]
    return {"idle_pieces": schema.conform(pieces.assign(device=device, step=step), schema.IDLE_PIECES)}


def _launched(trace: RankTrace) -> Rows:
    """When each event was launched; before everything where no launch is known, and on CPU runs, which launch nothing."""
    events = trace.events
    launch = integers(events["launch"]) if trace.meta.device_type != "cpu" else np.full(len(events), -1)
    return np.where(launch >= 0, events["ts"].to_numpy(np.int64)[np.maximum(launch, 0)], np.iinfo(np.int64).min)


def _actions(trace: RankTrace) -> Rows:
    """Number of the pipeline action that each piece of work is part of; -1 of what is part of none, and of communication."""
    events = trace.events
    inside = work_masks(trace)["work"] & events[_ACTION].notna().all(axis=1).to_numpy() & events["collective"].isna().to_numpy()
    out = np.full(len(events), -1, np.int64)
    out[inside] = events.loc[inside, _ACTION].groupby(_ACTION, observed=True, sort=False).ngroup()
    return out


def _pieces(events: pd.DataFrame, rows: Rows, launched: Rows, action: Rows, fetching: Union, start: int | None, end: int | None) -> pd.DataFrame:
    """Idle pieces between some work: start_ns, end_ns, cause, in_action; those of input first."""
    ts = events["ts"].to_numpy(np.int64)[rows]
    rows, ts = (column[np.argsort(ts, kind="stable")] for column in (rows, ts))
    busy = union(ts, ts + events["dur"].to_numpy(np.int64)[rows])
    gaps = subtract(_window(busy, start, end), busy) if len(busy[0]) else EMPTY
    late, place = _launched_late(ts, launched[rows], gaps), _in_action(ts, action[rows], gaps)
    fetched, other = intersect(gaps, fetching), subtract(gaps, fetching)
    low, high = (np.concatenate(pair) for pair in zip(fetched, other, strict=True))
    at = np.searchsorted(gaps[0], low, "right") - 1
    cause: Objects = choose(late[at], "launch", None)
    cause[: len(fetched[0])] = "input"
    return pd.DataFrame({"start_ns": low, "end_ns": high, "cause": cause, "in_action": place[at]})


def _window(busy: Union, start: int | None, end: int | None) -> Union:
    """The time from start to end, widened to hold all work."""
    first, last = int(busy[0][0]), int(busy[1][-1])
    return union([first if start is None else min(start, first)], [last if end is None else max(end, last)])


def _launched_late(ts: Rows, launched: Rows, gaps: Union) -> Mask:
    """Whether the work that ended each gap was launched within it; work in order of time."""
    next_ = np.searchsorted(ts, gaps[1], "left")
    return np.asarray((next_ < len(ts)) & (launched[np.minimum(next_, len(ts) - 1)] >= gaps[0]), bool)


def _in_action(ts: Rows, action: Rows, gaps: Union) -> Mask:
    """Whether each gap lies between two pieces of work of one pipeline action; true everywhere where no work is of any. Work in order of time."""
    inside = action >= 0
    if not inside.any():
        return np.ones(len(gaps[0]), bool)
    code = action[inside]
    at = np.searchsorted(ts[inside], gaps[0], "left")
    between = (at > 0) & (at < len(code))
    return np.asarray(between & (code[np.maximum(at - 1, 0)] == code[np.minimum(at, len(code) - 1)]), bool)


def _put_together(pieces: pd.DataFrame) -> pd.DataFrame:
    """Of each place (a device and step) one row per cause of what lies inside actions; of the rest the longest pieces keep their place.

    Shorter neighbours are summed.
    """
    pieces = pieces.assign(idle_ns=pieces["end_ns"] - pieces["start_ns"], _cause=pieces["cause"].fillna(""))
    alone = ~pieces["in_action"]
    rank = pieces["idle_ns"].where(alone, -1).groupby([pieces["place"], pieces["_cause"]]).rank(method="first", ascending=False)
    long = alone & rank.le(_PIECES)
    ordered = pieces.sort_values(["place", "start_ns"], kind="stable")
    # between two long pieces short ones have a common number
    between = long.reindex(ordered.index).cumsum().reindex(pieces.index).to_numpy(np.int64)
    bucket = np.where(long, between + len(pieces), np.where(alone, between, -1))
    of = pieces.assign(_bucket=bucket).groupby(["place", "_cause", "in_action", "_bucket"], sort=False)
    out = of.agg({"start_ns": "min", "end_ns": "max", "idle_ns": "sum"}).reset_index()
    return out.assign(cause=pd.Series(choose(out["_cause"].ne(""), out["_cause"], None), dtype=object))
