"""The clock metric says what was measured, and what was not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.clock.test_align import MS, US, calls, job_of
from tests.collectives.rows import facts
from tests.forged import analysis_of, truth_of
from tracekit.job.assemble import build
from tracekit.metrics import clock


def test_a_single_rank_has_nothing_to_be_compared_with() -> None:
    got = clock.compute(build({(0, 0): facts(0, {"seq": 1, "at": (0, 9)})}))
    assert (got.available, got.reason) == (False, "there is one rank, and so one clock")


def test_a_rank_that_nothing_links_has_no_offset() -> None:
    rows = [(MS * i, MS * i + 300 * US) for i in range(6)]
    both = tuple({**row, "group_ranks": "0,1"} for row in calls(*rows))
    got = clock.compute(job_of(both, both, ({"at": (0, 9), "group_ranks": "2"},)))
    table = got.tables["ranks"][["offset_ns", "reference_rank", "source"]].astype(object)
    assert table.where(table.notna(), None).values.tolist() == [[0, 0, "reference"], [0, 0, "collectives"], [None, 2, "none"]]
    assert (got.summary["linked_ranks"], got.summary["ranks"]) == (2, 3)
    assert any("from rank 2" in note for note in got.notes)


def test_offsets_residuals_and_what_they_leave_unresolved() -> None:
    #   rank 1's clock runs 1 ms ahead and its ends wander by 2 µs: a wait of 1 µs cannot be told, one of 40 µs can
    wander = [0, 2 * US, -2 * US, 2 * US, -2 * US, 0, 2 * US, -2 * US]
    late = [1 * US, 40 * US] * 4
    rows = [(MS * i, MS * i + 300 * US) for i in range(8)]
    one = [(start + by + MS, end + off + MS) for (start, end), by, off in zip(rows, late, wander, strict=True)]
    job = job_of(calls(*rows), calls(*one))
    got = clock.compute(job)
    table = got.tables["ranks"]
    assert table[["rank", "offset_ns"]].values.tolist() == [[0, 0], [1, MS]]
    assert set(job.instances["wait_resolution_ns"]) == {2097}  # 1.4826 x the median deviation of 1 µs from the middle of two, times sqrt 2
    assert (got.summary["unresolvable_waits"], got.summary["waits"]) == (4, 8)
    assert (got.summary["aligned_ranks"], got.summary["offset_max_ns"], got.summary["residual_max_ns"]) == (1, MS, 2097)


def test_the_forged_clocks_are_found_to_the_microsecond(shared: Path) -> None:
    folder = shared / "forged" / "clock_skew"
    truth, table = truth_of(folder), analysis_of(folder).result("clock").tables["ranks"]
    begin = truth["time"]["origin_ns"]
    for row in table.itertuples(index=False):
        want = truth["clock"][str(row.rank)]
        drifted = want["drift_ppm"] * 1e-6 * (row.origin_ns - begin)
        assert abs(row.offset_ns - want["offset_ns"] - drifted) < 1000
        assert row.drift_ppm == pytest.approx(want["drift_ppm"], abs=4)
        assert 0 < row.residual_ns < 1000
    assert analysis_of(folder).health()["verdict"] == "warnings"


@pytest.mark.parametrize("job", ["tp4", "tp2pp4dp2_1f1b", "pp4_1f1b", "async_steps"])
def test_clocks_that_agree_are_left_alone(shared: Path, job: str) -> None:
    analysis = analysis_of(shared / "forged" / job)
    table = analysis.result("clock").tables["ranks"]
    assert (set(table["offset_ns"]), set(table["drift_ppm"].dropna())) == ({0}, {0.0})
    assert [f["code"] for f in analysis.job.findings if f["code"].startswith("clock")] == []


def test_every_linked_rank_stands_in_the_table_once_per_capture() -> None:
    job = build({(r, c): facts(r, {"seq": 1, "at": (1000 * c, 1000 * c + 9)}, capture=c) for r in (0, 1) for c in (0, 1)})
    table = clock.compute(job).tables["ranks"]
    assert table[["rank", "capture"]].values.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert pd.api.types.is_integer_dtype(table["offset_ns"])
