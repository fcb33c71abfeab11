"""Is repeated compute counted, by layer, and is the mode recognised?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.builders import backward, forward, op, passed, span
from tracekit import schema
from tracekit.facts.recompute import recompute
from tracekit.facts.steps import steps
from tracekit.job.base import Job
from tracekit.metrics.recompute import METRIC
from tracekit.trace import RankFacts, RankMeta


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
