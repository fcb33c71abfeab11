"""Does a run without recomputation foretell the activation peaks of those that recompute?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.analysis import analyze
from tracekit.memory_what_if import Recomputation, memory_what_if

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_the_peak_of_a_run_that_recomputes_is_foretold_by_one_that_does_not(mode: str) -> None:
    result = memory_what_if(analyze([SAMPLES / "recompute-none"]), [Recomputation(mode)], 70 * 2**20)
    measured = analyze([SAMPLES / f"recompute-{mode}"]).result("recompute").summary["activation_peak_bytes"]
    assert result.available and result.summary["trusted"]
    row = result.tables["alternatives"].iloc[0]
    assert row["activation_peak_bytes"] == pytest.approx(measured, rel=0.15)
    assert row["largest_microbatch"] > 4 and row["fits"]
