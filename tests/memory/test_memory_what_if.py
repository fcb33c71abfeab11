"""Does one run foretell the peaks and the steps of others, and does it say where it cannot?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.analyses import analysis_of
from tracekit.analysis import Analysis
from tracekit.cli.simulate import size_bytes
from tracekit.errors import UsageError
from tracekit.job.base import Job
from tracekit.memory_what_if import Recomputation, _Basis, _errors, _judged, _row, memory_what_if

#: Four layers of 100 bytes, 10 kept when repeated; core attention is 30 of them. Microbatches of 2.
BASIS = _Basis(
    mode="none", whole=(100, 100, 100, 100), kept=10, core=30, standing=5, loss=8, grows=20, fixed=1000, forward=(1, 2, 3, 4), step_ns=100, recompute_ns=0,
    compute_ns=40, microbatch_size=2, why_no_time=None, activation_peak=413, memory_peak=1400, layer_error_ratio=0.0,
)  # fmt: skip


def row(one: Recomputation, limit: int | None = None, **other: Any) -> dict[str, Any]:
    basis = replace(BASIS, **other)
    got = _row(basis, one)
    return got | _judged(got, basis.microbatch_size, limit)


@pytest.mark.parametrize(
    ("one", "basis", "activations", "memory", "step", "again"),
    [
        (Recomputation("none"), "measured", 413, 1400, 100, 0),
        (Recomputation("none", microbatch_size=4), "scaled", 826, 1000 + 2 * (413 + 20), 140, 0),
        (Recomputation("full"), "closed_form", 5 + 4 * 10 + 90, 1155, 110, 10),
        (Recomputation("every", 2), "closed_form", 5 + 2 * 110 + 90, 1335, 104, 4),  # layers 0 and 2
        (Recomputation("sqrt"), "closed_form", 5 + 2 * 10 + 190, 1235, 110, 10),  # two segments of two layers
        (Recomputation("sqrt", microbatch_size=1), "closed_form", 108, 1118, 85, 5),
        (Recomputation("selective"), "closed_form", 5 + 4 * 70 + 8, 1313, None, None),
    ],
)
def test_four_layers_under_every_mode(one: Recomputation, basis: str, activations: int, memory: int, step: int | None, again: int | None) -> None:
    got = row(one)
    assert [got[n] for n in ("basis", "activation_peak_bytes", "memory_peak_bytes", "step_ns", "recompute_ns")] == [basis, activations, memory, step, again]
    assert (got["step_reason"] is None) == (step is not None)


@pytest.mark.parametrize(
    ("limit", "fits", "largest", "why"),
    [(1433, True, 2, None), (1866, True, 4, None), (1865, True, 3, None), (1400, True, 2, None), (1399, False, 1, None), (999, False, None, "not even one")],
)
def test_the_largest_microbatch_lets_all_that_grows_fit(limit: int, fits: bool, largest: int | None, why: str | None) -> None:
    got = row(Recomputation("none"), limit)
    assert (got["fits"], got["largest_microbatch"]) == (fits, largest)
    assert (got["largest_microbatch_reason"] or "").startswith(why or "")


def test_what_ran_recomputing_stands_as_measured_and_the_account_is_held_against_it() -> None:
    ran = {"mode": "full", "step_ns": 111, "recompute_ns": 11, "activation_peak": 150, "memory_peak": 1150, "layer_error_ratio": None}
    got = row(Recomputation("full"), **ran)
    assert [got[n] for n in ("basis", "activation_peak_bytes", "memory_peak_bytes", "step_ns", "recompute_ns")] == ["measured", 150, 1150, 111, 11]
    assert row(Recomputation("none"), **ran)["step_ns"] == 100
    errors = _errors(replace(BASIS, **ran))
    assert errors == {"activation_error_ratio": pytest.approx(135 / 150 - 1), "memory_error_ratio": pytest.approx(1155 / 1150 - 1), "layer_error_ratio": None}


def test_repeating_core_attention_takes_what_it_took_where_that_ran() -> None:
    ran = {"mode": "selective", "step_ns": 106, "recompute_ns": 6}
    assert [row(Recomputation("selective", microbatch_size=b), **ran)["recompute_ns"] for b in (1, 2, 4)] == [3, 6, 12]
    assert row(Recomputation("selective", microbatch_size=4), **ran)["step_ns"] == 106 - 6 + 40 + 12
    assert row(Recomputation("full"), **ran)["step_ns"] == 110


@pytest.mark.parametrize(
    "given", [("every", 0, None), ("every", None, None), ("full", 2, None), ("other", None, None), ("none", None, 0), ("none", None, 10**30)]
)
def test_what_cannot_be_asked_is_refused(given: tuple[str, int | None, int | None]) -> None:
    with pytest.raises(UsageError, match="--"):
        Recomputation(*given)


@pytest.mark.parametrize("given", ["9" * 400, "9" * 400 + "GiB", "5000000TiB", "1.5 XB", "-1", ""])
def test_no_size_of_a_memory_is_refused(given: str) -> None:
    with pytest.raises(UsageError):
        size_bytes(given)


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_the_peak_of_a_run_that_recomputes_is_foretold_by_one_that_does_not(samples: Path, mode: str) -> None:
    result = memory_what_if(analysis_of(samples / "recompute-none"), [Recomputation(mode)], 70 * 2**20)
    measured = analysis_of(samples / f"recompute-{mode}").result("memory").summary["allocated_peak_bytes"]
    assert result.available and result.summary["trusted"]
    got = result.tables["alternatives"].iloc[0]
    assert got["memory_peak_bytes"] == pytest.approx(measured, rel=0.05)
    assert got["largest_microbatch"] > 4 and got["fits"]


def test_the_peak_of_larger_microbatches_is_not_below_what_they_took(samples: Path) -> None:
    # the same run with --microbatch-size 32 took 36,919,244 bytes
    got = memory_what_if(analysis_of(samples / "recompute-none"), [Recomputation("none", microbatch_size=32)], 36_919_243).tables["alternatives"].iloc[0]
    assert 36_919_244 <= got["memory_peak_bytes"] <= 1.1 * 36_919_244
    assert (got["basis"], got["largest_microbatch"] < 32) == ("scaled", True)


def test_a_run_that_repeats_layers_foretells_the_loss_by_the_closed_form(samples: Path) -> None:
    got = memory_what_if(analysis_of(samples / "recompute-full"), [Recomputation("none")]).tables["alternatives"].iloc[0]
    measured = analysis_of(samples / "recompute-none").result("recompute").summary["activation_peak_bytes"]
    assert got["activation_peak_bytes"] == pytest.approx(measured, rel=0.02)


def test_tensor_parallel_layers_have_collectives_so_only_the_step_that_ran_is_known(samples: Path) -> None:
    table = memory_what_if(analysis_of(samples / "tp")).tables["alternatives"].set_index("mode")
    assert table["step_ns"].notna().tolist() == [True, False, False, False, False]
    assert "tensor parallelism" in table.loc["full", "step_reason"]


def changed(one: Analysis, **run: Any) -> Analysis:
    return Analysis(replace(one.job, run={**one.job.run, **run}, mesh=run.get("mesh", one.job.mesh)))


@pytest.mark.parametrize(
    ("sample", "run", "says"),
    [
        ("recompute-selective", {"recompute": "selective:op"}, "core attention"),
        ("recompute-none", {"training": None}, "microbatch_size"),
        ("recompute-none", {"emulate_compute_ns": 5}, "emulated"),
        ("recompute-none", {"mesh": {"pp": 2}}, "pipeline"),
        ("recompute-none", {"model": {"hidden": 2**40, "heads": 1, "sequence": 2**40, "dtype_bytes": 4, "attention": "math", "dropout": 0}}, "too large"),
    ],
)
def test_where_the_run_does_not_tell_it_says_why(samples: Path, sample: str, run: dict[str, Any], says: str) -> None:
    result = memory_what_if(changed(analysis_of(samples / sample), **run))
    assert not result.available and says in str(result.reason)


def test_layers_unlike_their_closed_form_are_not_trusted(samples: Path) -> None:
    one = analysis_of(samples / "recompute-none")
    wider = changed(one, model={**one.job.run["model"], "mlp_ratio": 8})
    result = memory_what_if(wider)
    assert result.summary["layer_error_ratio"] < -0.2 and not result.summary["trusted"]


def test_two_captures_of_one_rank_are_told_by_the_fuller(samples: Path) -> None:
    one = analysis_of(samples / "recompute-none").job
    (facts,) = one.ranks.values()
    both: Job = replace(one, ranks={(0, 0): facts, (0, 1): facts})
    got, want = memory_what_if(Analysis(both)), memory_what_if(Analysis(one))
    assert got.available and got.tables["alternatives"].equals(want.tables["alternatives"])
