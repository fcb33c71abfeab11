"""What does a request for a part of a timeline ask for? Every parameter checked; one line says what is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tracekit.errors import UsageError

_WHOLE = re.compile(r"^-?\d{1,18}$")


def whole(query: Mapping[str, str], name: str, least: int, most: int, otherwise: int | None = None) -> int:
    """A whole number between two bounds.

    Raises:
        UsageError: it is missing where there is no default, no number, or out of bounds.
    """
    text = query.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not _WHOLE.match(text):
        raise UsageError(f"{name} must be a whole number")
    if not least <= int(text) <= most:
        raise UsageError(f"{name} must lie between {least} and {most}")
    return int(text)


def between(query: Mapping[str, str]) -> tuple[int, int]:
    """The window ``t0``, ``t1``: ns since the run's first event.

    Raises:
        UsageError: one is missing, or the window ends before it begins.
    """
    start, end = (whole(query, name, -(10**18), 10**18) for name in ("t0", "t1"))
    if end <= start:
        raise UsageError("the window ends before it begins: t1 must be later than t0")
    return start, end
