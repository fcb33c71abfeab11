"""What would each mode of Table 2 keep of the model that ran, and where does the table not hold?"""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.job.base import Job
from tracekit.job.closed_forms import modes

MODEL = {"hidden": 6144, "heads": 64, "sequence": 2048, "dtype": "bfloat16", "dtype_bytes": 2, "mlp_ratio": 4, "dropout": 0.1, "attention": "math"}
#: The 22B model of arXiv 2205.05198 Table 3, microbatch 4 on tp 8.
PAPER = [7079985152, 1325400064, 884998144, 654311424, 213909504, 100663296]


def job(mesh: dict[str, int] | None = None, training: dict[str, Any] | None = None, recompute: str = "none", **model: Any) -> Job:
    run = {"device": "cuda", "model": MODEL | model, "training": {"microbatch_size": 4, **(training or {})}, "recompute": recompute}
    return Job({}, run=run, mesh=mesh or {})


def column(table: Any, name: str) -> list[Any]:
    return [None if v is None or v != v else v for v in table[name].astype(object).where(table[name].notna(), None)]


def test_the_six_modes_of_the_paper_and_which_one_ran() -> None:
    table = modes(job({"tp": 8}, recompute="selective:core_attention"))
    assert column(table, "activation_per_layer_theory_bytes") == PAPER
    assert column(table, "tensor_parallel") == [1, 8, 8, 8, 8, 1]
    assert table.loc[table["as_it_ran"], "mode"].tolist() == ["tp_selective"] and table["reason"].isna().all()


def test_a_run_without_tensor_parallelism_is_told_what_it_would_bring() -> None:
    table = modes(job())
    assert column(table, "activation_per_layer_theory_bytes") == PAPER
    assert table.loc[table["as_it_ran"], "mode"].tolist() == ["none"]


def test_an_mlp_that_is_no_whole_multiple_of_hidden_counts_its_own_width() -> None:
    elements = 2048 * 4 * 6144
    wider = modes(job(ffn_hidden=6144 * 7 // 2))["activation_per_layer_theory_bytes"].iloc[0]
    assert PAPER[0] - wider == 2 * 2 * elements // 2  # twice half an h, two bytes each


@pytest.mark.parametrize(
    ("given", "says", "known"),
    [
        ({"mesh": {"cp": 2}}, "context parallelism", []),
        ({"dtype_bytes": 1}, "8-bit", []),
        ({"training": {"cpu_offload": True}}, "offloaded", []),
        ({"kv_heads": 8}, "GPT", []),
        ({"experts": 8}, "GPT", []),
        ({"hidden": None}, "hidden", []),
        ({"attention": None}, "attention", ["tp_selective", "tp_sp_selective", "full"]),
        ({"dropout": None}, "dropout", ["full"]),
    ],
)
def test_where_the_table_does_not_hold_it_says_why(given: dict[str, Any], says: str, known: list[str]) -> None:
    table = modes(job(**given))
    null = table["activation_per_layer_theory_bytes"].isna()
    assert table.loc[~null, "mode"].tolist() == known
    assert all(says in reason for reason in table.loc[null, "reason"])
