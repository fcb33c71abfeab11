"""Is what was alive at a peak divided exactly, and are microbatches in flight counted?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import backward, forward, memory, op, passed, span
from tracekit import analyze
from tracekit.blocks import blocks
from tracekit.facts.memory import memory as memory_fact
from tracekit.held import in_flight
from tracekit.owners import CATEGORY, RULES

SAMPLES = Path(__file__).parents[2] / "sample_traces"

STEP = [
    span("ProfilerStep#1", 0, 100),
    span("layers.0.forward", 10, 20),
    forward("aten::mm", 11, 14, 1),
    op("aten::empty", 12, 13),
    op("c10d::allgather_", 15, 18),
    op("aten::empty", 16, 17),
    backward("MmBackward0", 40, 50, 1),
    span("FSDP::post_backward_reduce (layers.0)", 55, 60),
    span("Optimizer.step#AdamW.step", 70, 80),
]


def only(*life: dict[str, Any]) -> pd.Series:
    trace = passed([*STEP, *life])
    return blocks(trace, trace.samples.reset_index(drop=True)).iloc[0]


def test_a_block_says_who_made_it_who_ended_it_and_which_rule_decided() -> None:
    got = only(memory(12.5, 64, 64, 7), memory(45, -64, 0, 7))
    assert (got["category"], got["rule"]) == ("activation", "forward_to_backward")
    assert (got["made_by"], got["made_layer"], got["made_direction"], got["made_step"]) == ("aten::mm", "layers.0", "forward", 1)
    assert (got["freed_by"], got["freed_direction"]) == ("autograd::engine::evaluate_function: MmBackward0", "backward")


def test_what_a_process_group_allocates_is_a_communication_buffer() -> None:
    got = only(memory(16.5, 64, 64, 7), memory(45, -64, 0, 7))
    assert (got["category"], got["rule"]) == ("communication", "collective_scratch")


def test_a_reduced_gradient_is_told_from_the_buffer_that_reduced_it() -> None:
    assert only(memory(56, 64, 64, 7), memory(65, -64, 0, 7))["rule"] == "reduce_buffer"
    assert only(memory(56, 64, 64, 7), memory(95, -64, 0, 7))["rule"] == "backward_to_optimizer"


def test_communication_counts_once_within_temporary() -> None:
    row = memory_fact(passed([*STEP, memory(16.5, 64, 64, 7), memory(17, -64, 0, 7)]))["memory_peaks"].iloc[0]
    assert (row["temporary_bytes"], row["communication_bytes"], row["unknown_bytes"]) == (64, 64, 0)


def test_every_rule_has_its_own_code_and_says_something() -> None:
    assert len(CATEGORY) == len(RULES) and all(rule.says for rule in RULES)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from([5, 12.5, 16.5, 30, 45, 56, 75, 95]), st.integers(1, 4), st.integers(-40, 40)), min_size=1, max_size=30))
def test_groups_sum_to_the_peak_whatever_the_events(events: list[tuple[float, int, int]]) -> None:
    """Frees of unknown addresses, addresses used again, events of 0 bytes and negative totals among them."""
    rows, level = [], 0
    for at, addr, size in sorted(events):
        level += size
        rows.append(memory(at, size, level, addr))
    tables = memory_fact(passed([*STEP, *rows]))
    peaks, owners = tables["memory_peaks"], tables["memory_owners"]
    sums = owners.groupby(owners["step"].fillna(-1))["nbytes"].sum()
    # a peak of 0 bytes has no groups
    assert sums.reindex(peaks["step"].fillna(-1), fill_value=0).tolist() == peaks["allocated_peak_bytes"].tolist()
    parts = ["parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown"]
    assert (peaks[[f"{p}_bytes" for p in parts]].fillna(0).sum(axis=1) == peaks["allocated_peak_bytes"]).all()


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=12))
def test_microbatches_in_flight_are_those_of_a_replay(lives: list[tuple[int, int, int, int]]) -> None:
    alive = pd.DataFrame(lives, columns=["made", "lasts", "made_microbatch", "nbytes"]).astype("int64")
    alive = alive.assign(freed=alive["made"] + alive["lasts"], category="activation", made_step=1, made_stage=0)
    alive = alive.astype({"made_microbatch": "Int64", "made_step": "Int64", "made_stage": "Int64"})
    (row,) = in_flight(alive, np.arange(20)).to_dict("records")
    at = [alive[(alive["made"] <= t) & (alive["freed"] > t)] for t in range(20)]
    assert row["activation_peak_bytes"] == max(int(held["nbytes"].sum()) for held in at)
    assert row["most_microbatches"] == max(held["made_microbatch"].nunique() for held in at)
    assert row["in_flight_microbatches"] == at[row["activation_peak_ts_ns"]]["made_microbatch"].nunique()


def test_one_forward_one_backward_holds_fewer_microbatches_from_stage_to_stage() -> None:
    table = analyze(SAMPLES / "pp-1f1b").result("memory").tables["in_flight"].sort_values("stage")
    assert table["in_flight_microbatches"].tolist() == table["in_flight_theory_microbatches"].tolist() == [4, 3, 2, 1]
    assert table["in_flight_order_microbatches"].tolist() == [4, 3, 2, 1]
