"""What happened in one test? Its recordings, and what was found of each, in words that survive the way from another process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.wording import clean

if TYPE_CHECKING:
    from tracekit.pytest_plugin.recording import Recording

#: Longest scenario that is kept as it is.
MOST_CHARACTERS = 300


class Finding(StrEnum):
    """What was found, as the summary counts it."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    UNCHANGED_FACTS = "unchanged in its facts"  #: its times need more runs
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NO_BASELINE = "without baseline"
    KEPT = "kept as baseline"
    BROKEN = "over its limit"
    UNKNOWN = "unknown against its limit"


@dataclass
class Told:
    """The account of one test.

    Attributes:
        item: the test.
        recordings: what it recorded or read, in order.
        findings: (what was found, one line about it) of each.
        scenarios: those that were compared already.
        documents: (name, document) of comparisons, for ``--tracekit-report``.
    """

    item: pytest.Item
    recordings: list[Recording] = field(default_factory=list)
    findings: list[tuple[Finding, str]] = field(default_factory=list)
    scenarios: set[str] = field(default_factory=set)
    documents: list[dict[str, Any]] = field(default_factory=list)

    @property
    def node_id(self) -> str:
        """The test's id, the same with and without pytest-xdist, which adds the name of a group to it."""
        group = self.item.get_closest_marker("xdist_group")
        node_id = self.item.nodeid
        if group is None or not hasattr(self.item.config, "workerinput"):
            return node_id
        return node_id.removesuffix(f"@{group.args[0] if group.args else group.kwargs.get('name', 'default')}")

    @property
    def scenario(self) -> str:
        """The test's id as a scenario: a line of printable text that no other test has."""
        line = clean(self.node_id, MOST_CHARACTERS)
        return line if line == self.node_id else f"{line}~{digest(self.node_id)}"

    def lines(self) -> dict[str, Any]:
        """The account as JSON knows it; empty where nothing was recorded or found."""
        if not self.recordings and not self.findings:
            return {}
        return {"recordings": len(self.recordings), "findings": [[f.value, clean(line, 1000)] for f, line in self.findings]}


#: Where a test's account is.
TOLD = pytest.StashKey[Told]()


def digest(text: str) -> str:
    """Eight characters that stand for a text, whatever it holds.

    >>> digest("tests/test_step.py::test_step")
    'c784a0ff'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
