"""How are the ranks of a group written? As the tables hold them, and as people read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

#: No job is wider; a damaged number must not become a list of so many ranks.
MOST_RANKS = 1 << 20


def canonical(ranks: Iterable[int]) -> str:
    """Ranks as the tables write them.

    >>> canonical([2, 0, 1])
    '0,1,2'
    """
    return ",".join(map(str, sorted(ranks)))


def ranks_in(group_ranks: str) -> int:
    """Number of ranks in such a list.

    >>> ranks_in("0,1,2")
    3
    """
    return group_ranks.count(",") + 1


def compact(ranks: Iterable[int]) -> str:
    """Ranks for people: runs of consecutive numbers are joined.

    >>> compact([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    runs = []
    for _, members in itertools.groupby(enumerate(sorted(set(ranks))), lambda pair: pair[1] - pair[0]):
        numbers = [rank for _, rank in members]
        runs.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ",".join(runs)
