"""Which CPU memory was freed where torch saw nothing? Adds those frees to the samples of a CPU run.

torch notes the allocations and frees of the threads that it profiles. What gloo's threads let go of last is freed without a
memory event, and Total Allocated keeps counting it. That is certain once its memory is handed out again: from then on
the block is gone, and every total is lower by it. Between the real free and that moment the level is too high.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.columns import Rows
from tracekit.trace import RankTrace


def unseen_frees(trace: RankTrace) -> RankTrace:
    """Insert a free just before the allocation that took a block's memory, and lower the totals from there."""
    samples = trace.samples
    rows = np.flatnonzero((samples["device_type"].eq(0).fillna(False) & samples["addr"].notna()).to_numpy(bool))
    if trace.meta.device_type != "cpu" or not len(rows):
        return trace
    made, taken = lost(samples["addr"].to_numpy(np.uint64)[rows], samples["nbytes"].to_numpy(np.int64)[rows])
    if not len(made):
        return trace
    made, taken = rows[made], rows[taken]
    nbytes = samples["nbytes"].to_numpy(np.int64)[made]
    gone = np.zeros(len(samples), np.int64)
    np.add.at(gone, taken, nbytes)
    less = np.where(samples["device_type"].eq(0).fillna(False), np.cumsum(gone), 0)
    kept = samples.assign(allocated=samples["allocated"] - less)
    total = kept["allocated"].iloc[taken] - samples["nbytes"].iloc[taken]
    frees = samples.iloc[made].assign(
        ts=samples["ts"].to_numpy()[taken],
        thread=pd.array([None] * len(made), "Int32"),  # a thread of which nothing was recorded
        nbytes=-nbytes,
        allocated=total.array,
    )
    # each free stands right before the allocation that took its memory
    place = np.concatenate((np.arange(len(samples)), taken - 0.5))
    joined = pd.concat([kept, frees]).iloc[np.argsort(place, kind="stable")].reset_index(drop=True)
    says = (
        f"{len(made)} blocks of CPU memory ({int(nbytes.sum())} bytes) were freed on threads that torch does not profile; each is held to live "
        "until its memory was handed out again, so levels may be too high by it before that"
    )
    return replace(trace, samples=joined).with_finding("memory_frees_unseen", "info", says, count=len(made))


def lost(addr: npt.ArrayLike, nbytes: npt.ArrayLike) -> tuple[Rows, Rows]:
    """Allocations whose free is not among the events although their memory was handed out again.

    At one address, of several allocations in a row only as many lived as frees follow them (the order of an address that
    one thread frees and another takes at once may be swapped). Of blocks that nothing freed, those are lost that a later
    allocation overlaps.

    Args:
        addr: address per event, in order of time.
        nbytes: bytes per event, negative for frees.

    Returns:
        The events that made the lost blocks, and for each the allocation that took its memory.

    >>> lost([16, 16, 16, 64, 60], [8, 8, -8, 4, 8])
    (array([0, 3]), array([1, 4]))
    """
    a, b = np.asarray(addr, np.uint64), np.asarray(nbytes, np.int64)
    rows = np.flatnonzero(b != 0)
    frame = pd.DataFrame({"row": rows, "addr": a[rows], "made": b[rows] > 0}).sort_values("addr", kind="stable")
    new_address = frame["addr"].ne(frame["addr"].shift())
    run = (new_address | frame["made"].ne(frame["made"].shift())).cumsum()
    length = run.groupby(run).transform("size")
    left = length - run.groupby(run).cumcount()  # allocations of the run from this one on
    frees = length.groupby(run).first().reindex(run + 1).fillna(0).to_numpy()
    next_address = frame["addr"].groupby(run).first().reindex(run + 1).to_numpy()
    frees = np.where(next_address == frame["addr"].to_numpy(), frees, 0)
    overridden = frame["made"].to_numpy() & (left.to_numpy() > np.maximum(frees, 1))
    last_of_all = (frame["made"] & frame["addr"].ne(frame["addr"].shift(-1))).to_numpy()
    following = frame["row"].shift(-1).fillna(-1).to_numpy(np.int64)
    made, taken = frame["row"].to_numpy()[overridden], following[overridden]
    never = np.sort(frame["row"].to_numpy()[last_of_all])
    over = _overlapped(a, b, never)
    made, taken = np.concatenate((made, never[over < len(a)])), np.concatenate((taken, over[over < len(a)]))
    order = np.lexsort((made, taken))
    return made[order], taken[order]


def _overlapped(addr: npt.NDArray[np.uint64], nbytes: Rows, blocks: Rows) -> Rows:
    """First later allocation that overlaps each block; the number of events where none does."""
    first = np.full(len(blocks), len(addr), np.int64)
    events = np.flatnonzero(nbytes > 0)
    if not len(blocks) or not len(events):
        return first
    order = np.argsort(addr[blocks], kind="stable")
    start = addr[blocks][order]
    stop = start + nbytes[blocks][order].astype(np.uint64)
    reach = addr[events] + nbytes[events].astype(np.uint64)
    at = np.searchsorted(start, addr[events], "right") - 1
    # an allocation that nothing freed is itself the nearest block: then the one before it is asked too
    for near in (at - 1, at, at + 1):
        which = np.clip(near, 0, len(start) - 1)
        overlaps = (near == which) & (addr[events] < stop[which]) & (reach > start[which]) & (events > blocks[order][which])
        np.minimum.at(first, order[which[overlaps]], events[overlaps])
    return first
