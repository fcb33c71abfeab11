"""Which ranks and which window does somebody write down? ``0-3,8`` and ``1.2s:1.3s``."""

from __future__ import annotations

import re

from tracekit.errors import UsageError

_RANKS = re.compile(r"^\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*$")
#: Ranks that may be named together, each as often as it is.
_MOST_RANKS = 100_000
_TIME = re.compile(r"^(?P<number>\d{1,15}(?:\.\d{1,12})?)(?P<unit>ns|us|µs|ms|s|min)$")
_UNIT_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}


def window_in(text: str) -> tuple[int, int]:
    """A window such as ``1.2s:1.3s`` in ns since the run's first event.

    Raises:
        UsageError: it is none, or ends before it begins.

    >>> window_in("1.2s:1300ms")
    (1200000000, 1300000000)
    """
    first, colon, last = text.replace(" ", "").partition(":")
    times = [_TIME.match(part) for part in (first, last)]
    if not colon or times[0] is None or times[1] is None:
        raise UsageError(f"{text[:60]!r} is no window; write two times since the run's first event, such as 1.2s:1.3s or 800us:1ms")
    start, end = (_ns(m["number"], _UNIT_NS[m["unit"]]) for m in times if m is not None)
    if end <= start:
        raise UsageError(f"the window {text[:60]!r} ends before it begins")
    return start, end


def _ns(number: str, unit: int) -> int:
    """A decimal number of units in ns, exactly; what is finer than a ns is cut.

    >>> _ns("1.0000000019", 10**9)
    1000000001
    """
    whole, _, rest = number.partition(".")
    return int(whole) * unit + (int(rest) * unit // 10 ** len(rest) if rest else 0)


def ranks_in(text: str | None) -> frozenset[int] | None:
    """Ranks such as ``0-3,8``; None, for all, where nothing is given.

    Raises:
        UsageError: it is no list of ranks.

    >>> sorted(ranks_in("0-2,8"))
    [0, 1, 2, 8]
    """
    if text is None or not text.strip():
        return None
    flat = re.sub(r"\s", "", text)
    if len(flat) > 10_000 or not _RANKS.match(flat):
        raise UsageError("ranks must be numbers and ranges, such as 0-3,8")
    ranges = [range(int(first), int(last or first) + 1) for first, _, last in (part.partition("-") for part in flat.split(","))]
    if not all(ranges):
        raise UsageError("ranks must be numbers and ranges, such as 0-3,8")
    if sum(map(len, ranges)) > _MOST_RANKS:
        raise UsageError(f"these are more than {_MOST_RANKS:,} ranks; name fewer, such as 0-3,8")
    return frozenset(rank for numbers in ranges for rank in numbers)
