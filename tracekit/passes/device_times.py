"""Which times of device work cannot be right? Takes out what has none, and cuts what ran on past the work after it.

A stream runs one piece of work at a time. Profilers break this in three ways (pytorch/kineto#109, TraceLens#669, HTA#325): work
without device times is written with start 0 and no duration; a start may be that of another epoch; and after a stall a duration may
be orders of magnitude too long, past many later starts on the same stream. The last is told from lawful overlap (streams drawn on
one queue, programmatic launches, ties of a microsecond) piece by piece and never by a share of the span, which such durations stretch.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Rows, integers
from tracekit.trace import RankTrace
from tracekit.vocabulary import Kind
from tracekit.wording import duration
from tracekit.work import WORK

#: No recording is so long: what starts, or lasts, further from the rest than this is no time (ns).
_DAY = 86_400 * 10**9
#: What runs past the next start on its stream by less is left as it is (ns).
FLOOR = 100_000
#: It must be so many times longer than the time to the next start, and than what its like take.
FACTOR = 10
#: Calls of one kernel that show what it takes.
_ENOUGH = 3


def device_times(trace: RankTrace) -> RankTrace:
    """Take out device work without usable times, and end runaway durations at the next start on their stream; both with a finding."""
    trace = _without_impossible(_without_times(trace))
    events = trace.events
    rows = np.flatnonzero(_work(events) & (events["dur"].to_numpy() > 0))
    suspects = _suspects(events, rows) if len(rows) else pd.DataFrame({"sure": []})
    if not len(suspects):
        return trace
    kept = suspects[~suspects["sure"]]
    if len(kept):
        names = _named(events["name"].iloc[kept["row"]])
        says = f"{len(kept)} pieces of device work last until after later work of their own stream has ended, as their like do: {names}; kept as recorded"
        trace = trace.with_finding("same_stream_overlap", "info", says, file=_file(trace), count=len(kept))
    sure = suspects[suspects["sure"]]
    return _cut(trace, sure["row"].to_numpy(np.int64), sure["follows"].to_numpy(np.int64), len(rows)) if len(sure) else trace


def _cut(trace: RankTrace, rows: Rows, follows: Rows, work: int) -> RankTrace:
    """With these rows ended where the next one of their stream starts."""
    events = trace.events
    ts, recorded = events["ts"].to_numpy(), events["dur"].to_numpy()
    dur = recorded.copy()
    dur[rows] = follows - ts[rows]
    longest = rows[np.argmax(recorded[rows])]
    says = (
        f"{len(rows)} of {work} pieces of device work last until long after later work of their own stream has ended: {_named(events['name'].iloc[rows])}; "
        f"the longest says {duration(int(recorded[longest]))} where at most {duration(int(dur[longest]))} is possible. A stream runs one piece at a time: "
        "each was ended at the next start on its stream, so its time is an upper bound"
    )
    order = np.lexsort((-dur, ts, events["thread"].to_numpy()))
    trace = replace(trace, events=events.assign(dur=dur).iloc[order].reset_index(drop=True))
    return trace.with_finding("durations_corrupt", "warning", says, file=_file(trace), count=len(rows))


def _without_times(trace: RankTrace) -> RankTrace:
    """Without device work that starts at the very 0 of the trace's clock, with no duration or far before all else."""
    events = trace.events
    zero = trace.meta.base_ns or 0
    ts, dur = events["ts"].to_numpy(), events["dur"].to_numpy()
    at_zero = _work(events) & (ts == zero)
    rest = ts[~at_zero]
    if not at_zero.any() or not len(rest):
        return trace
    far = rest.min() - zero > (ts + dur)[~at_zero].max() - rest.min()
    gone = at_zero & ((dur == 0) | far)
    if not gone.any():
        return trace
    says = (
        f"{gone.sum()} pieces of device work have no device times (written as start 0): {_named(events['name'][gone])}; they were left out, "
        "so busy time lacks them"
    )
    return _drop(trace, gone).with_finding("device_times_missing", "warning", says, file=_file(trace), count=int(gone.sum()))


