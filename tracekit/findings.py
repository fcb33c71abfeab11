"""What is a health finding? One row of ``schema.FINDINGS``, made in one place by everybody who meets something to be told."""

from __future__ import annotations

from typing import Any


def finding(
    code: str, severity: str, message: str, *, file: str | None = None, rank: int | None = None, offset: int | None = None, count: int | None = None
) -> dict[str, Any]:
    """A row of ``schema.FINDINGS``.

    Args:
        code: short name, such as ``rank_missing``.
        severity: info, warning or error (``vocabulary.Severity``).
        message: what is wrong, how many and where, and what to do.
        file: the file it is about.
        rank: the rank it is about.
        offset: the byte in the file.
        count: how many records are concerned.

    >>> finding("rank_missing", "warning", "rank 1 of 2 missing", count=1)["count"]
    1
    """
    return {"code": code, "severity": str(severity), "message": message, "file": file, "rank": rank, "offset": offset, "count": count}
