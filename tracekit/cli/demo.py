"""What does tracekit show on a bare laptop? ``tracekit demo`` trains small split-up models, analyses them and compares."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.screen import Meter, meter, rich_terminal, say, write

if TYPE_CHECKING:
    from tracekit.report.parts import Grid
    from tracekit.report.side_by_side import Compared

_EMULATED_NS = 60_000_000
_MODEL = {"layers": 4, "hidden": 512, "heads": 8, "sequence": 256, "microbatch_size": 2, "microbatches": 2, "steps": 5}
_PIPELINE = {"layers": 8, "microbatches": 8, "emulate_compute_ns": _EMULATED_NS}

#: Directory and name of each run -> recipe, ranks and settings of ``instrumentation.config.configure``.
STUDY: dict[str, dict[str, Any]] = {
    "tp": {"recipe": "tp", "ranks": 2, **_MODEL},
    "tp-sp": {"recipe": "tp-sp", "ranks": 2, **_MODEL},
    "recompute-none": {"recipe": "dense", "ranks": 1, **_MODEL, "recompute": "none"},
    "recompute-selective": {"recipe": "dense", "ranks": 1, **_MODEL, "recompute": "selective:core_attention"},
    "recompute-full": {"recipe": "dense", "ranks": 1, **_MODEL, "recompute": "full"},
    "pp-1f1b": {"recipe": "pp", "ranks": 4, "schedule": "1f1b", **_PIPELINE},
    "pp-interleaved-zb": {"recipe": "pp", "ranks": 4, "schedule": "interleaved-zb", **_PIPELINE},
    "3d": {"recipe": "3d", "ranks": 8, "schedule": "1f1b", "microbatches": 4, "layers": 4, "emulate_compute_ns": _EMULATED_NS},
}
ANSWER = "The same small model, split in different ways: what each split costs, measured, beside what theory says."
EXPLANATION = (
    "Every run trained in real processes that really communicated. Where it says emulated, the layers slept for a set time instead of computing, inside "
    "the real schedule, so that more ranks run faithfully than this machine has cores."
)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs and reports go.")] = Path("runs/demo"),
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train small split-up models here, measure them, and compare with theory.

    Runs tensor parallelism (plain and with sequence parallelism), recomputation in three modes, a pipeline in two
    schedules and all of it in 3d, on CPU with gloo, in a few minutes. Then prints the comparison and writes one HTML
    report per run and one over all. Without torch it analyses the traces that ship with tracekit instead.

    \b
    Examples:
      tracekit demo
      tracekit demo --out /tmp/demo
    """
    began = time.monotonic()
    _clear(out)
    if not can_train():
        say("torch is not installed: nothing is trained; the traces that ship with tracekit are analysed instead")
        sources = _samples()
    else:
        with meter() as progress:
            sources = _train(out, progress)
    with meter() as progress:
        runs = _analyse(sources, out, progress)
    _compare(runs, out)
    say(f"{len(runs)} runs in {time.monotonic() - began:.0f} s")
    typer.echo(f"\nOpen {out / 'report.html'} in a browser, or look at one run alone:\n  tracekit analyze {sources[next(iter(sources))]}")


def _clear(out: Path) -> None:
    """Make room for the runs: what an earlier demo left is removed, anything else is refused."""
    from tracekit.errors import UsageError

    mark = out / "demo.json"
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not mark.is_file())):
        raise UsageError(f"{out} holds something that is not an earlier demo; name another folder with --out")
    if mark.is_file():
        for name in json.loads(mark.read_text(encoding="utf-8"))["runs"]:
            if name in STUDY:
                shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps({"schema": "tracekit.demo/1", "runs": list(STUDY)}) + "\n", encoding="utf-8")


def _train(out: Path, progress: Meter) -> dict[str, Path]:
    """Train every run of STUDY in one launch, so that torch is imported once."""
    from instrumentation.config import configure
    from instrumentation.launch import launch

    configs = [configure(out=str(out / name), command="tracekit demo", **settings) for name, settings in STUDY.items()]
    names, total = list(STUDY), sum(c.steps for c in configs)
    say(f"training {len(configs)} small models on this machine, {max(c.ranks for c in configs)} processes at most")

    def moved(number: int, steps: int) -> None:
        before = sum(c.steps for c in configs[:number])
        progress(before + steps, total, f"training {names[number]}, steps")

    launch(configs, moved)
    return {name: out / name for name in STUDY}


def can_train() -> bool:
    """Whether torch is installed; it is not loaded."""
    return importlib.util.find_spec("torch") is not None


def sample_folder() -> Path:
    """Where the traces that ship with tracekit lie: beside the package in a checkout."""
    return Path(__file__).resolve().parents[2] / "sample_traces"


def _samples() -> dict[str, Path]:
    from tracekit.errors import InputError

    folder = sample_folder()
    found = {path.name: path for path in sorted(folder.glob("*")) if path.is_dir() and any(path.rglob("*.json*"))}
    if not found:
        raise InputError("no traces ship with this installation; install torch (pip install tracekit-train[recorder]) and run the demo again", folder)
    return found


def _analyse(sources: dict[str, Path], out: Path, progress: Meter) -> list[Compared]:
    from tracekit.analysis import analyze
    from tracekit.report import render
    from tracekit.report.side_by_side import Compared

    runs = []
    for number, (name, path) in enumerate(sources.items()):
        progress(number, len(sources), f"analysing {name}")
        analysis = analyze(path)
        (out / name).mkdir(exist_ok=True)
        (out / name / "report.html").write_text(render("html", analysis), encoding="utf-8")
        runs.append(Compared(name, f"{name}/report.html", analysis.to_dict()))
    return runs


def _compare(runs: Sequence[Compared], out: Path) -> None:
    from tracekit.report import index
    from tracekit.report.side_by_side import sentences, tables

    for name, _, text in sentences(runs):
        typer.echo(f"{name}: {text}")
    for line in _tables(tables(runs)):
        if rich_terminal():
            from rich.console import Console

            Console(highlight=False).print(line)
        else:
            typer.echo(line)
    write(out / "report.html", index.render("tracekit demo", ANSWER, EXPLANATION, runs))


def _tables(grids: Sequence[Grid]) -> Iterator[Any]:
    from tracekit.report import plain, text

    for g in grids:
        yield text.table(g) if rich_terminal() else "\n".join(["", g.title, *plain.table(g)])
