"""What do a rank's facts say on the reference rank's clock?

Every time of every table is moved by the same function of time, ``clock_fit``'s model turned round, so that equal times stay
equal and order stays order. A rank whose clock needs no correction keeps its tables as they are. With a drift, durations change
by its millionths too; where a table promises that parts sum to a whole, they are kept inside the new whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.trace import RankFacts

Ints = npt.NDArray[np.int64]
#: Columns that hold a time, not a length of time.
_TIME = re.compile(r"(?:^|_)(?:start|end|ts|created)_ns$")


class Clock(NamedTuple):
    """A clock against its reference: ahead by ``offset_ns`` at ``origin_ns`` (on the reference), faster by ``drift`` (ns per ns)."""

    origin_ns: int
    offset_ns: int
    drift: float

    def true(self, at_ns: Ints) -> Ints:
        """Times on the reference clock, of times on this one.

        >>> Clock(0, 100, 0.0).true(np.array([150])).tolist()
        [50]
        """
        moved: Ints = at_ns - self.offset_ns
        if not self.drift:
            return moved
        share = self.drift / (1 + self.drift)
        out: Ints = moved - np.rint((moved - self.origin_ns) * share).astype(np.int64)
        return out


def retime(ranks: Mapping[tuple[int, int], RankFacts], clocks: pd.DataFrame) -> dict[tuple[int, int], RankFacts]:
    """The facts of all ranks on their reference clocks; the very same objects where nothing changes.

    Args:
        ranks: facts per (rank, capture).
        clocks: ``job.align``'s table.
    """
    known = {
        (int(rank), int(capture)): Clock(int(origin), int(offset), 0.0 if pd.isna(drift) else float(drift) * 1e-6)
        for rank, capture, origin, offset, drift in clocks[["rank", "capture", "origin_ns", "offset_ns", "drift_ppm"]].itertuples(index=False)
    }
    return {key: _moved(facts, clock) if (clock := known.get(key)) and (clock.offset_ns or clock.drift) else facts for key, facts in ranks.items()}


def _moved(facts: RankFacts, clock: Clock) -> RankFacts:
    tables = {name: _table(frame, clock) for name, frame in facts.tables.items()}
    if clock.drift:
        for name, keep in (("calls", _calls), ("p2p_calls", _calls), ("actions", _actions), ("exposed", _exposed)):
            if len(facts[name]):
                tables[name] = keep(facts[name], tables[name])
    return RankFacts(facts.meta, tables)


def _table(frame: pd.DataFrame, clock: Clock) -> pd.DataFrame:
    times = [name for name in frame.columns if _TIME.search(name)]
    return frame.assign(**{name: _column(frame[name], clock) for name in times}) if times and len(frame) else frame


def _column(times: pd.Series[Any], clock: Clock) -> pd.Series[Any]:
    known = times.notna().to_numpy(bool)
    at = times.to_numpy(np.int64, na_value=0) if times.dtype.name == "Int64" else times.to_numpy(np.int64)
    moved = clock.true(at)
    return pd.Series(pd.arrays.IntegerArray(moved, ~known) if times.dtype.name == "Int64" else moved, index=times.index)


def _calls(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """A call is exposed for no longer than it lasts, and one that was all exposed still is."""
    before, after = old["end_ns"] - old["start_ns"], new["end_ns"] - new["start_ns"]
    return new.assign(exposed_ns=old["exposed_ns"].where(old["exposed_ns"].ne(before).fillna(True), after).clip(upper=after))


def _actions(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Compute, exposed collectives and inner gap fill the span of each action, and their fresh parts what is left of it."""
    span, left = new["end_ns"] - new["start_ns"], new["end_ns"] - new["fresh_start_ns"]
    compute, exposed = _scaled(old, ("compute_ns", "exposed_collective_ns"), old["end_ns"] - old["start_ns"], span)
    fresh = _scaled(old, ("fresh_compute_ns", "fresh_exposed_collective_ns"), old["end_ns"] - old["fresh_start_ns"], left)
    return new.assign(
        compute_ns=compute,
        exposed_collective_ns=exposed,
        inner_gap_ns=span - compute - exposed,
        fresh_compute_ns=fresh[0],
        fresh_exposed_collective_ns=fresh[1],
    )


def _scaled(frame: pd.DataFrame, parts: tuple[str, str], before: pd.Series[Any], after: pd.Series[Any]) -> tuple[pd.Series[Any], pd.Series[Any]]:
    """Two parts of a whole as the whole changes; what fills it entirely still does."""
    share = (after / before.where(before.ne(0), 1)).astype("float64")
    first = (frame[parts[0]] * share).round().astype("int64").clip(upper=after)
    both = ((frame[parts[0]] + frame[parts[1]]) * share).round().astype("int64").clip(upper=after)
    return first, both - first


def _exposed(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """A piece keeps its length: the pieces of a step and its other parts sum to the step on the rank's own clock."""
    return new.assign(end_ns=new["start_ns"] + (old["end_ns"] - old["start_ns"]))
