"""Do the sample traces show what the articles and closed forms say of each kind of parallelism?

Golden files hold what was measured; this holds what had to come out: counts and bytes exactly, times within the stated
bounds. The runs themselves are held against each other in tests/instrumentation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.golden import report_of, samples
from tracekit import theory

Row = dict[str, Any]


def rows(name: str, metric: str, table: str) -> list[Row]:
    found: list[Row] = report_of(name)["metrics"][metric]["tables"][table]
    return found


def summary(name: str, metric: str) -> Row:
    found: Row = report_of(name)["metrics"][metric]["summary"]
    return found


def sizes(name: str) -> tuple[int, int, list[int], int]:
    """Layers, microbatches, recorded steps, and batch x sequence x hidden x element size in bytes."""
    config = report_of(name)["run"]["config"]
    model, training = config["model"], config["training"]
    nbytes = training["microbatch_size"] * model["sequence"] * model["hidden"] * model["dtype_bytes"]
    return model["layers"], training["microbatches"], report_of(name)["run"]["steps"], nbytes


def in_layers(name: str) -> list[Row]:
    """Collectives that forward and backward of the numbered layers issued."""
    return [r for r in rows(name, "collectives", "instances") if r["layer_index"] is not None and r["direction"] in ("forward", "backward")]


# Tensor parallelism


def test_tp_takes_two_all_reduces_forward_and_two_backward_per_layer_and_microbatch() -> None:
    layers, microbatches, steps, nbytes = sizes("tp")
    found = Counter((r["step"], r["layer"], r["microbatch"], r["direction"], r["kind"], r["nbytes"]) for r in in_layers("tp"))
    assert found == {
        (step, f"layers.{layer}.{part}", microbatch, direction, "all_reduce", nbytes): 1
        for step in steps
        for layer in range(layers)
        for part in ("attention", "mlp")
        for microbatch in range(microbatches)
        for direction in ("forward", "backward")
    }
    assert summary("tp", "collectives")["layer_unknown_ratio"] == 0


def test_sequence_parallelism_takes_pairs_of_gather_and_scatter_and_no_all_reduce() -> None:
    layers, microbatches, steps, nbytes = sizes("tp-sp")
    found = Counter((r["step"], r["layer"], r["microbatch"], r["direction"], r["kind"], r["nbytes"]) for r in in_layers("tp-sp"))
    assert found == {
        (step, f"layers.{layer}.{part}", microbatch, direction, kind, nbytes): 1
        for step in steps
        for layer in range(layers)
        for part in ("attention", "mlp")
        for microbatch in range(microbatches)
        for direction in ("forward", "backward")
        for kind in ("all_gather", "reduce_scatter")
    }


def test_sequence_parallelism_reduces_each_norm_gradient_once_a_step() -> None:
    layers, _, steps, _ = sizes("tp-sp")
    model = report_of("tp-sp")["run"]["config"]["model"]
    found = Counter(
        (r["step"], r["layer"], r["kind"], r["nbytes"])
        for r in rows("tp-sp", "collectives", "instances")
        if r["direction"] == "gradient" and "norm" in str(r["layer"])
    )
    norms = ["norm", *(f"layers.{n}.{norm}" for n in range(layers) for norm in ("attention_norm", "mlp_norm"))]
    # weight and bias of each
    assert found == {(step, norm, "all_reduce", model["hidden"] * model["dtype_bytes"]): 2 for step in steps for norm in norms}


def test_sequence_parallelism_puts_the_same_bytes_on_the_wire() -> None:
    """Ring: an all-reduce of S bytes sends 2(n-1)/n S, a reduce-scatter and an all-gather (n-1)/n S each."""

    def wire(name: str) -> int:
        return sum(r["wire_bytes"] for r in in_layers(name))

    layers, microbatches, steps, nbytes = sizes("tp")
    assert wire("tp") == wire("tp-sp") == len(steps) * layers * microbatches * 4 * (2 * nbytes * (2 - 1) // 2)


# Pipelines, emulated


@pytest.mark.parametrize("name", ["pp-1f1b", "pp-interleaved-zb", "3d"])
def test_every_action_is_there_and_the_window_is_work_plus_the_parts_of_the_bubble(name: str) -> None:
    stages, pipelines = rows(name, "pipeline", "stages"), rows(name, "pipeline", "pipelines")
    windows = {(p["step"], p["pipeline"]): p["window_ns"] for p in pipelines}
    per_rank: dict[Any, list[Row]] = defaultdict(list)
    for row in stages:
        per_rank[row["step"], row["pipeline"], row["rank"]].append(row)
    assert len(per_rank) == sum(p["pipeline_ranks"] for p in pipelines)
    parts = ("fill_ns", "steady_wait_ns", "p2p_transfer_ns", "exposed_other_collective_ns", "launch_gap_ns", "drain_ns")
    for (step, pipeline, _), own in per_rank.items():
        assert sum(r["work_ns"] for r in own) + sum(own[0][part] for part in parts) == windows[step, pipeline]
        assert own[0]["bubble_ns"] == sum(own[0][part] for part in parts)
        assert all(r["work_ns"] == r["compute_ns"] + r["exposed_collective_ns"] + r["inner_gap_ns"] for r in own)
    for p in pipelines:
        actions = Counter(a["action"] for a in rows(name, "pipeline", "actions") if (a["step"], a["pipeline"]) == (p["step"], p["pipeline"]))
        assert actions["F"] == p["stages"] * p["microbatches"]
        assert max(actions["B"], actions["W"]) == actions["F"]  # a first stage has no input gradient of its own, so no I


def test_1f1b_has_the_bubble_of_the_closed_form() -> None:
    found, config = summary("pp-1f1b", "pipeline"), report_of("pp-1f1b")["run"]["config"]
    p, m = config["mesh"]["pp"], config["training"]["microbatches"]
    assert found["closed_form_bubble_ratio"] == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
    assert found["bubble_ratio"] == pytest.approx((p - 1) / (m + p - 1), abs=0.04)


def test_a_zero_bubble_schedule_does_the_same_work_in_less_time() -> None:
    plain, zero = summary("pp-1f1b", "pipeline"), summary("pp-interleaved-zb", "pipeline")
    assert zero["bubble_ratio"] < plain["bubble_ratio"]
    assert zero["window_ns"] < plain["window_ns"]

    def mean_ns(name: str, letters: str) -> float:
        spans = [a["end_ns"] - a["start_ns"] for a in rows(name, "pipeline", "actions") if a["action"] in letters]
        return sum(spans) / len(report_of(name)["run"]["steps"])

    assert [report_of(name)["run"]["config"]["emulate_compute_ns"] for name in ("pp-1f1b", "pp-interleaved-zb")] == [60_000_000] * 2
    assert mean_ns("pp-interleaved-zb", "IW") == pytest.approx(mean_ns("pp-1f1b", "B"), rel=0.05)


@pytest.mark.parametrize("name", samples())
def test_emulated_numbers_say_so_wherever_they_stand(name: str) -> None:
    report = report_of(name)
    emulated = report["run"]["config"]["emulate_compute_ns"] is not None
    assert report["run"]["emulated"] is emulated
    for metric, found in report["metrics"].items():
        if found["available"]:
            assert any("emulated" in note for note in found["notes"]) is emulated, metric


# Recomputation


def test_full_recomputation_runs_every_layer_twice() -> None:
    layers, microbatches, steps, _ = sizes("recompute-full")
    found = [r for r in rows("recompute-full", "recompute", "layers") if r["layer_index"] is not None]
    assert {(r["step"], r["layer"]) for r in found} == {(step, f"layers.{n}") for step in steps for n in range(layers)}
    assert {(r["forward_runs"], r["recompute_runs"]) for r in found} == {(microbatches, microbatches)}
    assert {(r["forward_products"], r["recompute_products"]) for r in found} == {(4 * microbatches, 4 * microbatches)}


def test_recomputation_saves_the_memory_that_theory_says() -> None:
    peaks = {mode: summary(f"recompute-{mode}", "memory")["activation_bytes"] for mode in ("none", "selective", "full")}
    assert peaks["full"] < peaks["selective"] < peaks["none"]
    for mode, peak in peaks.items():
        assert peak == pytest.approx(summary(f"recompute-{mode}", "memory")["activation_theory_bytes"], rel=0.2), mode


def test_recomputation_costs_time_in_the_order_of_what_is_repeated() -> None:
    found = {mode: summary(f"recompute-{mode}", "recompute") for mode in ("none", "selective", "full")}
    cost = {mode: s["overhead_of_step_compute_ratio"] for mode, s in found.items()}
    assert cost["none"] == 0 < cost["selective"] < cost["full"]
    assert found["full"]["theory_overhead_of_step_compute_ratio"] == theory.recompute_overhead_theory("full") == pytest.approx(1 / 3)


# Everywhere


@pytest.mark.parametrize("name", samples())
def test_nothing_is_wrong_with_a_run_of_ours(name: str) -> None:
    health = report_of(name)["health"]
    assert (health["verdict"], [f["code"] for f in health["findings"] if f["severity"] != "info"]) == ("ok", [])
