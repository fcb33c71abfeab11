"""Does the bubble that is measured meet the simulation and the closed form? ``tracekit study pipeline``"""

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
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What to study: pipeline.")],
    ranks: Annotated[list[int] | None, typer.Option("--ranks", metavar="P", help="Pipeline ranks (repeat for several).", show_default="2 4 8")] = None,
    times: Annotated[
        list[int] | None, typer.Option("--times", metavar="K", help="Microbatches, as multiples of the ranks (repeat).", show_default="1 2 4")
    ] = None,
    schedule: Annotated[list[str] | None, typer.Option("--schedule", metavar="NAME", help="Schedules of torch (repeat).", show_default="all")] = None,
    emulate_compute: Annotated[str, typer.Option("--emulate-compute", metavar="T", help="What a rank's layers sleep for a microbatch's forward.")] = "60ms",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the runs go.")] = Path("runs/study"),
    json: Annotated[bool, typer.Option("--json", help="Write the table (tracekit.study/1) to stdout, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run pipelines under every schedule and hold their measured bubbles against simulation and closed form.

    The ranks are real processes that really send; their layers sleep (emulated compute). All combinations take most of
    an hour on two cores: choose fewer with the options.

    \b
    Examples:
      tracekit study pipeline --ranks 4 --times 2
      tracekit study pipeline --schedule 1f1b --schedule zbv --json
    """
    if subject != "pipeline":
        raise UsageError(f"there is no study of {subject!r}: write tracekit study pipeline")
    if importlib.util.find_spec("torch") is None:
        raise UsageError("training needs torch: pip install 'tracekit-train[recorder]'")
    from instrumentation.config import SCHEDULES, configure
    from instrumentation.launch import launch

    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name another folder with --out")
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
    from tracekit.report import plain
    from tracekit.report import text as rich
    from tracekit.report.parts import grid

    table = grid("Bubble as measured, simulated and by closed form (emulated compute)", [r for r in rows if "reason" not in r], _COLUMNS, limit=len(rows))
    if rich_terminal():
        from rich.console import Console

        Console(highlight=False).print(rich.table(table))
    else:
        typer.echo("\n".join([table.title, *plain.table(table)]))
    for row in rows:
        if "reason" in row:
            say(f"{row['schedule']}, {row['pipeline_ranks']} ranks, {row['microbatches']} microbatches: {row['reason']}")
