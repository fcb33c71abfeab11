"""Layers that nobody named, counted off the work that repeats itself."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import AUTOGRAD, backward, forward, kernel, launch, op, passed, span
from tracekit.passes import run_passes
from tracekit.readers import kineto
from tracekit.reading import DEFAULT
from tracekit.repeats import Repeat, repeat
from tracekit.trace import RankTrace
from tracekit.vocabulary import layer_index

#: A layer's forward and backward under tensor parallelism: letter -> kernel.
KERNELS = {
    "E": "indexSelectLargeIndex<bf16>",
    "N": "vectorized_layer_norm_kernel<bf16>",
    "M": "nvjet_tst_128x256_TNT",
    "A": "flash_fwd_kernel<traits>",
    "r": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)",
    "g": "vectorized_elementwise_kernel<4, Gelu>",
    "n": "layer_norm_grad_input_kernel<bf16>",
    "m": "nvjet_tst_256x128_NTN",
    "a": "flash_bwd_dq_dk_dv_loop_kernel<traits>",
}
LAYER, BACK = "NMAMrNMgMr", "mgmmmrnmmammrn"


def eager(*passes: str, sequences: bool = True) -> RankTrace:
    """A step of kernels, one letter each. Small-letter passes (but for ``r`` and ``g``) run in backward, from the last forward operator back."""
    events: list[dict[str, Any]] = [span("ProfilerStep#1", 0, 100_000)]
    at, number, made = 1, 0, []
    for letters in passes:
        behind = letters.islower()
        todo = list(made) if behind else []
        for letter in letters:
            at += 4
            if behind:
                marked = todo.pop() if todo and sequences else None
                events.append(backward("Node", at, at + 3, marked, tid=AUTOGRAD))
            else:
                number += 1
                made.append(number)
                events.append(forward("aten::work", at, at + 3, number) if sequences else op("aten::work", at, at + 3))
            events.append(launch(at + 1, at + 2, at, tid=AUTOGRAD if behind else 100))
            events.append(kernel(KERNELS[letter], 100_000 + at, 100_001 + at, at))
    return passed(events)


def layers(trace: RankTrace, what: str = "kernel") -> list[str | None]:
    """Layer of each kernel, or of each collective, in order."""
    events = trace.events[trace.events["device"].notna()].sort_values("ts")
    rows = events[events["collective"].notna()] if what == "collectives" else events
    return [None if value is None else str(value).removeprefix("layers.") for value in rows["layer"].astype(object).where(rows["layer"].notna(), None)]


def test_the_copies_of_a_unit_are_the_layers() -> None:
    trace = eager("E" + LAYER * 3 + "NM")
    attention, mlp = ["attention"] * 5, ["mlp"] * 5
    expected = [f"{k}.{part}" for k in range(3) for part in attention + mlp]
    assert layers(trace) == ["embedding", *expected, "head", "head"]
    assert set(trace.events["layer_source"].dropna()) == {"inferred"}


def test_backward_follows_its_forward_by_sequence_number() -> None:
    trace = eager(LAYER * 2, "mgmrnmamrn"[:10] + "mgmrnmamrn")
    assert layers(trace, "collectives") == ["0.attention", "0.mlp", "1.attention", "1.mlp", "1.mlp", "1.attention", "0.mlp", "0.attention"]


def test_every_run_of_forward_is_a_microbatch() -> None:
    trace = eager(LAYER * 2, "m" * 20, LAYER * 2, "m" * 20)
    rows = trace.events[trace.events["collective"].notna() & trace.events["device"].notna()].sort_values("ts")
    assert layers(trace, "collectives") == ["0.attention", "0.mlp", "1.attention", "1.mlp"] * 2
    assert rows["microbatch"].tolist() == [0] * 4 + [1] * 4


def graph(letters: str, steps: int = 1) -> RankTrace:
    """Kernels of one graph launch per step: no operator, no phase."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        base = 1_000_000 * step
        events += [span(f"ProfilerStep#{step}", base, base + 900_000), op("cudaGraphLaunch", base + 1, base + 2, cat="cuda_runtime", correlation=step + 1)]
        events += [kernel(KERNELS[letter], base + 100 + 2 * i, base + 101 + 2 * i, step + 1) for i, letter in enumerate(letters)]
    return passed(events)


def test_a_graph_of_forward_and_backward_counts_down_again() -> None:
    trace = graph("E" + LAYER * 3 + "NM" + "mmn" + BACK * 3, steps=2)
    assert (
        layers(trace, "collectives")
        == [
            *(f"{k}.{part}" for k in range(3) for part in ("attention", "mlp")),
            *(f"{k}.{part}" for k in (2, 1, 0) for part in ("mlp", "attention")),
        ]
        * 2
    )
    assert trace.events[trace.events["collective"].notna()]["phase"].astype(str).tolist() == (["forward"] * 6 + ["backward"] * 6) * 2


