"""What do the commands that compare runs share? Reading runs, their rules, and how a comparison ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.outputs import Outputs, as_text, tell, whole_text
from tracekit.cli.screen import Meter, meter
from tracekit.errors import UsageError
from tracekit.reading import DEFAULT, Reading

if TYPE_CHECKING:
    from tracekit.baselines import Store
    from tracekit.compare import Comparison, Rules, Snapshot
    from tracekit.settings import Settings

Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="NAME", help="What may differ between the sides (repeat): torch, nccl, device_names, model, …", show_default=False),
]
AllowIncomparable = Annotated[bool, typer.Option("--allow-incomparable", help="Compare although hardware, software or job differ.")]
Limit = Annotated[
    list[str] | None, typer.Option("--limit", metavar="TEXT", help="A limit that the head must keep (repeat): 'bubble_ratio <= 0.15'.", show_default=False)
]
Inconclusive = Annotated[
    str | None, typer.Option("--inconclusive", metavar="pass|fail", help="What to end with where it cannot be told.", show_default="exit code 3")
]
BaselinePlace = Annotated[
    str | None, typer.Option("--baseline", metavar="STORE", help="A folder, git:BRANCH, or a URL (s3://…).", show_default="as set in tracekit.toml")
]
Scenario = Annotated[str | None, typer.Option("--scenario", metavar="NAME", help="What the runs are runs of.", show_default="as set, or default")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Read this instead of the project's tracekit.toml or pyproject.toml.")]


def snapshots(paths: Sequence[Path], reading: Reading = DEFAULT, workers: int | None = None) -> list[Snapshot]:
    """The runs that paths name; traces are analysed, reports and snapshots read."""
    from tracekit.analysis import analyze
    from tracekit.compare.inputs import read_runs

    with meter() as progress:

        def analyse(path: Path) -> dict[str, Any]:
            return analyze(path, workers=workers, progress=_of(progress, path), reading=reading).to_dict()

        return read_runs(paths, analyse, max_bytes=reading.max_bytes)


def _of(progress: Meter, path: Path) -> Any:
    return lambda done, total, what: progress(done, total, f"{path.name}: {what}")


def rules_of(found: Settings, ignore: Sequence[str] | None, allow: bool, limits: Sequence[str] | None) -> Rules:
    """The project's rules, with what the command line says on top."""
    from tracekit.compare.budgets import budget

    rules = found.rules
    return replace(
        rules,
        ignore=(*rules.ignore, *(name for given in ignore or () for name in given.split(",") if name)),
        allow_incomparable=allow or rules.allow_incomparable,
        budgets=(*rules.budgets, *(budget(text) for text in limits or ())),
    )


def store_of(place: str | None, found: Settings) -> Store:
    """The baseline store that is named, or set.

    Raises:
        UsageError: none is.
    """
    from tracekit.baselines import open_store

    return open_store(place or found.values["baseline"] or "")


def scenario_of(given: str | None, found: Settings) -> str:
    """The scenario that is named, or set."""
    return whole_text(given or str(found.values["scenario"]))


def asked_inconclusive(given: str | None, found: Settings) -> str | None:
    """``pass``, ``fail`` or None.

    Raises:
        UsageError: it is something else.
    """
    chosen = given if given is not None else found.inconclusive
    if chosen not in (None, "pass", "fail"):
        raise UsageError(f"--inconclusive is pass or fail, not {chosen!r}")
    return chosen


def write_json(document: dict[str, Any]) -> None:
    """A document to stdout; what of a command line or file name is no text becomes ``�``."""
    sys.stdout.write(as_text(document))


def ended_with(comparison: Comparison, *, as_json: bool, inconclusive: str | None, outputs: Outputs) -> int:
    """Show a comparison, write it everywhere it is asked for, and give its exit code."""
    from tracekit.thresholds import exit_code

    return tell({**comparison.to_dict(), "exit_code": exit_code(comparison.verdict, inconclusive)}, outputs, as_json=as_json)
