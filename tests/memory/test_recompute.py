"""Is repeated compute counted, by layer, and is the mode recognised?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.builders import backward, forward, op, passed, span
from tracekit import schema
from tracekit.facts.recompute import recompute
from tracekit.facts.steps import steps
from tracekit.job.base import Job
from tracekit.metrics.recompute import METRIC
from tracekit.passes import run_passes
from tracekit.readers import read
from tracekit.trace import RankFacts, RankMeta
from tracekit.vocabulary import Kind


def training(layers: int, repeated: dict[int, tuple[int, ...]], *, products: int = 2, again: int = 2) -> list[dict[str, Any]]:
    """A step of some layers; ``repeated`` maps the layer whose backward triggers it to the layers run again there.

    A forward product takes 3 µs, a repeated one 2 µs, a backward one 5 µs.
    """
    events, number, at = [span("ProfilerStep#1", 0, 1000)], 1, 10.0
    last = {}
    for layer in range(layers):
        events.append(span(f"layers.{layer}.forward", at, at + 10))
        for k in range(products):
            events.append(forward("aten::mm", at + 1 + 4 * k, at + 4 + 4 * k, number))
            last[layer], number = number, number + 1
        at += 10
    for layer in reversed(range(layers)):
        start, inside = at, at + 1
        for other in repeated.get(layer, ()):
            events.append(span(f"layers.{other}.recompute", inside, inside + 8))
            for k in range(again):
                events.append(forward("aten::mm", inside + 1 + 3 * k, inside + 3 + 3 * k, 1000 + number))
                number += 1
            if not again:
                events.append(forward("aten::softmax", inside + 1, inside + 3, 1000 + number))
            inside += 8
        events += [op("aten::mm", inside + 1, inside + 6), backward("MmBackward0", start, inside + 8, last[layer])]
        at = inside + 10
    return events


def job(events: list[dict[str, Any]], **run: Any) -> Job:
    trace = passed(events)
    facts = RankFacts(RankMeta(rank=0), {**recompute(trace), **steps(trace)})
    return Job({(0, 0): facts}, run=run)


def test_repeated_compute_is_summed_by_layer() -> None:
    table = recompute(passed(training(2, {1: (1,), 0: (0,)})))["recompute"]
    schema.validate(table, schema.RECOMPUTE)
    columns = ["layer_index", "forward_ns", "backward_ns", "recompute_ns", "forward_runs", "recompute_runs", "checkpoints"]
    assert table[columns].astype(object).where(table[columns].notna(), None).values.tolist() == [
        [None, 12_000, 10_000, 8_000, 2, 2, 2],
        [0, 6_000, 5_000, 4_000, 1, 1, 1],
        [1, 6_000, 5_000, 4_000, 1, 1, 1],
    ]


def test_ratios_leave_the_repeated_part_out_of_the_denominator() -> None:
    got = METRIC.compute(job(training(2, {1: (1,), 0: (0,)}), recompute="full"))
    assert got.summary["overhead_of_step_compute_ratio"] == pytest.approx(8 / 22)
    assert got.summary["overhead_of_backward_ratio"] == pytest.approx(8 / 10)
    assert got.summary["theory_overhead_of_step_compute_ratio"] == pytest.approx(1 / 3)
    assert got.tables["ranks"]["recompute_ns"].tolist() == [8000]


@pytest.mark.parametrize(
    ("layers", "repeated", "again", "mode"),
    [
        (4, {}, 2, "none"),
        (4, {n: (n,) for n in range(4)}, 2, "full"),
        (4, {n: (n,) for n in range(4)}, 1, "full"),  # early stop: the last product is not needed
        (4, {n: (n,) for n in range(4)}, 0, "selective"),
        (4, {1: (0, 1), 3: (2, 3)}, 2, "sqrt"),
        (8, {7: tuple(range(8))}, 2, "segments"),
        (4, {1: (1,), 3: (3,)}, 2, "every_kth"),
        (4, {1: (1,), 2: (2,)}, 2, "some_layers"),
    ],
)
def test_the_mode_is_what_ran_again(layers: int, repeated: dict[int, tuple[int, ...]], again: int, mode: str) -> None:
    assert METRIC.compute(job(training(layers, repeated, again=again))).summary["mode"] == mode


def test_a_compiled_backward_cannot_be_told() -> None:
    events = [*training(2, {}), backward("CompiledFunctionBackward", 500, 600, 77)]
    got = METRIC.compute(job(events))
    assert got.summary["mode"] == "unknown"
    assert got.summary["overhead_of_step_compute_ratio"] is None
    assert pd.isna(got.tables["ranks"]["recompute_ns"]).all()


def test_dtensors_own_functions_in_backward_are_no_recomputation() -> None:
    events = [*training(2, {}), forward("NestedRedistribute", 41, 45, 900), op("aten::add", 42, 44)]
    assert METRIC.compute(job(events)).summary["mode"] == "none"


def test_no_compute_is_unavailable_with_a_reason() -> None:
    got = METRIC.compute(job([span("ProfilerStep#1", 0, 10)]))
    assert not got.available and got.reason


SIZES = {"hidden": 64, "heads": 4, "sequence": 32, "dtype_bytes": 4, "attention": "math", "dropout": 0.0}
SUMS = ["forward_ns", "backward_ns", "recompute_ns", "reissued_collective_ns", "reissued_collectives"]


def with_memory(one: Job, held: dict[int, int]) -> Job:
    """The job with activations of its layers alive at the peak of step 1."""
    rows = [{"device": 0, "device_type": "cpu", "step": 1, "layer": f"layers.{n}", "layer_index": n, "activation_bytes": nbytes} for n, nbytes in held.items()]
    facts = one.ranks[(0, 0)]
    tables = {**facts.tables, "memory_layers": schema.conform(pd.DataFrame(rows), schema.MEMORY_LAYERS)}
    return Job({(0, 0): RankFacts(facts.meta, tables)}, run=one.run)


def listed(table: pd.DataFrame, columns: list[str]) -> list[list[Any]]:
    return table[columns].astype(object).where(table[columns].notna(), None).values.tolist()


def test_a_kept_layer_of_the_same_step_measures_what_a_repeated_one_saves() -> None:
    one = with_memory(job(training(4, {1: (1,), 3: (3,)})), {0: 2**30, 1: 2**28, 2: 2**30, 3: 2**29})
    got = METRIC.compute(one)
    assert listed(got.tables["layers"], ["layer_index", "saved_bytes", "saved_source", "recompute_per_saved_gib_ns"]) == [
        [0, None, None, None],
        [1, 3 * 2**28, "measured", 4000 * 4 / 3],
        [2, None, None, None],
        [3, 2**29, "measured", 8000.0],
    ]
    assert (got.summary["saved_bytes"], got.summary["saved_source"]) == (5 * 2**28, "measured")
    assert got.summary["recompute_per_saved_gib_ns"] == pytest.approx(8000 * 4 / 5)
    assert got.summary["repeated_every"] == 2


def test_a_layer_freed_before_the_peak_saves_an_unknown_amount() -> None:
    got = METRIC.compute(with_memory(job(training(4, {1: (1,), 3: (3,)})), {0: 2**30, 1: 2**28}))
    assert listed(got.tables["layers"], ["saved_bytes"])[3] == [None]
    assert got.summary["saved_bytes"] is None and got.summary["recompute_per_saved_gib_ns"] is None


def test_where_no_layer_is_kept_the_closed_form_tells() -> None:
    run = {"model": SIZES, "training": {"microbatch_size": 1}, "device": "cpu", "recompute": "full"}
    got = METRIC.compute(job(training(2, {1: (1,), 0: (0,)}), **run))
    whole, kept = (int(got.tables["modes"].set_index("mode").loc[m, "activation_per_layer_theory_bytes"]) for m in ("none", "full"))
    assert listed(got.tables["layers"], ["saved_bytes", "saved_source"]) == [[whole - kept, "closed_form"]] * 2
    # one layer is whole again while it is repeated
    assert got.summary["saved_bytes"] == 2 * whole - (2 * kept + whole)


def test_closed_forms_of_another_mode_say_nothing() -> None:
    got = METRIC.compute(job(training(2, {1: (1,), 0: (0,)}), model=SIZES, training={"microbatch_size": 1}, recompute="selective:core_attention"))
    assert listed(got.tables["layers"], ["saved_bytes", "saved_source"]) == [[None, None]] * 2


def test_an_unknown_mode_says_why() -> None:
    summary = METRIC.compute(job([*training(2, {}), backward("CompiledFunctionBackward", 500, 600, 77)])).summary
    assert summary["mode"] == "unknown" and "compiled" in summary["mode_reason"]
    assert METRIC.compute(job(training(2, {}))).summary["mode_reason"] is None


def test_sublayers_sum_to_their_layer() -> None:
    events = training(2, {1: (1,), 0: (0,)})
    events += [span("layers.0.attention.forward", 10.5, 14.5), span("layers.0.mlp.forward", 14.6, 18.5)]
    tables = recompute(passed(events))
    parts = tables["recompute_sublayers"]
    schema.validate(parts, schema.RECOMPUTE_SUBLAYERS)
    assert {"attention", "mlp"} <= set(parts["sublayer"].dropna())
    whole = tables["recompute"].dropna(subset=["layer"]).set_index("layer")[SUMS].sort_index()
    pd.testing.assert_frame_equal(parts.groupby("layer")[SUMS].sum().sort_index(), whole, check_names=False, check_index_type=False)


def test_kernels_of_a_real_checkpointed_resnet(shared: Path) -> None:
    name = "tracelens/mi300__resnet_act_checkpoint.json.gz"
    want = json.loads((shared / "traces" / "reference.json").read_text())[name]["recompute"]
    (trace,) = read(shared / "traces" / name)
    events = run_passes(trace).events
    again = events[events["recompute"] & events["device"].notna() & events["kind"].eq(Kind.COMPUTE)]
    assert (len(again), int(again["dur"].sum())) == (want["kernels"], want["kernels_dur_ns"])


def test_a_kept_layer_that_holds_less_than_a_repeated_one_measures_nothing() -> None:
    got = METRIC.compute(with_memory(job(training(4, {1: (1,), 3: (3,)})), {0: 2**28, 1: 2**30, 2: 2**28, 3: 2**27}))
    assert listed(got.tables["layers"], ["saved_bytes", "saved_source"])[1::2] == [[None, None], [2**27, "measured"]]
    assert got.summary["saved_bytes"] is None
