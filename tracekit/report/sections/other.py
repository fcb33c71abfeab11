"""How is a metric shown that has no section of its own? Its summary, then the first rows of each of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Section, facts, grid
from tracekit.report.rows import metric
from tracekit.report.sections.common import section

#: Rows of a table about which nobody has said which ones matter most.
_MOST = 12


def other(document: Mapping[str, Any], name: str) -> Section:
    """A plain section of any metric."""
    found = metric(document, name)
    tables = found.get("tables") or {}
    grids = tuple(grid(fmt.label(t).capitalize(), rows, list(dict.fromkeys(k for r in rows for k in r)), limit=_MOST) for t, rows in tables.items())
    return section(document, name, "measured", ("measured",), facts(found.get("summary") or {}), grids)
