"""Do the parts that recipes are made of do what they say? In this process, without communication."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils._python_dispatch import TorchDispatchMode

from instrumentation import data, emulate
from instrumentation.config import CHARACTERS, RunConfig, configure
from instrumentation.model import Attention, Core, Decoder, Layer, Mlp, cross_entropy
from instrumentation.recipes.parts import build_model
from instrumentation.recompute import segments

CPU = torch.device("cpu")


def small(**given: Any) -> RunConfig:
    sizes = {"layers": 4, "hidden": 16, "heads": 2, "sequence": 8, "vocabulary": 32, "microbatch_size": 2, "dtype": "float64"}
    return configure("dense", out="x", **{**sizes, **given})


def gradients(model: Decoder, config: RunConfig) -> dict[str, Tensor]:
    torch.manual_seed(1)
    tokens, targets = data.microbatch(config, 0, 0)
    cross_entropy(model(tokens), targets).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


class Executed(TorchDispatchMode):
    """Counts operators that really run; the profiler also shows those whose kept result is handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = Counter[str]()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.update([str(operator)])
        return operator(*args, **(kwargs or {}))


def test_attention_is_causal_softmax_attention() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8, dtype=torch.float64)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(Core(0.0)(q, k, v), theirs)


def test_attention_of_later_queries_is_the_later_part() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8, dtype=torch.float64)
    core = Core(0.0)
    whole = core(q, k, v)
    core.first_query = 4
    assert torch.allclose(core(q[:, :, 4:], k, v), whole[:, :, 4:])


def test_a_stage_has_the_parameters_of_the_whole_model() -> None:
    config = small()
    whole = Decoder(config).state_dict()
    stage = Decoder(config, layers=range(2, 4), first=False).state_dict()
    assert set(stage) == {name for name in whole if name.startswith(("layers.2", "layers.3", "norm", "head"))}
    assert all(torch.equal(value, whole[name]) for name, value in stage.items())


def test_microbatches_are_the_same_however_many_ranks_share_them() -> None:
    alone = data.step_batch(small(microbatches=4), step=3, data_rank=0)
    shared = [m for rank in range(2) for m in data.step_batch(small(microbatches=2), step=3, data_rank=rank)]
    assert all(torch.equal(a, b) for one, other in zip(alone, shared, strict=True) for a, b in zip(one, other, strict=True))
    assert not torch.equal(alone[0][0], alone[1][0])


def test_targets_are_the_next_characters() -> None:
    tokens, targets = data.microbatch(small(), step=0, index=0)
    assert tokens.shape == targets.shape == (2, 8)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert "".join(data.alphabet()[t] for t in tokens[0]) in data.text()


def test_the_alphabet_is_as_large_as_the_configuration_believes() -> None:
    assert len(data.alphabet()) == CHARACTERS


@pytest.mark.parametrize(
    ("mode", "runs"),
    [
        ("none", {Layer: 1, Attention: 1, Core: 1, Mlp: 1}),
        ("full", {Layer: 2, Attention: 2, Core: 2, Mlp: 2}),
        ("sqrt", {Layer: 2, Attention: 2, Core: 2, Mlp: 2}),
        ("selective:core_attention", {Layer: 1, Attention: 1, Core: 2, Mlp: 1}),
    ],
)
def test_recomputation_repeats_what_its_mode_says(mode: str, runs: dict[type, int]) -> None:
    config = small(recompute=mode)
    model, seen = build_model(config, CPU), Counter[str]()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda _, args, name=name: seen.update([name]))
    gradients(model, config)
    for name, module in model.named_modules():
        if type(module) in runs:
            assert seen[name] == runs[type(module)], name


