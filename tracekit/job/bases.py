"""Do the ranks count time from the same beginning?

With ``baseTimeNanoseconds`` times are Unix times; without, a trace counts from 1970 or from its host's boot, and nothing in it says which.
Where matched calls link two ranks, ``job.align`` sets their clocks against each other; here is said which ranks nothing links although their
recordings lie far apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracekit.findings import finding
from tracekit.group_ranks import compact
from tracekit.trace import RankFacts
from tracekit.vocabulary import Severity
from tracekit.wording import duration

#: Recordings of one job that were started by hand on each host may lie this far apart; ns.
APART_NS = 60 * 10**9


def bases(ranks: Mapping[tuple[int, int], RankFacts], clocks: pd.DataFrame) -> list[dict[str, Any]]:
    """Findings (rows of ``schema.FINDINGS`` as dicts) on ranks of one capture whose times cannot be compared.

    Args:
        ranks: facts per (rank, capture), on the clocks as recorded.
        clocks: ``job.align``'s table.
    """
    linked = {(int(c), int(r)): int(ref) for c, r, ref in clocks[["capture", "rank", "reference_rank"]].itertuples(index=False)}
    extents = {key: (int(e["start_ns"].iloc[0]), int(e["end_ns"].iloc[0])) for key, f in ranks.items() if len(e := f["extent"]) and e["events"].iloc[0]}
    far: dict[int, int] = {}
    for capture in sorted({c for _, c in extents}):
        here = sorted(rank for rank, c in extents if c == capture)
        start, end = extents[here[0], capture]
        for rank in here[1:]:
            first, last = extents[rank, capture]
            gap = max(first - end, start - last)
            if linked.get((capture, rank)) != linked.get((capture, here[0])) and gap > max(APART_NS, end - start, last - first):
                far[rank] = max(gap, far.get(rank, 0))
    if not far:
        return []
    unplaced = any(f.meta.base_ns is None for (rank, _), f in ranks.items() if rank in far or rank == min(r for r, _ in extents))
    why = "they count from different beginnings (a file lacks baseTimeNanoseconds), or" if unplaced else "they"
    text = (
        f"the recordings of ranks {compact(far)} lie {duration(max(far.values()))} from rank {min(r for r, _ in extents)}'s, and no matched call links their "
        f"clocks: {why} were made at different times; no time of theirs can be compared"
    )
    return [finding("time_bases_differ", Severity.WARNING, text, count=len(far))]
