"""Which blocks of memory lived from when to when, what made and ended each, and what was it for?

A block is one allocation: made by a positive memory event, ended by its free at the same address. What it was for is
told by the rules of ``owners``.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import choose, integers, named, nullable, take
from tracekit.owners import owners
from tracekit.trace import RankTrace
from tracekit.vocabulary import STEP, Direction, Phase

Rows = npt.NDArray[np.int64]

#: Operators that only hand out memory: whoever called them is the maker.
_ALLOCATING = re.compile(r"^aten::(?:empty|empty_like|empty_strided|empty_permuted|new_empty|new_empty_strided|resize_)$")


def pair(addr: npt.ArrayLike, nbytes: npt.ArrayLike) -> tuple[Rows, Rows, Rows]:
    """Pair allocations with frees by address, for the memory events of one device in order of time.

    At each address the first allocation goes with the first free after it began, the second with the second: an address that
    one thread frees and another takes at once may be written down in the other order. So what is alive always sums to what was
    allocated less what was freed. A free without an allocation before it ends a block that stood before the recording.

    Args:
        addr: address per event.
        nbytes: bytes per event, negative for frees; events of 0 bytes are passed over.

    Returns:
        Three arrays: the event that made each block, the event that ended it (the number of events: none did), and the
        frees of blocks from before the recording.

    >>> pair([16, 32, 16, 64], [8, 4, -8, -2])
    (array([0, 1]), array([2, 4]), array([3]))
    """
    a, b = np.asarray(addr, np.uint64), np.asarray(nbytes, np.int64)
    n = len(a)
    rows = np.flatnonzero(b != 0)
    frame = pd.DataFrame({"row": rows, "addr": a[rows], "made": b[rows] > 0})
    depth = frame["made"].map({True: 1, False: -1}).astype("int64").groupby(frame["addr"]).cumsum()
    lowest = depth.clip(upper=0).groupby(frame["addr"]).cummin()
    before = lowest < lowest.groupby(frame["addr"]).shift(fill_value=0)
    made, freed = frame[frame["made"]], frame[~frame["made"] & ~before]
    ends = made.assign(nth=made.groupby("addr").cumcount()).merge(freed.assign(nth=freed.groupby("addr").cumcount()), on=["addr", "nth"], how="left")
    return made["row"].to_numpy(np.int64), ends["row_y"].fillna(n).to_numpy(np.int64), frame.loc[before, "row"].to_numpy(np.int64)


def lives(samples: pd.DataFrame) -> pd.DataFrame:
    """Every block of one device: made and freed (positions in ``samples``; freed = their number where it never was), addr, nbytes."""
    made, freed, _ = pair(samples["addr"], samples["nbytes"])
    addr, nbytes = samples["addr"].to_numpy(np.uint64), samples["nbytes"].to_numpy(np.int64)
    return pd.DataFrame({"made": made, "freed": freed, "addr": addr[made], "nbytes": nbytes[made]})


def blocks(trace: RankTrace, samples: pd.DataFrame) -> pd.DataFrame:
    """Every block of one device with its owner and what made and ended it.

    Args:
        trace: the rank's trace, after the passes.
        samples: its memory events of one device, in order of time, RangeIndex.

    Returns:
        As :func:`lives`, with category, rule (``owners.RULES``), layer (of activations: module path, or null) and, for
        ``made`` and ``freed`` each, the columns of :func:`calls`: ``made_by``, ``made_layer``, ``freed_by`` and so on.
    """
    out = lives(samples)
    made, freed = out["made"].to_numpy(np.int64), out["freed"].to_numpy(np.int64)
    category, rule = owners(trace, samples, made, freed)
    event = integers(samples["event"])
    makers = calls(trace, event[made]).add_prefix("made_")
    enders = calls(trace, np.append(event, -1)[freed]).add_prefix("freed_")
    layer = choose(category == "activation", makers["made_layer"].to_numpy(object), None)
    return pd.concat([out.assign(category=category, rule=rule, layer=layer), makers, enders], axis=1)


def calls(trace: RankTrace, events: Rows) -> pd.DataFrame:
    """What each of some events (-1: none) says of the call that it is.

    Returns:
        by (name of the operator or range; of an operator that only hands out memory, what called it; null in no call but
        the step), layer (module path), layer_source, direction (forward, backward, recompute, optimizer, or null), stage,
        microbatch, step.
    """
    table = trace.events
    by = _callers(table, events)
    phase = take(table["phase"].astype(object).to_numpy(), events)
    again = take(table["recompute"].to_numpy(object), events)
    columns: dict[str, Any] = {
        "by": take(table["name"].astype(object).to_numpy(), by),
        "layer": take(table["layer"].astype(object).to_numpy(), events),
        "layer_source": take(table["layer_source"].astype(object).to_numpy(), events),
        "direction": choose((again == True) & (phase != Phase.OPTIMIZER), Direction.RECOMPUTE.value, phase),  # noqa: E712
    }
    columns = {name: choose(pd.notna(values), values, None) for name, values in columns.items()}
    for name in ("stage", "microbatch", "step"):
        columns[name] = nullable(np.where(events >= 0, np.append(integers(table[name]), -1)[events], -1))
    return pd.DataFrame(columns)


def _callers(table: pd.DataFrame, events: Rows) -> Rows:
    """Row of the call that each event stands for: up past operators that only hand out memory, -1 for a step."""
    allocating = named(table, lambda name: bool(_ALLOCATING.match(name)))
    parent, at = integers(table["parent"]), events.copy()
    is_range = named(table, lambda name: bool(STEP.match(name)))
    for _ in range(8):
        up = np.where(at >= 0, np.append(parent, -1)[at], -1)
        climbs = (at >= 0) & np.append(allocating, False)[at] & (up >= 0) & ~np.append(is_range, False)[up]
        if not climbs.any():
            break
        at = np.where(climbs, up, at)
    return np.where((at >= 0) & ~np.append(is_range, False)[at], at, -1)