@pytest.mark.parametrize("mode", ["full", "sqrt", "selective:core_attention", "selective:op"])
def test_recomputation_changes_no_gradient(mode: str) -> None:
    plain, repeating = small(dropout=0.2), small(dropout=0.2, recompute=mode)
    want, got = gradients(build_model(plain, CPU), plain), gradients(build_model(repeating, CPU), repeating)
    assert set(got) == set(want)
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_selective_by_operator_keeps_products_and_repeats_the_rest() -> None:
    def count(mode: str) -> Counter[str]:
        config = small(recompute=mode)
        model = build_model(config, CPU)
        with Executed() as executed:
            gradients(model, config)
        return executed.operators

    none, op, full = count("none"), count("selective:op"), count("full")
    assert (none["aten.addmm.default"], op["aten.addmm.default"]) == (16, 16)
    assert full["aten.addmm.default"] > 16
    assert (none["aten.gelu.default"], op["aten.gelu.default"], full["aten.gelu.default"]) == (4, 8, 8)


@given(st.integers(1, 300))
def test_sqrt_cuts_layers_into_about_sqrt_segments_of_about_sqrt_layers(layers: int) -> None:
    cut = segments(layers)
    lengths = [end - start for start, end in cut]
    assert [cut[0][0], *(end for _, end in cut)] == [0, *(start for start, _ in cut[1:]), layers]
    assert max(lengths) - min(lengths) <= 1
    assert abs(len(cut) - math.sqrt(layers)) <= 0.5
    assert abs(layers / len(cut) - math.sqrt(layers)) < 1


def test_sqrt_keeps_only_the_inputs_of_its_segments() -> None:
    config = small(layers=16, recompute="sqrt")
    model = build_model(config, CPU)
    hidden = torch.randn(2, 8, 16, dtype=torch.float64, requires_grad=True)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        model.run_layers(list(model.layers.values()), hidden)
    assert [t.shape for t in kept] == [hidden.shape] * 4


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that emulated layers would have slept, in order."""
    slept: list[float] = []
    monkeypatch.setattr(emulate.time, "sleep", slept.append)
    return slept


def test_an_emulated_layer_sleeps_once_in_forward_and_twice_in_backward(sleeps: list[float]) -> None:
    config = small(emulate_compute_ns=8_000_000)
    model = build_model(config, CPU)
    tokens, targets = data.microbatch(config, 0, 0)
    loss = cross_entropy(model(tokens), targets)
    assert sleeps == [0.002] * 4
    sleeps.clear()
    loss.backward()
    assert sleeps == [0.002] * 8


def test_a_repeated_forward_sleeps_again(sleeps: list[float]) -> None:
    config = small(emulate_compute_ns=8_000_000, recompute="full")
    gradients(build_model(config, CPU), config)
    assert len(sleeps) == 4 * (1 + 1 + 2)


def test_a_split_backward_sleeps_on_the_input_path_then_on_the_weight_path(sleeps: list[float]) -> None:
    config = small(emulate_compute_ns=8_000_000)
    stage = build_model(config, CPU, layers=range(2, 4), first=False, last=False)
    hidden = torch.randn(2, 8, 16, dtype=torch.float64, requires_grad=True)
    out = stage(hidden)
    sleeps.clear()
    _, groups = stage_backward_input([out], [torch.ones_like(out)], [hidden], stage.parameters())
    assert sleeps == [0.002] * 2
    stage_backward_weight(stage.parameters(), groups)
    assert sleeps == [0.002] * 4


@pytest.mark.parametrize(("schedule", "seconds"), [("1f1b", 0.03), ("interleaved", 0.03), ("zbv", 0.03)])
def test_a_rank_sleeps_the_same_time_with_one_or_two_stages(schedule: str, seconds: float) -> None:
    config = configure("pp", 4, out="x", schedule=schedule, emulate_compute_ns=60_000_000)
    assert (config.layers, emulate.layer_seconds(config)) == (8, pytest.approx(seconds))


def test_emulated_weights_never_change(sleeps: list[float]) -> None:
    config = small(emulate_compute_ns=1)
    grads = gradients(build_model(config, CPU), config)
    assert all(not grads[name].any() for name in grads if ".before." in name)
    assert all(grads[name].any() for name in grads if ".mlp." in name)
