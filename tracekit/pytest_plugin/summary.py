"""What does the end of pytest's output say? How many recordings there were, how they stand, and a line for each that needs one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tracekit.pytest_plugin.told import Finding
from tracekit.wording import clean, plural

#: Findings that need no line of their own.
_QUIET = (Finding.UNCHANGED, Finding.UNCHANGED_FACTS)
#: Lines shown; ``--tracekit-report`` holds all.
MOST_LINES = 30


class Summary:
    """Collects the accounts of tests, wherever they ran."""

    def __init__(self) -> None:
        self._recordings = 0
        self._findings: list[tuple[str, Finding, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what came with a test's report."""
        told: Any = getattr(report, "tracekit", None)
        if told:
            self._recordings += told["recordings"]
            self._findings += [(report.nodeid, Finding(found), line) for found, line in told["findings"]]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the section."""
        if not self._recordings and not self._findings:
            return
        counts = Counter(found for _, found, _ in self._findings)
        said = [f"{counts[found]:,} {found.value}" for found in Finding if counts[found]]
        terminalreporter.section("tracekit", sep="-")
        terminalreporter.write_line(f"tracekit: {', '.join([plural(self._recordings, 'recording'), *said])}")
        lines = [f"{found.value.upper()} {clean(node_id, 200)}: {line}" for node_id, found, line in self._findings if found not in _QUIET]
        for line in lines[:MOST_LINES]:
            terminalreporter.write_line(line)
        if len(lines) > MOST_LINES:
            terminalreporter.write_line(f"and {len(lines) - MOST_LINES:,} more")
