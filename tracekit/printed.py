"""Do numbers that nccl-tests printed agree with one another, given how it rounds them?

Times are printed with two digits behind the point below 100 µs, one below 10,000 µs, none above; bandwidths with two, of
newer versions fewer from 1000 GB/s on (NVIDIA/nccl-tests, BenchTime in src/common.cu and getFloatStr in src/util.cu). A
printed number stands for every number that would be printed so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
#: Room for the rounding of float64 itself.
_ROOM = 1e-9


class Spread(NamedTuple):
    """Lowest and highest algorithm bandwidth, GB/s, that a row's printed numbers allow; the lowest is the higher where they contradict each other."""

    low: Numbers
    high: Numbers

    @property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Whether algbw is size over time."""
        fits: npt.NDArray[np.bool_] = self.low <= self.high * (1 + _ROOM)
        return fits


def algbw_spread(nbytes: npt.ArrayLike, duration_ns: npt.ArrayLike, algbw_gbps: npt.ArrayLike) -> Spread:
    """What the true algorithm bandwidth may have been, by size over time and by the printed algbw.

    >>> spread = algbw_spread([8589934592], [63896000], [134.44])
    >>> bool(spread.fits[0]), [round(float(b[0]), 3) for b in spread]
    (True, [134.435, 134.437])
    """
    size, time, printed = (np.asarray(a, np.float64) for a in (nbytes, duration_ns, algbw_gbps))
    half = _half_ns(time)
    with np.errstate(divide="ignore", invalid="ignore"):
        slowest, fastest = size / (time + half), np.where(time > half, size / (time - half), np.inf)
    around = _half_gbps(printed)
    return Spread(np.maximum(printed - around, slowest), np.minimum(printed + around, fastest))


def busbw_fits(spread: Spread, busbw_gbps: npt.ArrayLike, factor: float) -> npt.NDArray[np.bool_]:
    """Whether busbw is algbw times a factor.

    >>> busbw_fits(algbw_spread([8589934592], [63896000], [134.44]), [235.26], 1.75).tolist()
    [True]
    """
    printed = np.asarray(busbw_gbps, np.float64)
    around = _half_gbps(printed) + _ROOM * printed
    fits: npt.NDArray[np.bool_] = spread.fits & (spread.low * factor <= printed + around) & (printed - around <= spread.high * factor)
    return fits


def _half_ns(time: Numbers) -> Numbers:
    """Half of the last digit of a printed time; of times past 1e7 µs newer versions print two digits in all."""
    us = time / 1e3
    power = 10.0 ** np.floor(np.log10(np.maximum(us, 1.0)))
    short = np.isclose(us / power * 10, np.round(us / power * 10), rtol=0, atol=1e-9)
    rest: Numbers = np.where(us >= 1e7, np.where(short, power / 20, 0.5), 0.5)
    return np.asarray(np.where(us < 100, 0.005, np.where(us < 10_000, 0.05, rest)) * 1e3, np.float64)


def _half_gbps(value: Numbers) -> Numbers:
    return np.asarray(np.where(value < 1000, 0.005, np.where(value < 10_000, 0.05, 0.5)), np.float64)
