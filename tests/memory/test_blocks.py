"""Is every block paired with its end, and given to the right owner?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import backward, forward, memory, op, passed, span
from tracekit.blocks import blocks, pair


def test_an_allocation_ends_at_its_free() -> None:
    made, freed, old = pair([16, 32, 16, 16, 99, 16], [8, 4, -8, 2, -7, 3])
    assert made.tolist() == [0, 1, 3, 5]
    assert freed.tolist() == [2, 6, 6, 6]
    assert old.tolist() == [4]  # freed, but never made: it stood before


def test_an_address_taken_at_once_by_another_thread_keeps_both_blocks() -> None:
    made, freed, old = pair([16, 16, 16, 16], [8, 4, -8, -4])
    assert (made.tolist(), freed.tolist(), old.tolist()) == ([0, 1], [2, 3], [])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3)), max_size=40))
def test_pairing_is_that_of_a_replay(events: list[tuple[int, int]]) -> None:
    made, freed, old = pair([a for a, _ in events], [b for _, b in events])
    alive: dict[int, list[int]] = {}
    ends: dict[int, int] = {}
    before: list[int] = []
    for i, (addr, nbytes) in enumerate(events):
        if nbytes > 0:
            alive.setdefault(addr, []).append(i)
        elif nbytes < 0 and alive.get(addr):
            ends[alive[addr].pop(0)] = i
        elif nbytes < 0:
            before.append(i)
    ends |= dict.fromkeys((i for rest in alive.values() for i in rest), len(events))
    assert dict(zip(made.tolist(), freed.tolist(), strict=True)) == ends
    assert old.tolist() == before


#: A step of two layers, one microbatch, the optimizer's step, and the next step's zero_grad; times in µs.
STEP = [
    span("ProfilerStep#1", 0, 100),
    span("layers.0.forward", 10, 20),
    forward("aten::mm", 11, 14, 1),
    span("layers.1.forward", 20, 30),
    forward("aten::mm", 21, 24, 2),
    backward("MmBackward0", 40, 50, 2),
    op("aten::mm", 41, 45),
    backward("MmBackward0", 52, 60, 1),
    op("aten::mm", 53, 57),
    span("Optimizer.step#AdamW.step", 70, 80),
    op("aten::add_", 71, 75),
    span("ProfilerStep#2", 100, 200),
    span("Optimizer.zero_grad#AdamW.zero_grad", 110, 120),
    span("layers.0.forward", 130, 140),
    forward("aten::mm", 131, 134, 3),
    backward("MmBackward0", 150, 160, 3),
]


@pytest.mark.parametrize(
    ("made", "freed", "category", "layer"),
    [
        (12, 55, "activation", "layers.0"),
        (22, 51, "activation", "layers.1"),  # freed between two nodes, inside no call
        (12, 13, "temporary", None),
        (12, 35, "temporary", None),  # gone before any backward began
        (12, 90, "unknown", None),  # held by Python past backward: no rule fits
        (42, 46, "temporary", None),
        (42, 65, "temporary", None),  # after backward, but before the optimizer
        (42, 115, "gradient", None),
        (42, None, "gradient", None),
        (72, 74, "temporary", None),
        (72, None, "optimizer_state", None),
        (72, 115, "optimizer_state", None),
        (5, 65, "input", None),  # made between phases, alive when forward begins
        (5, 7, "unknown", None),
        (35, 47, "temporary", None),  # made before a backward, gone in it: a receive buffer of gradients
        (62, 90, "unknown", None),
    ],
)
def test_a_block_belongs_to_what_its_life_says(made: float, freed: float | None, category: str, layer: str | None) -> None:
    life = [memory(made, 64, 64, 7)] + ([] if freed is None else [memory(freed, -64, 0, 7)])
    assert owner(STEP + life) == (category, layer)


#: Layer 0 is checkpointed: its forward runs again at the beginning of its backward node.
AGAIN = [
    span("ProfilerStep#1", 0, 100),
    span("layers.0.forward", 10, 20),
    forward("aten::mm", 11, 14, 1),
    backward("MmBackward0", 40, 60, 1),
    span("layers.0.recompute", 41, 50),
    forward("aten::mm", 42, 45, 9),
    op("aten::mm", 51, 55),
    span("Optimizer.step#AdamW.step", 70, 80),
]


@pytest.mark.parametrize(
    ("made", "freed", "category"), [(43, 53, "activation"), (43, 46, "temporary"), (12, 43, "activation"), (12, 15, "temporary"), (43, 90, "unknown")]
)
def test_a_repeated_forward_makes_activations_for_its_backward(made: float, freed: float, category: str) -> None:
    assert owner([*AGAIN, memory(made, 64, 64, 7), memory(freed, -64, 0, 7)])[0] == category


def test_gathered_shards_are_parameters() -> None:
    events = [span("ProfilerStep#1", 0, 100), span("FSDP::all_gather (layers.0)", 10, 20), memory(12, 64, 64, 7), memory(50, -64, 0, 7)]
    assert owner(events) == ("parameter", None)


def owner(events: list[dict[str, Any]]) -> tuple[str, str | None]:
    trace = passed(events)
    got = blocks(trace, trace.samples.reset_index(drop=True))
    assert np.array_equal(got["nbytes"], [64])
    return got["category"].iloc[0], got["layer"].iloc[0]


BATCH = [
    span("ProfilerStep#1", 0, 100),
    forward("aten::cat", 2, 4, 1),  # carries a Sequence number though no module runs
    span("layers.0.forward", 10, 20),
    forward("aten::mm", 11, 14, 2),
    forward("aten::add", 22, 24, 3),
    backward("MmBackward0", 40, 50, 2),
    span("Optimizer.step#AdamW.step", 70, 80),
    span("ProfilerStep#2", 100, 200),
    span("layers.0.forward", 110, 120),
]


@pytest.mark.parametrize(
    ("made", "freed", "category"),
    [
        (3, None, "input"),  # a batch, kept until the next one takes its name
        (3, 95, "input"),
        (3, 105, "input"),
        (3, 45, "activation"),  # the embedding saved it
        (3, 6, "temporary"),
        (23, None, "unknown"),  # made after the model ran: a loss
        (12, None, "unknown"),
    ],
)
def test_what_is_made_before_the_model_runs_and_outlives_its_beginning_is_input(made: float, freed: float | None, category: str) -> None:
    life = [memory(made, 64, 64, 7)] + ([] if freed is None else [memory(freed, -64, 0, 7)])
    assert owner(BATCH + life)[0] == category


@pytest.mark.parametrize(("made", "category"), [(32, "parameter"), (35, "activation")])
def test_storage_that_fully_shard_fills_outside_every_operator_holds_parameters(made: float, category: str) -> None:
    events = [
        span("ProfilerStep#1", 0, 100),
        span("PP:0F0", 30, 40),
        span("FSDP::pre_forward", 31, 38),
        forward("aten::copy_", 34, 36, 1),
        backward("MmBackward0", 50, 60, 1),
    ]
    assert owner([*events, memory(made, 64, 64, 7), memory(55, -64, 0, 7)])[0] == category
