"""nccl-tests' rows held against nccl-tests' own formula, within what the printed digits allow."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.test_nccl_tests import END, NEW, ROW, UNIFORM, printed
from tracekit import analyze, theory
from tracekit.job.base import Job
from tracekit.metrics.bandwidth import METRIC
from tracekit.printed import algbw_spread, busbw_fits


def metric(folder: Path, *lines: str) -> dict[str, Any]:
    (folder / "out.log").write_text("\n".join(lines))
    return dict(analyze(folder, workers=1).to_dict()["metrics"]["bandwidth"])


def test_a_run_in_a_line(tmp_path: Path) -> None:
    found = metric(tmp_path, *NEW, *UNIFORM, ROW, *END)
    (run,) = found["tables"]["runs"]
    assert run["run"].endswith("out.log #1")
    assert (run["test"], run["ranks"], run["cells"], run["peak_busbw_gbps"], run["peak_at_bytes"]) == ("all_reduce", 4, 2, 19.66, 1048576)
    assert (run["mean_busbw_gbps"], run["printed_mean_busbw_gbps"]) == (pytest.approx(19.54), 19.54)
    assert (run["cells_checked"], run["algbw_misfits"], run["busbw_misfits"], run["errors"]) == (2, 0, 0, 0)
    assert found["summary"]["peak_busbw_gbps"] == 19.66


def test_rows_that_do_not_hold_together_are_named(tmp_path: Path) -> None:
    found = metric(tmp_path, *NEW, *UNIFORM, ROW, ROW.replace("19.66", "13.11"), ROW.replace("80.00", "90.00"))
    assert [(r["algbw_fits"], r["busbw_fits"]) for r in found["tables"]["rows"]] == [
        *[(True, True), (True, True)],
        *[(True, False), (True, True)],
        *[(False, False), (True, True)],
    ]
    assert (found["summary"]["algbw_misfits"], found["summary"]["busbw_misfits"]) == (1, 2)


def test_what_is_not_known_is_not_judged(tmp_path: Path) -> None:
    lines = [line for line in NEW if "starting" not in line]
    empty = "           0             0     float    none      -1     0.14    0.00    0.00      0     0.13    0.00    0.00      0"
    found = metric(tmp_path, *lines, *UNIFORM, empty, *printed("all_gather", 4, "none", "-1"))
    assert {r["busbw_fits"] for r in found["tables"]["rows"]} == {None}
    assert [r["algbw_fits"] for r in found["tables"]["rows"]] == [None] * 2 + [True] * 6
    assert found["summary"]["busbw_misfits"] is None
    fit = {f["test"]: f["cells_that_fit"] for f in found["tables"]["factors"]}
    assert fit["all_gather"] == fit["all_to_all"] == 6 and fit["all_reduce"] == 0


def test_nothing_to_say_is_said_so() -> None:
    result = METRIC.compute(Job({}))
    assert not result.available and "nccl-tests" in str(result.reason)


@given(st.integers(1, 1 << 34), st.decimals("0.5", "9000000", places=4), st.sampled_from(["all_reduce", "all_gather", "broadcast"]), st.integers(2, 1024))
def test_whatever_is_printed_of_a_true_measurement_fits(size: int, us: Decimal, kind: str, ranks: int) -> None:
    factor = theory.busbw_factor(kind, ranks) or 0.0
    algbw = size / float(us) / 1000
    places = 2 if us < 100 else 1 if us < 10_000 else 0  # BenchTime of nccl-tests until 2.13
    shown = round(float(us), places)
    spread = algbw_spread([size], [round(shown * 1000)], [round(algbw, 2)])
    assert spread.fits[0]
    assert busbw_fits(spread, [round(algbw * factor, 2)], factor)[0]


@given(st.integers(1 << 20, 1 << 34), st.floats(1.03, 3.0))
def test_a_bandwidth_of_another_factor_does_not_fit(size: int, other: float) -> None:
    us = round(size / 50_000, 1)
    spread = algbw_spread([size], [round(us * 1000)], [round(size / us / 1000, 2)])
    assert not busbw_fits(spread, [round(size / us / 1000 * 1.75 * other, 2)], 1.75)[0]
