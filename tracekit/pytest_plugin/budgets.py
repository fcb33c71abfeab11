"""Which limits must a test's recordings keep? Those of its marks ``tracekit_budget``, in the grammar of every other limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UsageError
from tracekit.pytest_plugin.options import Options
from tracekit.pytest_plugin.told import Finding, Told

if TYPE_CHECKING:
    from tracekit.compare.budgets import Budget

MARK = "tracekit_budget"


def limits_of(item: pytest.Item) -> list[Budget]:
    """The limits of a test; one that is none fails it, in one line."""
    __tracebackhide__ = True
    texts = [text for mark in item.iter_markers(MARK) for text in (*mark.args, *mark.kwargs.values())]
    if not texts:
        if item.get_closest_marker(MARK):
            pytest.fail(f"{MARK} names no limit: write @pytest.mark.{MARK}('bubble_ratio <= 0.15')", pytrace=False)
        return []
    from tracekit.compare.budgets import budget

    try:
        return [budget(text if isinstance(text, str) else repr(text)) for text in texts]
    except UsageError as e:
        pytest.fail(f"{MARK}: {e}", pytrace=False)


def check_budgets(item: pytest.Item, told: Told, options: Options) -> None:
    """Hold every recording of a test to its limits, and fail it where one is broken or, unless a setting says otherwise, unknown."""
    __tracebackhide__ = True
    limits = limits_of(item)
    if not limits:
        return
    if not told.recordings:
        pytest.fail(f"{MARK}: the test recorded nothing to hold to it; use the fixture tracekit, and its record or analyze", pytrace=False)
    from tracekit.compare.budgets import held
    from tracekit.thresholds import Verdict

    wrong: list[str] = []
    for recording in told.recordings:
        for row in (held(limit, recording.snapshots) for limit in limits):
            if row["verdict"] == Verdict.UNCHANGED.value:
                continue
            line = _line(row, recording.number, len(told.recordings))
            broken = row["verdict"] == Verdict.REGRESSED.value
            told.findings.append((Finding.BROKEN if broken else Finding.UNKNOWN, line))
            if broken or options.settings.inconclusive != "pass":
                wrong.append(line)
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def _line(row: dict[str, Any], number: int, of: int) -> str:
    from tracekit.wording import clean, scalar

    where = f" (recording {number})" if of > 1 else ""
    if row["value"] is None:
        return f"limit {clean(row['budget'])} cannot be held{where}: {row['reason']}"
    return f"limit {clean(row['budget'])} is broken{where}: it is {scalar(row['name'], row['value'])}"
