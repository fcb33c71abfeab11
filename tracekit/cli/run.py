"""How is a reference run started from a shell? ``tracekit run RECIPE``"""

from __future__ import annotations

import importlib.util
import json as jsonlib
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tracekit.cli.screen import meter, say
from tracekit.errors import UsageError

_DURATION = re.compile(r"^(?P<number>\d+(?:\.\d+)?)(?P<unit>ns|us|ms|s)$")
#: Parameters of the command that are no fields of RunConfig, or not as they are written.
_NOT_SETTINGS = frozenset({"recipe", "ranks", "out", "emulate_compute", "no_layer_ranges", "json", "debug"})
_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def run(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="dense, ddp, fsdp, tp, tp-sp, cp, pp or 3d.", show_default=False)],
    ranks: Annotated[int | None, typer.Option(help="Processes.", show_default="dense 1, pp 4, 3d 8, else 2")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Run directory to make.", show_default="runs/RECIPE")] = None,
    layers: Annotated[int | None, typer.Option(help="Decoder layers.", show_default="4, or 2 per pipeline rank")] = None,
    hidden: Annotated[int | None, typer.Option(help="Hidden size.", show_default="128; emulated: 32")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.", show_default="4")] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens per sequence.", show_default="64; emulated: 16")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Rows of the embedding.", show_default="64")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout probability.", show_default="0")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64 or bfloat16.", show_default="float32")] = None,
    microbatch_size: Annotated[
        int | None, typer.Option(help="Sequences per microbatch and data-parallel rank.", show_default="4; pp, 3d: 2; emulated: 1")
    ] = None,
    microbatches: Annotated[int | None, typer.Option(help="Microbatches per step and data-parallel rank.", show_default="2; pp, 3d: 8")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default="10; emulated: 5")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of AdamW.", show_default="0.003")] = None,
    seed: Annotated[int | None, typer.Option(help="Of parameters, data and dropout.", show_default="0")] = None,
    device: Annotated[str | None, typer.Option(help="cpu (gloo) or cuda (NCCL).", show_default="cpu")] = None,
    pp: Annotated[int | None, typer.Option(help="3d: pipeline ranks.", show_default="2")] = None,
    tp: Annotated[int | None, typer.Option(help="3d: tensor-parallel ranks.", show_default="2")] = None,
    dp: Annotated[int | None, typer.Option(help="3d: data-parallel ranks.", show_default="the rest")] = None,
    data: Annotated[str | None, typer.Option(help="3d: ddp or fsdp.", show_default="ddp")] = None,
    sequence_parallel: Annotated[bool | None, typer.Option("--sequence-parallel", help="3d: Megatron sequence parallelism.", show_default="off")] = None,
    schedule: Annotated[str | None, typer.Option(help="pp, 3d: gpipe, 1f1b, interleaved, interleaved-zb, zbv or dualpipev.", show_default="1f1b")] = None,
    virtual: Annotated[int | None, typer.Option(help="pp, 3d: stages per rank.", show_default="1; interleaved, zbv, dualpipev: 2")] = None,
    recompute: Annotated[str | None, typer.Option(help="none, full, selective:core_attention, selective:op or sqrt.", show_default="none")] = None,
    emulate_compute: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Sleep instead of computing. One rank's layers sleep T (20ms, 0.1s) for a microbatch's forward, T for its input gradients and T "
            "for its weight gradients, shared out evenly over the rank's layers and so over its virtual stages. Repeated forwards sleep again.",
            show_default="off",
        ),
    ] = None,
    wait: Annotated[int | None, typer.Option(help="Steps before the profiler starts.", show_default="1")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps that the profiler runs and forgets.", show_default="1")] = None,
    active: Annotated[int | None, typer.Option(help="Steps recorded.", show_default="3")] = None,
    no_layer_ranges: Annotated[
        bool, typer.Option("--no-layer-ranges", help="Record no ranges that name layers: what is then said of them is inferred.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Write the result document (tracekit.result/1) to stdout, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a small model that is really split over processes, and record it.

    \b
    Recipes, by what they split:
      dense   nothing: one process
      ddp     the batch (DistributedDataParallel)
      fsdp    the batch, and parameters, gradients, optimizer state (fully_shard)
      tp      every layer's matrices, attention by heads (tensor parallelism)
      tp-sp   as tp, and norm, dropout, residual along the sequence (Megatron)
      cp      the sequence, keys and values gathered (context parallelism)
      pp      the layers into pipeline stages, under a --schedule
      3d      data x pipeline x tensor

    \b
    Examples:
      tracekit run tp --ranks 2
      tracekit run dense --recompute full
      tracekit run pp --ranks 4 --schedule interleaved-zb --emulate-compute 60ms
      tracekit run 3d --ranks 8 --data fsdp --sequence-parallel
      tracekit run tp --ranks 2 --device cuda
    """
    from instrumentation.config import configure

    if out is None:
        out = _free(Path("runs") / "-".join(part for part in (recipe, schedule, recompute) if part).replace(":", "-"))
    settings = {name: value for name, value in context.params.items() if name not in _NOT_SETTINGS}
    if emulate_compute is not None:
        settings["emulate_compute_ns"] = duration_ns(emulate_compute)
    config = configure(recipe, ranks, out=str(out), command=shlex.join(["tracekit", *sys.argv[1:]]), layer_ranges=not no_layer_ranges, **settings)
    if importlib.util.find_spec("torch") is None:
        raise UsageError("training needs torch: pip install 'tracekit-train[recorder]'")
    from instrumentation.launch import launch

    say(f"starting {config.ranks} {'process' if config.ranks == 1 else 'processes'} in {out}; loading torch takes some seconds")
    with meter() as progress:
        launch([config], lambda _, step: progress(step, config.steps, f"{recipe}, steps"))
    result = {**jsonlib.loads((out / "result.json").read_text(encoding="utf-8")), "directory": str(out)}
    typer.echo(jsonlib.dumps(result, indent=1) if json else _said(result, emulated=emulate_compute is not None))


def _said(result: dict[str, Any], *, emulated: bool) -> str:
    """What a person is told when the run is done."""
    out, losses = result["directory"], result["losses"]
    slept = " (emulated compute: the layers slept)" if emulated else ""
    return (
        f"{out}: {len(losses)} steps in {result['wall_ns'] / 1e9:.1f} s{slept}, loss {losses[0]:.3f} -> {losses[-1]:.3f}\n"
        f"Next: tracekit analyze {shlex.quote(out)}"
    )


def duration_ns(text: str) -> int:
    """A duration such as 20ms in nanoseconds.

    Raises:
        UsageError: it is none.

    >>> duration_ns("0.5ms")
    500000
    """
    match = _DURATION.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no duration; write a number and ns, us, ms or s, such as 20ms")
    return round(float(match["number"]) * _UNIT_NS[match["unit"]])


def _free(out: Path) -> Path:
    """The path, or the first of path-2, path-3 and so on that does not exist yet."""
    number, free = 1, out
    while free.exists():
        number += 1
        free = out.with_name(f"{out.name}-{number}")
    return free
