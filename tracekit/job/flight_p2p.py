"""Which receive belongs to which send in Flight Recorder dumps? Counted by group and direction.

Sends and receives have a numbering of their own (``p2p_seq_id``), which each rank counts for itself over all its peers: it
is the same at both ends in a group of two only. So the k-th send from one rank to another is the k-th receive there, where
both dumps hold every call since the first; in a group of two, entries of the same number pair, whatever a full ring dropped.
Else equally many pair by their order if their sizes agree; for the rest it is unknown, and no rank is blamed.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.vocabulary import Collective

P2P = ["group", "group_desc", "group_ranks", "src", "dst", "sends", "recvs", "paired", "size_mismatches", "unpaired", "matched_by"]


def pair_dumps(entries: pd.DataFrame, dumped: list[int], whole: frozenset[int]) -> pd.DataFrame:
    """One row per group and direction.

    Args:
        entries: Flight Recorder entries of all ranks in order, with ``rank``, ``peer`` and ``p2p``.
        dumped: ranks whose dump is here.
        whole: of them those whose dump holds every call since the first.

    Returns:
        Columns ``P2P``: ``unpaired`` are sends or receives without their other end, null where a dump does not tell;
        ``matched_by`` is order, number, count, or null where nothing pairs.
    """
    ends = entries[entries["p2p"] & entries["peer"].notna() & entries["kind"].isin([Collective.SEND, Collective.RECV])]
    send = ends["kind"].eq(Collective.SEND).to_numpy()
    rank, peer = ends["rank"].to_numpy(np.int64), ends["peer"].to_numpy(np.int64)
    ends = ends.assign(send=send, src=np.where(send, rank, peer), dst=np.where(send, peer, rank))
    rows = [_direction(part, set(dumped), whole) for _, part in ends.groupby(["gid", "src", "dst"])]
    return pd.DataFrame(rows, columns=P2P).astype({"paired": "Int64", "size_mismatches": "Int64", "unpaired": "Int64"})


def _direction(part: pd.DataFrame, dumped: set[int], whole: frozenset[int]) -> dict[str, object]:
    """The sends and receives of one group from one rank to another."""
    sends, recvs = part[part["send"]], part[~part["send"]]
    head = part.iloc[0]
    both = {int(head["src"]), int(head["dst"])}
    by = None
    if both <= whole:
        by, n = "order", min(len(sends), len(recvs))
        pairs = (sends["nbytes"].array[:n], recvs["nbytes"].array[:n])
    elif both <= dumped and head["group_ranks"].count(",") == 1:
        by, nth = "number", [frame.groupby("seq").cumcount() for frame in (sends, recvs)]
        found = sends.assign(nth=nth[0]).merge(recvs.assign(nth=nth[1]), on=["seq", "nth"], suffixes=("_s", "_r"))
        # numbers drift apart where one end batches what the other does not: another size is another pair
        found = found[found["nbytes_s"].eq(found["nbytes_r"]).fillna(True)]
        pairs = (found["nbytes_s"].array, found["nbytes_r"].array)
    elif len(sends) == len(recvs) and pd.Series(sends["nbytes"].array).equals(pd.Series(recvs["nbytes"].array)):
        by, pairs = "count", (sends["nbytes"].array, recvs["nbytes"].array)
    else:
        pairs = (sends["nbytes"].array[:0], recvs["nbytes"].array[:0])
    paired = len(pairs[0])
    return {
        "group": head["group"],
        "group_desc": head["group_desc"],
        "group_ranks": head["group_ranks"],
        "src": int(head["src"]),
        "dst": int(head["dst"]),
        "sends": len(sends),
        "recvs": len(recvs),
        "paired": paired if by else None,
        "size_mismatches": int((pd.Series(pairs[0]) != pd.Series(pairs[1])).fillna(False).sum()) if by else None,
        "unpaired": len(sends) + len(recvs) - 2 * paired if by in ("order", "count") else None,
        "matched_by": by,
    }
