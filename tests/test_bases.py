"""Ranks whose times count from different beginnings are named; ranks that were recorded one after the other are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import kernel, write
from tracekit import analyze

EPOCH = 1_750_000_000_000_000_000
BOOTED = 3_600_000_000.0  # an hour after boot, in µs


def findings(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str]]:
    for rank, one in enumerate((first, second)):
        write(folder / f"rank{rank}.json", [kernel("gemm", one["at"], one["at"] + 50)], rank=rank, world=2, base=one.get("base"))
    report = analyze(folder, workers=1).to_dict()
    return [(f["severity"], f["message"]) for f in report["health"]["findings"] if f["code"] == "time_bases_differ"]


def test_a_rank_without_a_base_among_ranks_with_one(tmp_path: Path) -> None:
    ((severity, message),) = findings(tmp_path, {"at": 5.0, "base": EPOCH}, {"at": BOOTED})
    assert severity == "warning"
    assert "ranks 1 lie" in message and "baseTimeNanoseconds" in message


def test_two_hosts_that_count_from_their_boots(tmp_path: Path) -> None:
    assert len(findings(tmp_path, {"at": BOOTED}, {"at": 9 * BOOTED})) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"at": 5.0, "base": EPOCH}, {"at": 10.0, "base": EPOCH - 4000}),  # other bases, same time
        ({"at": BOOTED}, {"at": BOOTED + 900}),  # relative, same clock
        ({"at": 5.0, "base": EPOCH}, {"at": 5_000_000.0, "base": EPOCH}),  # recorded 5 s later
    ],
)
def test_what_agrees_is_no_finding(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    assert findings(tmp_path, first, second) == []
