"""Which blocks does a memory snapshot tell of, and which of its categories can be told at a peak?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit import held as holding
from tracekit import schema, stack_owners
from tracekit.blocks import lives
from tracekit.owners import CATEGORIES, CATEGORY
from tracekit.trace import RankTrace


def told_by_stacks(trace: RankTrace, samples: pd.DataFrame, at: stack_owners.Places, *, timed: bool) -> pd.DataFrame:
    """The blocks of a snapshot's records with what their stacks tell.

    Args:
        trace: the rank's trace, with the ranges of optimizer steps that torch noted, if any.
        samples: the records of one device, in order.
        at: where they stand in training.
        timed: whether they have times.

    Returns:
        Columns of ``blocks.blocks``.
    """
    alive = lives(samples)
    made, freed = alive["made"].to_numpy(np.int64), alive["freed"].to_numpy(np.int64)
    events = trace.events
    ends = events.loc[events["name"].astype(object).fillna("").str.startswith("Optimizer.step#"), ["ts", "dur"]].sum(axis=1)
    ended = np.searchsorted(samples["ts"].to_numpy(np.int64), np.sort(ends.to_numpy(np.int64)), "right") - 1 if timed else np.empty(0, np.int64)
    category, rule = stack_owners.owners(at, made, freed, alive["nbytes"].to_numpy(np.int64), ended)
    direction, maker = (np.array([*values, None], object) for values in (at.direction(), at.maker))
    told = {"made_by": maker[made], "made_direction": direction[made], "freed_by": maker[freed], "freed_direction": direction[freed]}
    return holding.unowned(alive).assign(category=category, rule=rule, **told)


def stood_before(trace: RankTrace, samples: pd.DataFrame, alive: pd.DataFrame, at: stack_owners.Places, device: int) -> pd.DataFrame:
    """Blocks that stood before a snapshot's records, as far as a stack tells what they were for.

    Args:
        trace: the rank's trace.
        samples: the records of one device, in order.
        alive: the blocks that they made (``told_by_stacks``).
        at: where they stand in training.
        device: its index.

    Returns:
        addr, nbytes, rule, category, layer (null), made (-1), freed (position in ``samples``; their number where it never was) and seen.
    """
    nbytes = samples["nbytes"].to_numpy(np.int64)
    freed = holding.frees_from_before(nbytes, alive["freed"].to_numpy(np.int64))
    sizes = alive["nbytes"].to_numpy(np.int64)
    gone = stack_owners.freed_from_before(at, freed, -nbytes[freed], sizes, alive["rule"].to_numpy(object))
    table = trace.stated.get("memory_standing", schema.empty(schema.MEMORY_STANDING))
    several = len(trace.stated["memory_snapshots"]["device"].unique()) < len(trace.stated["memory_snapshots"])
    stood = table[table["device"].eq(device) & (not several)]
    rule = stack_owners.standing(stack_owners.places(stood.assign(stack=stood["stack"].astype("Int64")), trace.stated["memory_stacks"]))
    columns = {
        "addr": np.concatenate((samples["addr"].to_numpy(np.uint64)[freed], stood["addr"].to_numpy(np.uint64))),
        "nbytes": np.concatenate((-nbytes[freed], stood["nbytes"].to_numpy(np.int64))),
        "rule": np.concatenate((gone, rule)),
        "freed": np.concatenate((freed, np.full(len(stood), len(samples)))),
    }
    old = pd.DataFrame(columns).assign(made=-1, seen=True, layer=None)
    old = old[old["rule"].ne("before_recording")]
    return old.assign(category=[CATEGORY[r] for r in old["rule"]]).reset_index(drop=True)


def untold(held: pd.DataFrame, peak: int) -> frozenset[str]:
    """Categories that may be among what is not known of a peak, none of it having been told."""
    sums = held.groupby("category")["nbytes"].sum()
    known = {str(c) for c, n in sums.items() if n > 0 and c != "unknown"}
    known |= {"temporary"} if "communication" in known else set()  # communication buffers are temporary memory
    # an amount of 0 is only sure where nothing is left that could be it
    return frozenset(CATEGORIES[:-1]) - known if int(sums.drop("unknown", errors="ignore").sum()) < peak else frozenset()
