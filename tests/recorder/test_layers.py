"""Which ranges does the recorder write around layers, and do they nest?"""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.recorder.models import Block, Decoder, loss, train_step
from tests.recorder.traces import chain, outline, parents, slices
from tracekit.recorder import Recorder, Window
from tracekit.recorder.layers import targets
from tracekit.vocabulary import parse_module_span

ONE_STEP = Window(wait=0, warmup=1, active=1, repeat=1)


def record(folder: Path, model: nn.Module, step=train_step) -> list:
    """Train two steps, the second recorded; the slices of its trace."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(folder, model=model, optimizer=optimizer, window=ONE_STEP) as recorder:
        for _ in range(2):
            step(model, optimizer)
            recorder.step()
    return slices(folder / "rank00000/capture000/trace.json.gz")


def test_forward_and_backward_of_every_layer(tmp_path):
    assert outline(record(tmp_path, Decoder()), step=1) == [
        "embedding.forward",
        "layers.0.forward",
        "  layers.0.attention_norm.forward",
        "  layers.0.attention.forward",
        "  layers.0.mlp_norm.forward",
        "  layers.0.mlp.forward",
        "layers.1.forward",
        "  layers.1.attention_norm.forward",
        "  layers.1.attention.forward",
        "  layers.1.mlp_norm.forward",
        "  layers.1.mlp.forward",
        "norm.forward",
        "head.forward",
        "head.backward",
        "norm.backward",
        "layers.1.backward",
        "  layers.1.mlp.backward",
        "  layers.1.mlp_norm.backward",
        "  layers.1.attention.backward",
        "  layers.1.attention_norm.backward",
        "layers.0.backward",
        "  layers.0.mlp.backward",
        "  layers.0.mlp_norm.backward",
        "  layers.0.attention.backward",
        "  layers.0.attention_norm.backward",
        "embedding.backward",
    ]


def test_backward_ranges_hold_the_nodes_of_their_own_layer(tmp_path):
    """Autograd's Sequence number leads from a backward node to its forward operator: both must lie in the same layer."""
    events = record(tmp_path, Decoder())
    rows = parents(events)
    forward, checked = {}, Counter()
    for i, e in enumerate(events):
        layer = next((s for s in map(parse_module_span, chain(events, rows, i)) if s), None)
        number = e.args.get("Sequence number")
        if number is None or layer is None:
            continue
        if layer.direction == "forward" and e.args.get("Fwd thread id") == 0:
            forward[number] = layer.layer
        elif layer.direction == "backward" and e.name.startswith("autograd::engine::evaluate_function") and number in forward:
            assert (e.name, layer.layer) == (e.name, forward[number])
            checked[layer.layer] += 1
    # two linear layers each, and more
    assert all(checked[f"layers.{n}.{part}"] >= 2 for n in (0, 1) for part in ("attention", "mlp"))


@pytest.mark.parametrize("early_stop", [True, False])
def test_recomputation_repeats_the_forward_inside_the_backward(tmp_path, early_stop):
    model = Decoder(layers=1, run_block=partial(checkpoint, use_reentrant=False, early_stop=early_stop))
    lines = outline(record(tmp_path, model), step=1)
    assert [line.strip() for line in lines if ".recompute" in line] == [
        "layers.0.recompute",
        "layers.0.attention_norm.recompute",
        "layers.0.attention.recompute",
        "layers.0.mlp_norm.recompute",
        "layers.0.mlp.recompute",
    ]
    assert [line.strip() for line in lines if line.strip().startswith("layers.0.") and line.endswith(".backward")] == [
        "layers.0.backward",
        "layers.0.mlp.backward",
        "layers.0.mlp_norm.backward",
        "layers.0.attention.backward",
        "layers.0.attention_norm.backward",
    ]
    where = lines.index(next(line for line in lines if line.strip() == "layers.0.recompute"))
    assert lines.index("layers.0.backward") < where < lines.index("embedding.backward")
    assert lines[where].startswith("  ")  # inside the layer's backward


def test_reentrant_recomputation(tmp_path):
    lines = [line.strip() for line in outline(record(tmp_path, Decoder(layers=1, run_block=partial(checkpoint, use_reentrant=True))), step=1)]
    assert lines.count("layers.0.forward") == lines.count("layers.0.recompute") == 1
    assert lines.index("layers.0.recompute") < lines.index("layers.0.mlp.backward") < lines.index("embedding.backward")


def test_selective_recomputation(tmp_path):
    def keep_products(_context, operator, *_args, **_kwargs):
        return CheckpointPolicy.MUST_SAVE if operator == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE

    run = partial(checkpoint, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, keep_products))
    lines = [line.strip() for line in outline(record(tmp_path, Decoder(layers=1, run_block=run)), step=1)]
    assert lines.count("layers.0.forward") == lines.count("layers.0.recompute") == 1


