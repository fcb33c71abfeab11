"""Which flags tell the sizes of the model? Added by ``sized`` to a command that has a parameter ``model``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from tracekit.model_sizes import ModelSizes, given_sizes

_PANEL = "Sizes of the model, where no run.json tells them (MFU, HFU, memory on paper)"


def _whole(help: str) -> Any:
    return typer.Option(min=1, metavar="N", help=help, show_default="run.json", rich_help_panel=_PANEL)


def asked(
    hidden: Annotated[int | None, _whole("Hidden size.")] = None,
    layers: Annotated[int | None, _whole("Layers of the whole model.")] = None,
    heads: Annotated[int | None, _whole("Attention heads.")] = None,
    kv_heads: Annotated[int | None, _whole("Key and value heads (grouped queries).")] = None,
    head_size: Annotated[int | None, _whole("Size of a head, where it is not hidden / heads.")] = None,
    ffn_hidden: Annotated[int | None, _whole("Width of the MLP.")] = None,
    gated_mlp: Annotated[
        bool | None, typer.Option("--gated-mlp/--plain-mlp", help="The MLP has a third matrix (SwiGLU).", show_default="run.json", rich_help_panel=_PANEL)
    ] = None,
    experts: Annotated[int | None, _whole("Experts of a layer.")] = None,
    sequence: Annotated[int | None, _whole("Sequence length.")] = None,
    vocabulary: Annotated[int | None, _whole("Size of the vocabulary.")] = None,
    global_batch: Annotated[int | None, _whole("Samples of a step over all ranks.")] = None,
    microbatch_size: Annotated[int | None, _whole("Samples of a microbatch.")] = None,
    microbatches: Annotated[int | None, _whole("Microbatches per step and data-parallel rank.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Type of the matrix products: bfloat16, float16 or float32.", show_default="run.json", rich_help_panel=_PANEL),
    ] = None,
    peak_flops: Annotated[
        str | None,
        typer.Option(
            metavar="SPEED",
            help="FLOP/s that one device does at best, as in 312T or 989e12.",
            show_default="the vendor's, for devices that are known",
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> ModelSizes:
    """The sizes that the flags give."""
    return given_sizes({name: value for name, value in locals().items() if value is not None})


def sized(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the flags of ``asked`` in place of its parameter ``model``."""
    flags = inspect.signature(asked, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True)

    @wraps(command)
    def with_flags(**given: Any) -> Any:
        rest = {name: value for name, value in given.items() if name not in flags}
        return command(**rest, model=asked(**{name: value for name, value in given.items() if name in flags}))

    kept = [p for p in own.parameters.values() if p.name != "model"]
    at = next(i for i, p in enumerate(kept) if p.name == "capture")
    with_flags.__signature__ = own.replace(parameters=[*kept[:at], *flags.values(), *kept[at:]])  # type: ignore[attr-defined]
    return with_flags
