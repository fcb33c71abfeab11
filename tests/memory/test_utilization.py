"""MFU and HFU: the paper's figures from the paper's sizes, and no number where a size, the time or the peak is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.memory.test_budget import rows_of
from tracekit.errors import UsageError
from tracekit.job.assemble import build
from tracekit.job.base import Job
from tracekit.metrics.base import Result
from tracekit.metrics.utilization import METRIC
from tracekit.model_sizes import ModelSizes, device_peak, given_sizes, global_batch, parse_flops
from tracekit.trace import RankFacts, RankMeta

GPT = {"hidden": 6144, "layers": 48, "heads": 64, "sequence": 2048, "vocabulary": 51200, "global_batch": 4, "peak_flops": 312e12}


def job(seconds: float = 1.0, ranks: int = 1, world: int = 8, device: str = "gpu", names: tuple[str, ...] = (), **facts: list[dict[str, object]]) -> Job:
    """Ranks with one step of that length each."""
    step = {"step": 1, "end_ns": round(seconds * 1e9), "window_end_ns": round(seconds * 1e9), "complete": True}
    tables = {name: rows_of(name, rows) for name, rows in {"steps": [step], **facts}.items()}
    return build({(r, 0): RankFacts(RankMeta(rank=r, world_size=world, device_type=device, device_names=names), tables) for r in range(ranks)})


def of(one: Job, run: dict[str, object] | None = None, **sizes: object) -> Result:
    return METRIC.compute(replace(one, run=given_sizes(sizes).over(run or {})))


@pytest.mark.parametrize("model", ["22B", "175B", "530B", "1T"])
def test_the_table_of_the_paper_comes_out_of_the_metric(shared: Path, model: str) -> None:
    vectors = json.loads((shared / "research" / "vectors.json").read_text())
    heads, hidden, layers, _, _, gpus, batch, _ = vectors["act_table3"][model]
    _, seconds, _, mfu, hfu = vectors["act_table5"][model]
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "sequence": 2048, "vocabulary": 51200, "global_batch": batch, "peak_flops": "312T"}
    got = of(job(seconds, world=gpus), {"recompute": "selective:core_attention"}, **sizes).summary
    assert [100 * got["mfu_ratio"], 100 * got["hfu_ratio"]] == pytest.approx([mfu, hfu], abs=0.25)
    assert got["recompute_source"] == "declared"


def test_what_the_trace_shows_counts_and_not_what_was_declared() -> None:
    layers = [
        {"step": 1, "layer": f"layers.{i}", "layer_index": i, "recompute_runs": 1, "forward_products": 4, "recompute_products": 4, "decidable": True}
        for i in (0, 1)
    ]
    whole = {"step": 1, "checkpoints": 2, "recompute_ns": 5, "decidable": True}
    small = {**GPT, "layers": 2}
    full = of(job(recompute=[whole, *layers]), {"recompute": "none"}, **small).summary
    none = of(job(recompute=[{**whole, "checkpoints": 0, "recompute_ns": 0}]), {"recompute": "full"}, **small).summary
    head = 6 * 4 * 2048 * 6144 * 51200
    assert full["hardware_flops"] - head == pytest.approx(4 / 3 * (full["model_flops"] - head))
    assert (none["hardware_flops"], none["recompute_source"]) == (none["model_flops"], "trace")


@pytest.mark.parametrize(("layers", "source"), [(2, "trace"), (4, "inferred")])
def test_layers_that_are_in_no_trace_are_inferred_to_be_like_the_others(layers: int, source: str) -> None:
    seen = [
        {"step": 1, "layer": f"layers.{i}", "layer_index": i, "recompute_runs": 1, "forward_products": 4, "recompute_products": 4, "decidable": True}
        for i in (0, 1)
    ]
    got = of(job(recompute=[{"step": 1, "checkpoints": 2, "recompute_ns": 5, "decidable": True}, *seen]), **{**GPT, "layers": layers})
    assert got.summary["recompute_source"] == source
    assert any("Not every layer" in note for note in got.notes) == (source == "inferred")


def test_a_layer_of_which_a_part_was_repeated_has_no_hfu() -> None:
    part = {"step": 1, "layer": "layers.0", "layer_index": 0, "recompute_runs": 1, "forward_products": 4, "recompute_products": 1, "decidable": True}
    got = of(job(recompute=[{"step": 1, "checkpoints": 1, "recompute_ns": 5, "decidable": True}, part]), **GPT)
    assert got.summary["mfu_ratio"] and got.summary["hfu_ratio"] is None
    assert any(note.startswith("HFU is unknown: which operators") for note in got.notes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": None}, "give --hidden"),
        ({"global_batch": None}, "give --global-batch"),
        ({"experts": 8}, "the model has experts"),
        ({"heads": None, "kv_heads": 8}, "give --heads"),
    ],
)
def test_an_unknown_size_is_named_with_the_flag_that_gives_it(change: dict[str, object], says: str) -> None:
    got = of(job(), **{k: v for k, v in {**GPT, **change}.items() if v is not None})
    assert not got.available and says in str(got.reason)


def test_an_unknown_peak_leaves_the_flops_and_asks_for_it() -> None:
    sizes = {k: v for k, v in GPT.items() if k != "peak_flops"}
    got = of(job(names=("ARTEMIS",)), **sizes)
    assert (got.summary["mfu_ratio"], got.summary["model_flops"] is None) == (None, False)
    assert "MFU and HFU are unknown: the peak of a device named ARTEMIS is not known here: give --peak-flops." in got.notes
    known = of(job(names=("NVIDIA A100-SXM4-80GB",)), **sizes, dtype="bfloat16").summary
    assert (known["peak_flops_per_s"], known["peak_source"]) == (312e12, "NVIDIA A100 data sheet, dense bfloat16")


def test_emulated_compute_has_no_flops() -> None:
    got = of(job(busy=[{"step": 1, "device_type": "cpu", "emulated_ns": 5}]), **GPT)
    assert not got.available and "emulated" in str(got.reason)


def test_the_ranks_of_a_pipeline_share_the_flops_by_their_layers_and_the_last_has_the_head() -> None:
    ranks = {}
    for rank, held in ((0, 3), (1, 1)):
        layers = [{"step": 1, "layer": f"layers.{i}", "layer_index": i + 3 * rank, "decidable": True} for i in range(held)]
        tables = {"recompute": layers, "actions": [{"step": 1, "stage": rank, "action": "F", "end_ns": 1, "compute_ns": 1}]}
        step = {"step": 1, "end_ns": 10**9, "window_end_ns": 10**9, "complete": True}
        meta = RankMeta(rank=rank, world_size=2, device_type="gpu", run={"mesh": {"pp": 2}})
        ranks[rank, 0] = RankFacts(meta, {name: rows_of(name, rows) for name, rows in {"steps": [step], **tables}.items()})
    got = of(build(ranks), {"mesh": {"pp": 2}}, **{**GPT, "layers": 4})
    share = got.tables["ranks"]["model_flops"].tolist()
    head = 6 * 4 * 2048 * 6144 * 51200
    assert sum(share) == got.summary["model_flops"] and (share[1] - head) * 3 == share[0]


def test_sizes_are_checked_and_stand_above_those_of_the_run() -> None:
    assert ModelSizes(layers=4, microbatches=2).over({"model": {"hidden": 8, "layers": 2}}) == {
        "model": {"hidden": 8, "layers": 4},
        "training": {"microbatches": 2},
        "given": ["layers", "microbatches"],
    }
    # parameters are stored as they were, whatever the products are computed in
    assert ModelSizes(dtype="bfloat16").over({"model": {"dtype_bytes": 4}})["model"] == {"dtype_bytes": 4, "dtype": "bfloat16"}
    for wrong in (
        {"layers": 0},
        {"heads": 3, "hidden": 8},
        {"kv_heads": 3, "heads": 8},
        {"dtype": "int4"},
        {"peak_flops": "fast"},
        {"width": 3},
        {"layers": True},
        {"layers": 10**400},
        {"dtype": ["float32"]},
        {"mlp_ratio": 1e307},
        {"gated_mlp": "yes"},
        {"peak_flops": 10**400},
        {"peak_flops": 10**5000},
    ):
        with pytest.raises(UsageError):
            given_sizes(wrong)
    assert [parse_flops(text) for text in ("312T", "989e12", "1.3 PFLOP/s", 5)] == [312e12, 989e12, 1.3e15, 5.0]


@pytest.mark.parametrize(
    ("names", "peak"),
    [
        (("NVIDIA H100 80GB HBM3",), 989e12),
        (("NVIDIA H100 PCIe",), 756e12),
        (("NVIDIA H200",), 989e12),
        (("AMD Instinct MI300X",), 1307e12),
        (("NVIDIA A100-SXM4-40GB MIG 3g.20gb",), None),
        (("Tesla V100-SXM2-32GB",), None),
        (("NVIDIA A100-SXM4-40GB", "NVIDIA H200"), None),
        ((), None),
    ],
)
def test_peaks_of_devices_by_name(names: tuple[str, ...], peak: float | None) -> None:
    assert device_peak(names, "bfloat16")[0] == peak
    assert device_peak(names, "float32")[0] is None and "--peak-flops" in device_peak(names, None)[1]


def test_the_batch_of_a_step_needs_a_mesh_that_accounts_for_every_rank() -> None:
    sizes = ModelSizes(microbatch_size=2, microbatches=4)
    assert [global_batch(sizes, mesh, 8) for mesh in ({"tp": 2, "dp_shard": 4}, {"tp": 2}, {})] == [32, None, None]


def test_ideal_compute_and_kernel_inefficiency_stand_where_sizes_and_peak_are_known(samples: Path) -> None:
    from tracekit import analyze

    account = analyze(samples / "recompute-full", workers=1, model={"peak_flops": "50G"}).result("budget").tables["account"]
    mine: pd.DataFrame = account[account["rank"].isna()].set_index("part")
    assert mine.loc["ideal_compute", "duration_ns"] == pytest.approx(541_065_216 / 50e9 * 1e9)
    assert mine.loc["kernel_inefficiency", "duration_ns"] > 0 and pd.isna(mine.loc["kernel_inefficiency", "recoverable_ns"])
    assert mine.loc["recompute", "recoverable_ns"] == mine.loc["recompute", "duration_ns"]
    slow = analyze(samples / "recompute-full", workers=1, model={"peak_flops": "1G"}).result("budget")
    assert slow.summary["ideal_compute_ns"] is None and any("take longer at the peak" in note for note in slow.notes)
