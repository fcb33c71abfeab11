"""Is every kind of checkpoint told without any annotation, and is a compiled one refused?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="small models are run under torch's profiler")

from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # noqa: E402

from tracekit import analyze  # noqa: E402
from tracekit.metrics.base import Result  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Layer(nn.Module):
    """A residual MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        """x: [rows, 16]."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class OwnCheckpoint(torch.autograd.Function):
    """A checkpoint as Megatron-LM writes its own: forward without a graph, in backward once more with one."""

    @staticmethod
    def forward(ctx: Any, layer: Any, x: Any) -> Any:
        """Run without a graph and keep the input."""
        ctx.layer = layer
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run again with a graph, and its backward inside this one."""
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer(x)
        torch.autograd.backward(y, gradients)
        return None, x.grad


def keep_products(_: Any, operator: Any, *__: Any, **___: Any) -> Any:
    """Keep the products, repeat the rest."""
    return CheckpointPolicy.MUST_SAVE if operator is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


WAYS: dict[str, Any] = {
    "none": lambda layer, x: layer(x),
    "reentrant": partial(checkpoint, use_reentrant=True),
    "non_reentrant": partial(checkpoint, use_reentrant=False),
    "no_early_stop": partial(checkpoint, use_reentrant=False, early_stop=False),
    "own_function": OwnCheckpoint.apply,
    "selective": partial(checkpoint, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, keep_products)),
    "wrapper": lambda layer, x: checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT)(x),
}


class Model(nn.Module):
    """Four layers, run the given way."""

    def __init__(self, way: Any) -> None:
        super().__init__()
        self.way, self.first, self.layers = way, nn.Linear(16, 16), nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x: Any) -> Any:
        """x: [rows, 16]."""
        x = self.first(x)
        for layer in self.layers:
            x = self.way(layer, x)
        return x


def recorded(folder: Path, way: str, *, compiled: bool = False, **options: Any) -> Result:
    """One step of a model under the profiler, analysed."""
    model = Model(WAYS[way])
    run = torch.compile(model, backend="aot_eager") if compiled else model
    run(torch.randn(8, 16)).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        run(torch.randn(8, 16)).sum().backward()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return analyze(folder / "trace.json", workers=1).result("recompute")


@pytest.mark.parametrize("way", WAYS)
def test_module_frames_tell_which_layers_run_again(way: str, tmp_path: Path) -> None:
    got = recorded(tmp_path, way, with_stack=True)
    assert got.summary["mode"] == (way if way in ("none", "selective") else "full")
    again = got.tables["layers"].set_index("layer")
    assert again["recompute_runs"].tolist() == [int(way != "none")] * 4
    assert again["recompute_products"].tolist() == [0 if way in ("none", "selective") else 2] * 4


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}])
@pytest.mark.parametrize("way", ["none", "reentrant", "non_reentrant", "own_function"])
def test_autograd_numbers_alone_tell_that_something_runs_again(way: str, options: dict[str, bool], tmp_path: Path) -> None:
    got = recorded(tmp_path, way, **options)
    assert (got.summary["recompute_ns"] > 0) == (way != "none")
    assert got.tables["ranks"]["recompute_ns"].notna().all()


def test_compiled_layers_cannot_be_told(tmp_path: Path) -> None:
    got = recorded(tmp_path, "non_reentrant", compiled=True)
    assert got.summary["mode"] == "unknown" and got.summary["recompute_ns"] is None
    assert any("compiled" in note for note in got.notes)


def penalised(model: Any, x: Any) -> None:
    """A loss with a penalty on the gradient of the input: a backward through a backward."""
    y = model(x).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    (y + gradient.pow(2).sum()).backward()


def with_graph(model: Any, x: Any) -> None:
    """A backward that builds a graph, which nothing uses."""
    model(x).sum().backward(create_graph=True)


@pytest.mark.parametrize("with_stack", [True, False])
@pytest.mark.parametrize("train", [penalised, with_graph])
@pytest.mark.parametrize("way", ["none", "non_reentrant"])
def test_a_backward_that_builds_a_graph_repeats_only_what_a_checkpoint_does(way: str, train: Any, with_stack: bool, tmp_path: Path) -> None:
    """How often a layer ran again is counted in the layer itself."""
    model, runs = Model(WAYS[way]), []
    model.layers[1].norm.register_forward_pre_hook(lambda *_: runs.append(1))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=with_stack) as profiler:
        train(model, torch.randn(8, 16, requires_grad=True))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    got = analyze(tmp_path / "trace.json", workers=1).result("recompute")
    assert (got.summary["recompute_ns"] > 0) == (way != "none") == (len(runs) > 1)
    if with_stack:
        layer = got.tables["layers"].set_index("layer").loc["layers.1"]
        assert (layer["recompute_runs"], layer["recompute_products"]) == (len(runs) - 1, 2 * (len(runs) - 1))
        assert got.summary["mode"] == ("none" if way == "none" else "full")
