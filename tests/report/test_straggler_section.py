"""The section on stragglers names who stands out, and shows the longest waits first."""

from __future__ import annotations

from typing import Any

from tracekit.report.sections.straggler import straggler


def document(rank: int | None, calls: list[dict[str, Any]]) -> dict[str, Any]:
    found = {"available": True, "summary": {"rank": rank, "cause": "slow_compute"}, "tables": {"ranks": [], "instances": calls}}
    return {"metrics": {"straggler": found}}


def call(caused: int, waits_for: int | None = None) -> dict[str, Any]:
    return {"step": 1, "kind": "all_reduce", "last_rank": 1, "caused_wait_ns": caused, "cause": "late_launch", "waits_for": waits_for}


def test_nobody_stands_out_is_said_as_none() -> None:
    assert straggler(document(None, [])).facts[0] == ("rank that stands out", "none")
    assert straggler(document(3, [])).facts[0] == ("rank that stands out", "3: slow_compute")


def test_the_longest_waits_come_first_and_whom_it_waits_for_only_where_it_waits() -> None:
    (plain,) = straggler(document(None, [call(1), call(3), call(2)])).grids
    assert [row[plain.header.index("caused wait (ns)")] for row in plain.rows] == ["3", "2", "1"]
    assert "waits for" not in plain.header
    (chained,) = straggler(document(None, [call(1, waits_for=5)])).grids
    assert chained.rows[0][chained.header.index("waits for")] == "5"