def test_a_graph_without_gradients_has_layers_and_no_phase() -> None:
    trace = graph("E" + LAYER * 4 + "NM")
    assert layers(trace, "collectives") == [f"{k}.{part}" for k in range(4) for part in ("attention", "mlp")]
    assert trace.events["phase"].isna().all()


def test_many_tokens_in_a_row_are_no_layers_but_their_layers_are() -> None:
    trace = graph(("E" + LAYER * 3 + "NM") * 5)
    assert layers(trace, "collectives") == [f"{k}.{part}" for k in range(3) for part in ("attention", "mlp")] * 5


@pytest.mark.parametrize(
    "letters",
    [
        "NMMrNMMr" * 4,  # no attention: half a layer may look like a whole one
        LAYER * 3 + "M" + LAYER,  # a layer stands apart: which number has it?
        LAYER,  # nothing repeats
        "MMMM",
    ],
)
def test_nothing_is_said_where_it_is_not_clear(letters: str) -> None:
    trace = eager(letters)
    assert set(layers(trace)) == {None}
    assert "layers_inferred" not in {f["code"] for f in trace.findings}


def test_forwards_that_do_not_agree_say_nothing() -> None:
    assert set(layers(eager(LAYER * 2, "m" * 20, LAYER * 3, "m" * 30))) == {None}


def test_named_layers_are_never_counted() -> None:
    events = [span("layers.7.forward", 0, 500)]
    for i, letter in enumerate(LAYER * 2):
        events.append(forward("aten::work", 10 * i, 10 * i + 8, i + 1))
        events += [launch(10 * i + 1, 10 * i + 2, i + 1), kernel(KERNELS[letter], 1000 + i, 1000.5 + i, i + 1)]
    trace = passed(events)
    assert set(layers(trace)) == {"7"}


@given(st.lists(st.integers(0, 4), max_size=6), st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(2, 6), st.lists(st.integers(0, 4), max_size=6))
def test_the_stretch_found_is_the_longest_there_is(before: list[int], unit: list[int], copies: int, after: list[int]) -> None:
    symbols = np.array(before + unit * copies + after, np.int64)
    found = repeat(symbols)
    assert found is not None
    piece = symbols[found.start : found.end]
    assert (piece.reshape(found.copies, found.period) == piece[: found.period]).all()
    assert found.copies >= 2
    assert found.copies * found.period >= len(unit) * copies
    covered = max(
        (n // p * p for p in range(1, len(symbols) // 2 + 1) for s in range(len(symbols)) if (n := _stretch(symbols, s, p)) >= 2 * p),
        default=0,
    )
    assert found.copies * found.period == covered


def _stretch(symbols: np.ndarray, start: int, period: int) -> int:
    """Symbols from ``start`` on that go on with a period."""
    end = start + period
    while end < len(symbols) and symbols[end] == symbols[end - period]:
        end += 1
    return end - start


def test_long_sequences_are_searched_by_the_distances_of_their_symbols() -> None:
    unit = np.arange(90) % 37
    symbols = np.concatenate([[99, 98], np.tile(unit, 96), [97]])
    assert repeat(symbols) == Repeat(2, 90, 96)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("pippy/local_test_forward_hf_gpt2.json.gz", 12),  # GPT-2
        ("tracelens/sglang_decode__sglang_Qwen3-8B_decode.json.gz", 36),  # Qwen3-8B, in a graph
        ("tracelens/vllm_decode_full__graph_execution.json.gz", 24),  # gpt-oss-20b, in a graph
    ],
)
def test_real_models_have_the_layers_that_are_published_of_them(shared: Path, name: str, count: int) -> None:
    (trace,) = kineto.read(gzip.decompress((shared / "traces" / name).read_bytes()), Path(name), DEFAULT)
    found = {layer_index(str(layer)) for layer in run_passes(trace).events["layer"].dropna().unique()} - {None}
    assert found == set(range(count))


@pytest.mark.parametrize("name", ["tracelens/gpu_only_trace__gpu_only_trace.json.gz", "kineto/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz"])
def test_a_model_without_layers_that_repeat_gets_none(shared: Path, name: str) -> None:
    (trace,) = kineto.read(gzip.decompress((shared / "traces" / name).read_bytes()), Path(name), DEFAULT)
    assert not run_passes(trace).events["layer_source"].eq("inferred").any()


def test_the_only_layer_of_a_stage_is_told_where_ranges_tell_the_stage() -> None:
    events: list[dict[str, Any]] = []
    for microbatch, at in enumerate((0, 1000)):
        events.append(span(f"PP:1F{microbatch}", at, at + 900))
        for i, letter in enumerate("NMAMrNMgMr" + "NM"):
            now, number = at + 10 + 10 * i, at + i + 1
            events += [forward("aten::work", now, now + 8, number), launch(now + 1, now + 2, number), kernel(KERNELS[letter], now + 3, now + 4, number)]
    assert layers(passed(events), "collectives") == ["0.attention", "0.mlp"] * 2