def _without_impossible(trace: RankTrace) -> RankTrace:
    """Without slices that start, or last, a day away from everything else; a long one with work after it on its stream is kept for cutting."""
    events = trace.events
    if len(events) < 2:
        return trace
    ts, dur = events["ts"].to_numpy(), events["dur"].to_numpy()
    middle = int(np.partition(ts, len(ts) // 2)[len(ts) // 2])
    astray = (ts > middle + _DAY) | (ts < middle - _DAY)
    endless = (dur > _DAY) & ~astray
    if endless.any():
        rows = np.flatnonzero(_work(events) & ~astray & (dur > 0))
        started = pd.Series(np.where(endless, np.iinfo(np.int64).min, ts)[rows])
        endless[rows[(started.groupby(_codes(events, rows)).transform("max") > ts[rows]).to_numpy()]] = False
    gone = astray | endless
    if not gone.any():
        return trace
    says = f"{gone.sum()} slices start or last more than a day away from all others: {_named(events['name'][gone])}; they were left out"
    return _drop(trace, gone).with_finding("times_impossible", "warning", says, file=_file(trace), count=int(gone.sum()))


def _suspects(events: pd.DataFrame, rows: Rows) -> pd.DataFrame:
    """Work that lasts far past the next start on its stream, and past the end of later work there: row, follows, sure.

    ``sure`` where lawful overlap does not explain it: it outlasts the recording by far, or takes far longer than its like. Communication waits for
    other ranks as long as need be, but calls of one group are done in order.
    """
    order = rows[np.lexsort((events["ts"].to_numpy()[rows], _codes(events, rows)))]
    ts, dur = events["ts"].to_numpy()[order], events["dur"].to_numpy()[order]
    end, stream = ts + dur, _codes(events, order)
    follows, encloses = _successors(stream, ts, end)
    suspect = encloses & (end - follows >= FLOOR) & (end - follows >= FACTOR * (follows - ts))
    if not suspect.any():
        return pd.DataFrame({"row": order[:0], "follows": order[:0], "sure": suspect[:0]})
    host = events["device"].isna().to_numpy()
    ends = (events["ts"] + events["dur"]).to_numpy()
    horizon = max(ends[host].max(initial=0), end[~suspect].max(initial=0))
    outlasts = end - horizon >= FACTOR * np.maximum(horizon - ts, 1)
    unlike = _unlike_its_like(np.asarray(events["name"].cat.codes, np.int64)[order], stream, dur, suspect, outlasts)
    communication = events["kind"].eq(Kind.COMMUNICATION).to_numpy()[order]
    sure = unlike & (outlasts | ~communication) | communication & _past_its_own_group(events, order, communication)
    found: pd.DataFrame = pd.DataFrame({"row": order, "follows": follows, "sure": sure})[suspect]
    return found


def _unlike_its_like(names: Rows, stream: Rows, dur: Rows, suspect: Mask, outlasts: Mask) -> Mask:
    """Whether each is far longer than the same kernel usually takes; where too few calls tell, than the longest unsuspected work of its stream."""
    by_name = pd.Series(np.where(outlasts, np.nan, dur)).groupby(names)
    usual, calls = by_name.transform("median").to_numpy(), pd.Series(dur).groupby(names).transform("size").to_numpy()
    clean = pd.Series(np.where(suspect, 0, dur)).groupby(stream).transform("max").to_numpy()
    out: Mask = dur >= FACTOR * np.where(calls >= _ENOUGH, np.nan_to_num(usual), clean)
    return out


def _past_its_own_group(events: pd.DataFrame, order: Rows, communication: Mask) -> Mask:
    """Communication that lasts far past the end of a later call of its own group on its stream."""
    out = np.zeros(len(order), bool)
    at = np.flatnonzero(communication)
    if len(at):
        group = events["group"].cat.codes.to_numpy()[order[at]].astype(np.int64) + 1
        key = _codes(events, order[at]) * (int(group.max()) + 1) + group
        ts, dur = events["ts"].to_numpy()[order[at]], events["dur"].to_numpy()[order[at]]
        follows, encloses = _successors(key, ts, ts + dur)
        out[at] = encloses & (ts + dur - follows >= FLOOR)
    return out


def _successors(stream: Rows, ts: Rows, end: Rows) -> tuple[Rows, Mask]:
    """Next later start on the same stream (-1: none), and whether any later piece ends no later; any order in, the same out.

    Pieces that start at the same ns say nothing about each other.
    """
    order = np.lexsort((ts, stream))
    s, t, e = stream[order], ts[order], end[order]
    follows, encloses = np.full(len(s), -1, np.int64), np.zeros(len(s), bool)
    bounds = np.flatnonzero(np.r_[True, s[1:] != s[:-1], True]) if len(s) else np.zeros(1, np.int64)
    for first, last in pairwise(bounds.tolist()):
        mine = t[first:last]
        nxt = np.searchsorted(mine, mine, "right")
        has = nxt < len(mine)
        soonest = np.minimum.accumulate(e[first:last][::-1])[::-1]
        at = np.minimum(nxt, len(mine) - 1)
        follows[first:last] = np.where(has, mine[at], -1)
        encloses[first:last] = has & (soonest[at] <= e[first:last])
    back = np.empty(len(s), np.int64)
    back[order] = np.arange(len(s))
    return follows[back], encloses[back]


def _codes(events: pd.DataFrame, rows: Rows) -> Rows:
    """A number for each (device, stream)."""
    device, _ = pd.factorize(integers(events["device"])[rows])
    stream, streams = pd.factorize(integers(events["stream"])[rows])
    return np.asarray(device.astype(np.int64) * max(len(streams), 1) + stream, np.int64)


def _work(events: pd.DataFrame) -> Mask:
    work: Mask = (events["device"].notna() & events["kind"].isin(WORK)).to_numpy()
    return work


def _drop(trace: RankTrace, gone: Mask) -> RankTrace:
    return replace(trace, events=trace.events[~gone].reset_index(drop=True))


def _named(names: pd.Series[str]) -> str:
    """The commonest names with their counts, at most three."""
    counts = names.astype(str).value_counts()
    shown = ", ".join(str(name)[:80] + (f" x {count}" if count > 1 else "") for name, count in counts.iloc[:3].items())
    return shown + (f" and {len(counts) - 3} more" if len(counts) > 3 else "")


def _file(trace: RankTrace) -> str | None:
    return trace.meta.files[0] if trace.meta.files else None
