"""Does what is measured meet its closed form? ``tracekit study pipeline`` (the bubble), ``tracekit study memory`` (activations)"""

from __future__ import annotations

import importlib.util
import json as text
from pathlib import Path
from typing import Annotated, Any

import typer

from tracekit.cli.run import duration_ns
from tracekit.cli.screen import meter, rich_terminal, say
from tracekit.errors import UsageError

STUDY_SCHEMA = "tracekit.study/1"
_COLUMNS = ["schedule", "pipeline_ranks", "microbatches", "bubble_ratio", "simulated_bubble_ratio", "closed_form_bubble_ratio", "difference_ratio"]
_COLUMNS += ["simulation_error_ratio", "window_ns"]


def study(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What to study: pipeline or memory.")],
    ranks: Annotated[list[int] | None, typer.Option("--ranks", metavar="P", help="Pipeline ranks (repeat for several).", show_default="2 4 8")] = None,
    times: Annotated[
        list[int] | None, typer.Option("--times", metavar="K", help="Microbatches, as multiples of the ranks (repeat).", show_default="1 2 4")
    ] = None,
    schedule: Annotated[list[str] | None, typer.Option("--schedule", metavar="NAME", help="Schedules of torch (repeat).", show_default="all")] = None,
    emulate_compute: Annotated[str, typer.Option("--emulate-compute", metavar="T", help="What a rank's layers sleep for a microbatch's forward.")] = "60ms",
    depth: Annotated[list[int] | None, typer.Option("--depth", metavar="N", help="memory: layers (repeat for several).", show_default="4 9 16")] = None,
    tensor: Annotated[
        list[int] | None, typer.Option("--tensor", metavar="T", help="memory: tensor-parallel degrees (repeat; 1: none).", show_default="2 4")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the runs go.")] = Path("runs/study"),
    json: Annotated[bool, typer.Option("--json", help="Write the table (tracekit.study/1) to stdout, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run small models and hold what is measured of them against closed forms.

    pipeline: every schedule; the measured bubble beside its simulation and closed form.
    memory: depth x recomputation, and tensor and sequence parallelism; the activation peak and the bytes per layer beside
    theory, and the overhead of recomputation beside the paper's.

    The ranks of a pipeline are real processes that really send; their layers sleep (emulated compute). All combinations take most of
    an hour on two cores: choose fewer with the options.

    \b
    Examples:
      tracekit study pipeline --ranks 4 --times 2
      tracekit study pipeline --schedule 1f1b --schedule zbv --json
      tracekit study memory --depth 4 --depth 16
    """
    if subject not in ("pipeline", "memory"):
        raise UsageError(f"there is no study of {subject!r}: write tracekit study pipeline, or tracekit study memory")
    if importlib.util.find_spec("torch") is None:
        raise UsageError("training needs torch: pip install 'tracekit-train[recorder]'")
    from instrumentation.config import SCHEDULES, configure
    from instrumentation.launch import launch

    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name another folder with --out")
    if subject == "memory":
        _study_memory(depth or [4, 9, 16], tensor or [2, 4], out, json)
        return
    slept = duration_ns(emulate_compute)
    configs, rows = [], []
    for p in ranks or [2, 4, 8]:
        for name in schedule or SCHEDULES:
            for k in times or [1, 2, 4]:
                row = {"schedule": name, "pipeline_ranks": p, "microbatches": k * p}
                settings = {"schedule": name, "microbatches": k * p, "layers": 2 * p, "emulate_compute_ns": slept, "steps": 4, "active": 2}
                try:
                    configs.append(configure("pp", p, out=str(out / f"{name}-p{p}-m{k * p}"), command="tracekit study pipeline", **settings))
                    rows.append(row)
                except UsageError as error:
                    rows.append(row | {"reason": str(error)})
    if not configs:
        raise UsageError(f"no combination can run: {rows[0].get('reason')}")
    say(f"running {len(configs)} pipelines of {max(c.ranks for c in configs)} processes at most")
    with meter() as progress:
        done = [sum(c.steps for c in configs[:i]) for i in range(len(configs) + 1)]
        launch(configs, lambda number, steps: progress(done[number] + steps, done[-1], "steps"))
        ran = iter(configs)
        rows = [row if "reason" in row else row | _measured(Path(next(ran).out)) for row in rows]
    _show(rows, json)


def _study_memory(depths: list[int], degrees: list[int], out: Path, as_json: bool) -> None:
    """Run, measure and show depth x recomputation, and tensor and sequence parallelism."""
    from instrumentation.config import configure
    from instrumentation.launch import launch
    from tracekit.analysis import analyze
    from tracekit.memory_study import COLUMNS, FIT_COLUMNS, MODES, fits, measured

    sizes = {"hidden": 128, "heads": 4, "sequence": 128, "microbatches": 1, "microbatch_size": 4, "steps": 4, "wait": 1, "warmup": 1, "active": 2}
    asked = [("dense", 1, n, mode) for mode in MODES for n in depths]
    asked += [(recipe, t, depths[0], "none") for recipe in ("tp", "tp-sp") for t in degrees if t > 1]
    configs = []
    for recipe, t, n, mode in asked:
        folder = str(out / f"{recipe}-{t}-{n}-{mode.partition(':')[0]}")
        configs.append(configure(recipe, t, out=folder, layers=n, recompute=mode, command="tracekit study memory", **sizes))
    say(f"running {len(configs)} models of {max(c.ranks for c in configs)} processes at most")
    with meter() as progress:
        done = [sum(c.steps for c in configs[:i]) for i in range(len(configs) + 1)]
        launch(configs, lambda number, steps: progress(done[number] + steps, done[-1], "steps"))
    rows = [measured(analyze(Path(c.out))) | {"run": c.out} for c in configs]
    found = fits(rows)
    if as_json:
        document = {"schema": STUDY_SCHEMA, "subject": "memory", "emulated": False, "rows": rows, "fits": found}
        typer.echo(text.dumps(document, indent=2, allow_nan=False))
        return
    _tables(
        [("Activation peak and recomputation, measured and by closed form", rows, COLUMNS), ("Growth with depth: peak ~ layers ^ exponent", found, FIT_COLUMNS)]
    )


def _measured(folder: Path) -> dict[str, Any]:
    """What the analysis says of one run."""
    from tracekit.analysis import analyze

    found = analyze(folder).result("pipeline")
    row = {name: found.summary.get(name) for name in _COLUMNS[3:]} | {"recognised": found.summary.get("schedule"), "run": str(folder)}
    measured, simulated = row["bubble_ratio"], row["simulated_bubble_ratio"]
    return row | {"difference_ratio": None if measured is None or simulated is None else measured - simulated}


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(text.dumps({"schema": STUDY_SCHEMA, "emulated": True, "rows": rows}, indent=2, allow_nan=False))
        return
    _tables([("Bubble as measured, simulated and by closed form (emulated compute)", [r for r in rows if "reason" not in r], _COLUMNS)])
    for row in rows:
        if "reason" in row:
            say(f"{row['schedule']}, {row['pipeline_ranks']} ranks, {row['microbatches']} microbatches: {row['reason']}")


def _tables(found: list[tuple[str, list[dict[str, Any]], list[str]]]) -> None:
    """Title, rows and columns of each table."""
    from tracekit.report import plain
    from tracekit.report import text as rich
    from tracekit.report.parts import grid

    for title, rows, columns in found:
        table = grid(title, rows, columns, limit=len(rows))
        if rich_terminal():
            from rich.console import Console

            Console(highlight=False).print(rich.table(table))
        else:
            typer.echo("\n".join([table.title, *plain.table(table)]))
