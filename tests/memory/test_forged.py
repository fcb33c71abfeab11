"""Do the accounts of forged jobs add up, and is the mode of recomputation found?"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.forged import report_of

JOBS = ["tp4", "tp4_sp", "pp4_1f1b", "pp4_zbh1", "recompute_full", "async_steps", "p2p_batched", "old_names", "partial"]


@pytest.mark.parametrize("name", JOBS)
def test_every_account_adds_up_to_its_step(shared: Path, name: str) -> None:
    metrics = report_of(shared / "forged" / name)["metrics"]
    rows = pd.DataFrame(metrics["budget"]["tables"]["ranks"])
    spans = {(d["rank"], d["step"]): d["span_ns"] for d in metrics["breakdown"]["tables"]["devices"] if d["step"] is not None}
    assert {k: int(n) for k, n in rows.groupby(["rank", "step"])["duration_ns"].sum().items()} == spans
    assert (rows["duration_ns"] > 0).all()


def test_the_mode_of_a_job_that_recomputes_everything(shared: Path) -> None:
    summary = report_of(shared / "forged" / "recompute_full")["metrics"]["recompute"]["summary"]
    assert summary["mode"] == "full"
    assert summary["reissued_collectives"] == 36
