"""The first sentence on files without a timeline says what they are good for."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.report.headline import headline


def document(name: str, **summary: Any) -> dict[str, Any]:
    return {"run": {"device": None}, "metrics": {name: {"available": True, "summary": summary, "tables": {}}}}


@pytest.mark.parametrize(
    ("name", "summary", "says"),
    [
        (
            "flight_recorder",
            {"dumps": 16, "collectives": 119, "suspects": [12, 14], "mismatches": 0},
            "Ranks 12, 14 did not reach what others did: 119 collectives in the dumps of 16 ranks.",
        ),
        ("flight_recorder", {"dumps": 2, "collectives": 1, "suspects": [], "mismatches": 0}, "No rank is missing or behind in 1 collective"),
        ("memory", {"allocated_peak_bytes": 7 * 2**29}, "At the peak 3.50 GiB (3.76 GB) were allocated"),
        ("bandwidth", {"peak_busbw_gbps": 235.26, "algbw_misfits": 1}, "is 235.3 GB/s; 1 cell does not fit"),
        ("records", {"ranks": [2, 3], "collectives": 2, "p2p": 0}, "The records of ranks 2-3 state 2 collectives and 0 sends"),
        ("operators", {"calls": 1313, "operators": 88}, "1,313 calls of 88 operators were recorded, without times."),
    ],
)
def test_what_files_without_a_timeline_say(name: str, summary: dict[str, Any], says: str) -> None:
    assert says in headline(document(name, **summary))[0]


def test_a_timeline_without_work_is_still_unknown() -> None:
    assert headline({**document("memory", allocated_peak_bytes=1), "run": {"device": "gpu"}})[0].startswith("Where the time of a step went is unknown")
