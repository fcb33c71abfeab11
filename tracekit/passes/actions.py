"""Which pipeline action does an event run in? Sets ``stage``, ``action`` and ``microbatch`` from action ranges and labels of kernels.

The range of an action stands on the thread that drives the schedule while its backward may run on another one, so
events are led to actions by time, the innermost range first. Two overlapped actions in one range are told apart later
by the phase of each event, which this pass leaves to ``layers``.

Ranges of other frameworks name forward and backward, at most with a microbatch: they count where the rank stands in a pipeline, and
``infer_actions`` finds their stage.

Device work may also name its action itself (``F_c2_1`` among its arguments, or ``stage_F1`` for a name). Where it names a W, the
B of that microbatch is the input gradient alone, I in our terms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.action_ranges import action_ranges
from tracekit.columns import by_name, choose, integers, nullable
from tracekit.intervals import parents
from tracekit.passes.link import on_cpu_thread
from tracekit.pipeline_place import exchanges, place_in_pipeline
from tracekit.trace import RankTrace
from tracekit.vocabulary import GPIPE_RANGE, Kind, parse_actions, parse_label

_LETTERS = ["F", "B", "I", "W"]


def actions(trace: RankTrace) -> RankTrace:
    """Fill ``stage``, ``action`` and ``microbatch`` of CPU events inside an action's range, and of device work that names its own."""
    trace = _from_labels(trace)
    events = trace.events
    ranges = _ranges(events, named=_parse_action)
    if not len(ranges):
        ranges = _ranges(events, named=_parse_gpipe)
    if not len(ranges) and not events["action"].notna().any() and place_in_pipeline(trace, exchanges(trace)) is not None:
        ranges = action_ranges(events)
        ranges = ranges.assign(stage=nullable(np.full(len(ranges), -1)), outer=-1)
    if not len(ranges):
        return trace
    at = _innermost(ranges, events["ts"].to_numpy())
    inside = (at >= 0) & on_cpu_thread(events)
    at = np.maximum(at, 0)
    stage, microbatch = (integers(ranges[c])[at] for c in ("stage", "microbatch"))
    action = choose(inside, ranges["action"].to_numpy(object)[at], events["action"].to_numpy(object))
    return trace.with_events(
        stage=nullable(np.where(inside, stage, integers(events["stage"]))),
        microbatch=nullable(np.where(inside, microbatch, integers(events["microbatch"]))),
        action=pd.Categorical(action, categories=_LETTERS),
    )


def _from_labels(trace: RankTrace) -> RankTrace:
    """The trace with the actions that device work names itself; labels that are no actions are dropped."""
    events = trace.events
    work = (events["device"].notna() & events["kind"].isin([Kind.COMPUTE, Kind.COMMUNICATION])).to_numpy()
    label = choose(work, by_name(events, parse_label), None)
    texts = events["action"].cat
    if len(texts.categories):
        stated = np.array([*(parse_label(str(c)) for c in texts.categories), None], object)[texts.codes.to_numpy()]
        label = choose(work & pd.notna(stated), stated, label)
    rows = np.flatnonzero(pd.notna(label))
    found = pd.DataFrame(label[rows].tolist(), columns=["stage", "action", "microbatch"], dtype=object)
    letters = set(found["action"])
    if not ("F" in letters and letters & {"B", "I"}):
        return trace.with_events(action=pd.Categorical([None] * len(events), categories=_LETTERS)) if len(texts.categories) else trace
    places = pd.MultiIndex.from_frame(found[["stage", "microbatch"]].astype("Int64").fillna(-1))
    split = places.isin(places[found["action"].eq("W")])
    action = np.full(len(events), None, object)
    action[rows] = np.where(split & found["action"].eq("B"), "I", found["action"])
    stage, microbatch = np.full(len(events), -1, np.int64), np.full(len(events), -1, np.int64)
    stage[rows], microbatch[rows] = found["stage"].astype("Int64").fillna(-1), found["microbatch"]
    return trace.with_events(stage=nullable(stage), microbatch=nullable(microbatch), action=pd.Categorical(action, categories=_LETTERS))


def _parse_action(name: str) -> tuple[int | None, str, int] | None:
    found = parse_actions(name)
    return found[0] if len(found) == 1 else None


def _parse_gpipe(name: str) -> tuple[int | None, str, int] | None:
    m = GPIPE_RANGE.match(name)
    return (None, m["what"][0], int(m["microbatch"])) if m else None


def _ranges(events: pd.DataFrame, named: Callable[[str], tuple[int | None, str, int] | None]) -> pd.DataFrame:
    """Action ranges in order of start: start_ns, end_ns, stage, action, microbatch, and row of the enclosing one."""
    meaning = {c: found for c in events["name"].cat.categories if (found := named(str(c)))}
    rows = events[events["kind"].eq(Kind.RANGE).to_numpy() & events["name"].isin(list(meaning)).to_numpy()]
    rows = rows.sort_values(["ts", "dur"], ascending=[True, False], kind="stable")
    rows_of = [meaning[n] for n in rows["name"]]
    frame = pd.DataFrame(
        {
            "start_ns": rows["ts"].to_numpy(np.int64),
            "end_ns": (rows["ts"] + rows["dur"]).to_numpy(np.int64),
            "stage": pd.array([stage for stage, _, _ in rows_of], dtype="Int64"),
            "action": [action for _, action, _ in rows_of],
            "microbatch": pd.array([microbatch for _, _, microbatch in rows_of], dtype="Int64"),
        }
    )
    frame["outer"] = parents(np.zeros(len(frame)), frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
    return frame


def _innermost(ranges: pd.DataFrame, ts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row of the innermost range that holds each time; -1 outside all."""
    at = np.searchsorted(ranges["start_ns"].to_numpy(), ts, "right") - 1
    end, outer = ranges["end_ns"].to_numpy(), ranges["outer"].to_numpy()
    while True:
        over = np.flatnonzero((at >= 0) & (ts >= end[np.maximum(at, 0)]))
        if not len(over):
            return at.astype(np.int64)
        at[over] = outer[at[over]]