def test_split_backward(tmp_path):
    """Input and weight gradients as zero-bubble schedules take them: two autograd runs over one graph."""

    def step(model, _optimizer):
        x = torch.ones(2, 4, 8, requires_grad=True)
        out = model.layers["0"](x)
        _, groups = stage_backward_input([out], [torch.ones_like(out)], [x], model.layers["0"].parameters())
        with torch.profiler.record_function("weights"):
            stage_backward_weight(model.layers["0"].parameters(), groups)

    model = Decoder(layers=1)
    events = record(tmp_path, model, step)
    lines = outline(events, step=1)
    assert [line for line in lines if ".backward" in line][:5] == [
        "layers.0.backward",
        "  layers.0.mlp.backward",
        "  layers.0.mlp_norm.backward",
        "  layers.0.attention.backward",
        "  layers.0.attention_norm.backward",
    ]
    assert all(p.grad is not None for p in model.layers["0"].parameters())


class Pair(nn.Module):
    """Two blocks that hand a tuple on, the second output without a gradient; the first input is data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Half(), Half()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x > 0
        for layer in self.layers:
            x, mask = layer(x=x, mask=mask)
        return x


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x) * mask, mask


def test_tuples_keyword_inputs_and_a_first_layer_without_input_gradient(tmp_path):
    def step(model, optimizer):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    assert [line for line in outline(record(tmp_path, Pair(), step), step=1) if "backward" in line] == [
        "layers.1.backward",
        "  layers.1.linear.backward",
        "layers.0.backward",
        "  layers.0.linear.backward",
    ]


class Plain(nn.Module):
    """A block whose output is its sublayer's own tensor: one gradient opens both ranges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential()])
        self.layers[0].add_module("linear", nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x)


def test_block_that_returns_its_sublayers_tensor(tmp_path):
    def step(model, _optimizer):
        model(torch.ones(2, 4)).sum().backward()

    lines = outline(record(tmp_path, Plain(), step), step=1)
    assert lines == ["layers.0.forward", "  layers.0.linear.forward", "layers.0.backward", "  layers.0.linear.backward"]


def test_error_inside_a_layer_closes_its_ranges(tmp_path):
    class Breaks(nn.Module):
        def forward(self, x):
            raise ValueError("from the model")

    def step(model, optimizer):
        model.layers["1"].mlp, whole = Breaks(), model.layers["1"].mlp
        with contextlib.suppress(ValueError):
            loss(model)
        model.layers["1"].mlp = whole
        train_step(model, optimizer)

    lines = outline(record(tmp_path, Decoder(), step), step=1)
    assert lines[:13].count("layers.1.forward") == 1
    assert lines[10:13] == ["embedding.forward", "layers.0.forward", "  layers.0.attention_norm.forward"]


def test_no_hooks_outside_windows(tmp_path):
    model = Decoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = []
    with Recorder(tmp_path, model=model, optimizer=optimizer, window=(1, 1, 1, 1)) as recorder:
        for _ in range(4):
            hooks.append(len(model.layers["0"]._forward_hooks) + len(model.layers["0"]._forward_pre_hooks))
            train_step(model, optimizer)
            recorder.step()
    assert hooks == [0, 0, 2, 0]
    assert not optimizer._optimizer_step_pre_hooks


def test_no_hook_stays_on_an_input_that_outlives_the_window(tmp_path):
    x = torch.ones(2, 4, 8, requires_grad=True)

    def step(model, _optimizer):
        model.layers["0"](x).sum().backward()

    lines = outline(record(tmp_path, Decoder(layers=1), step), step=1)
    assert "layers.0.backward" in lines
    assert not x._backward_hooks


def test_targets_of_wrapped_and_foreign_models():
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = nn.ModuleDict({"wte": nn.Embedding(4, 8), "h": nn.ModuleList([Block(8)]), "ln_f": nn.LayerNorm(8)})
            self.lm_head = nn.Linear(8, 4)

    assert [(t.name, t.level) for t in targets([Foreign()])] == [
        ("transformer.wte", 0),
        ("transformer.h.0", 0),
        ("transformer.h.0.attention_norm", 1),
        ("transformer.h.0.attention", 1),
        ("transformer.h.0.mlp_norm", 1),
        ("transformer.h.0.mlp", 1),
        ("transformer.ln_f", 0),
        ("lm_head", 0),
    ]
    wrapped = Decoder(layers=1)
    inner = wrapped.layers["0"]
    wrapped.layers["0"] = checkpoint_wrapper(inner)
    assert [t.module for t in targets([wrapped]) if t.name == "layers.0"] == [inner]
    assert [t.name for t in targets([nn.ModuleDict({"a-b": nn.Linear(1, 1)})])] == []  # a dash is nothing the span grammar has


class Bare(nn.Module):
    """Its list of blocks has a name of its own, and a list is never called: only its members are."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.stack:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))), ["0", "1.0", "1.1"]),
        (Bare(), ["stack.0", "stack.1", "head"]),
    ],
)
def test_without_numbered_blocks_the_members_of_lists_and_sequentials_are_the_layers(tmp_path, model, names):
    def step(model, _optimizer):
        model(torch.ones(2, 4)).sum().backward()

    assert [t.name for t in targets([model])] == names
    lines = outline(record(tmp_path, model, step), step=1)
    assert lines == [f"{name}.forward" for name in names] + [f"{name}.backward" for name in reversed(names)]


def test_nothing_inside_a_compiled_layer_is_hooked():
    model = Decoder(layers=1)
    model.layers["0"] = torch.compile(model.layers["0"], backend="eager")
    assert [t.name for t in targets([model])] == ["embedding", "layers.0", "norm", "head"]
