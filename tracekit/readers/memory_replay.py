"""How high was each level after every record of a memory snapshot? Replayed from the level that stood before the first.

A snapshot lists every block that exists when it is taken, and the last records before that: a ring buffer, which may have
dropped any number of older ones. So what stood before the first record is what the records free without having allocated
it, and what exists at the end without a record of its allocation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.blocks import pair

Ints = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]

#: torch's caching allocator hands out whole multiples of this.
ROUNDING = 512


@dataclass(frozen=True)
class Level:
    """One level (requested bytes that are allocated, bytes of blocks in use) over the records of a device.

    Attributes:
        before: bytes before the first record.
        after: bytes after each record.
        rounded: the same with every block rounded up to ``ROUNDING`` bytes.
        rounded_before: ``before``, rounded likewise.
        freed_before: number of frees of blocks from before the first record.
        freed_before_bytes: their bytes.
        untouched: number of blocks from before the first record that stood to the end.
        untouched_bytes: their bytes.
        repeated: number of allocations at an address where a block still stood: their frees are missing.
        vanished: number of blocks that the records leave standing and the end does not have.
        unexplained_bytes: what the replay says of the end, less what stands there.
    """

    before: int
    after: Ints
    rounded_before: int
    rounded: Ints
    freed_before: int
    freed_before_bytes: int
    untouched: int
    untouched_bytes: int
    repeated: int
    vanished: int
    unexplained_bytes: int

    def peak(self) -> tuple[int, int | None]:
        """The highest level and the record after which it was first reached; None: it stood before the first."""
        return highest(self.before, self.after)


def highest(before: int, after: Ints) -> tuple[int, int | None]:
    """The highest of a level before the first record and after each, and the first record that reached it.

    >>> highest(3, np.array([2, 5, 5])), highest(9, np.array([2]))
    ((5, 1), (9, None))
    """
    at = int(np.argmax(after)) if len(after) else 0
    return (int(after[at]), at) if len(after) and after[at] > before else (before, None)


def replay(addr: npt.ArrayLike, change: npt.ArrayLike, live_addr: npt.ArrayLike, live_size: npt.ArrayLike) -> Level:
    """Replay the records of one device.

    Args:
        addr: address per record.
        change: bytes by which each record changes the level; 0 for records of other kinds.
        live_addr: addresses of the blocks that exist at the end.
        live_size: their sizes, counted like ``change``.

    >>> level = replay([16, 32, 32], [-8, 4, -4], [64], [2])
    >>> level.before, level.after.tolist()
    (10, [2, 6, 2])
    """
    a, c = np.asarray(addr, np.uint64), np.asarray(change, np.int64)
    at, size = np.asarray(live_addr, np.uint64), np.asarray(live_size, np.int64)
    made, freed, old = pair(a, c)
    standing = made[freed == len(c)]
    untouched = ~np.isin(at, a[standing])
    before = int(size[untouched].sum() - c[old].sum())
    after = before + np.cumsum(c)
    rounded_before = int(_rounded(size[untouched]).sum() - _rounded(c[old]).sum())
    return Level(
        before=before,
        after=after,
        rounded_before=rounded_before,
        rounded=rounded_before + np.cumsum(_rounded(c)),
        freed_before=len(old),
        freed_before_bytes=int(-c[old].sum()),
        untouched=int(untouched.sum()),
        untouched_bytes=int(size[untouched].sum()),
        repeated=_repeated(a, c),
        vanished=int((~np.isin(a[standing], at)).sum()),
        unexplained_bytes=int(before + c.sum() - size.sum()),
    )


def _rounded(nbytes: Ints) -> Ints:
    """Away from zero to whole multiples."""
    whole: Ints = np.sign(nbytes) * (-(-np.abs(nbytes) // ROUNDING) * ROUNDING)
    return whole


def _repeated(addr: Addresses, change: Ints) -> int:
    """Allocations at an address whose block the records did not free."""
    rows = np.flatnonzero(change)
    frame = pd.DataFrame({"addr": addr[rows], "made": change[rows] > 0})
    previous = frame.groupby("addr")["made"].shift(fill_value=False)
    return int((frame["made"] & previous).sum())
