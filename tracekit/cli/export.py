"""How is a part of a run handed to a viewer? ``tracekit export RUN --window 1.2s:1.3s --ranks 0,3 --out slice.pftrace``"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.reading import Capture, Workers, reads
from tracekit.cli.screen import meter, say, writable
from tracekit.errors import UsageError
from tracekit.reading import DEFAULT, Reading

if TYPE_CHECKING:
    from tracekit.ingest import Ingested, Place
    from tracekit.timeline.run import Run
    from tracekit.trace import RankTrace


@reads
def export(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Trace files, archives, run directories, or folders; all of one job.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write: its ending, .json.gz or .pftrace, says what it is.", show_default=False)],
    window: Annotated[
        str | None, typer.Option("--window", metavar="FROM:TO", help="Times since the run's first event, such as 1.2s:1.3s.", show_default="the whole run")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, metavar="N", help="The window of ProfilerStep#N instead.", show_default=False)] = None,
    ranks: Annotated[str | None, typer.Option(metavar="RANKS", help="Only these, such as 0-3,8.", show_default="all")] = None,
    workers: Workers = None,
    capture: Capture = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a window of some ranks as one trace, all on the reference rank's clock.

    Each lane has a track of its own, so nothing overlaps. Perfetto (ui.perfetto.dev) opens both forms; tracekit reads
    the JSON of a single rank back as it was.

    \b
    Examples:
      tracekit export runs/tp --window 1.2s:1.3s --ranks 0,3 --out slice.pftrace
      tracekit export rank*.json.gz --step 5 --out step5.json.gz
    """
    from tracekit.timeline.asked import ranks_in, window_in
    from tracekit.timeline.export import FORMS
    from tracekit.timeline.export import export as exported

    form = next((form for form in FORMS if out.name.endswith(f".{form}")), None)
    if form is None:
        raise UsageError(f"{out.name!r} does not say what to write; end it with {' or '.join(f'.{form}' for form in FORMS)}")
    if window is not None and step is not None:
        raise UsageError("give --window or --step, not both")
    asked, chosen = None if window is None else window_in(window), ranks_in(ranks)
    writable(out)
    with tempfile.TemporaryDirectory(prefix="tracekit-") as scratch:
        run = _stored(paths, Path(scratch), workers, capture, reading)
        if chosen is not None and not chosen & set(run.ranks):
            raise UsageError(f"there is none of these ranks; there are {', '.join(map(str, run.ranks[:20]))}")
        start, end = asked or (_step(run, step) if step is not None else (0, run.extent_ns + 1))
        data = exported(run, start, end, chosen, form)
    partial_file = out.with_name(out.name + ".partial")
    try:
        partial_file.write_bytes(data)
        partial_file.replace(out)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}; name a file in a folder that exists and is writable") from error
    say(f"wrote {out} ({len(data):,} bytes); open it in Perfetto, or read it with tracekit")


def _stored(paths: list[Path], scratch: Path, workers: int | None, capture: int | None, reading: Reading) -> Run:
    """The timelines of every rank, on one clock."""
    from tracekit.ingest import ingest
    from tracekit.job.assemble import build
    from tracekit.timeline.run import open_run

    with meter() as progress:
        ingested = ingest(paths, workers=workers, progress=progress, reading=reading, capture=capture, keep=partial(_keep, scratch))
    folders = _folders(ingested, scratch)
    if not folders:
        raise UsageError("these files hold no timeline, so there is nothing to export")
    return open_run(folders, build(ingested.ranks).clocks)


def _keep(scratch: Path, place: Place, given: RankTrace, passed: RankTrace) -> None:
    from tracekit import pyramid

    if len(passed.events):
        pyramid.build(passed, scratch / f"{place[0]}-{place[1]}")


def _folders(ingested: Ingested, scratch: Path) -> dict[tuple[int, int], Path]:
    """The folder of each rank and capture: told by the file it came from and where it begins."""
    from tracekit import pyramid

    known = {}
    for folder in scratch.iterdir():
        timeline = pyramid.open(folder)
        known[timeline.index["file"], timeline.origin_ns] = folder
    out = {}
    for key, facts in ingested.ranks.items():
        extent = facts["extent"]
        found = known.get((next(iter(facts.meta.files), None), int(extent["start_ns"].iloc[0]))) if len(extent) else None
        if found is not None:
            out[key] = found
    return out


def _step(run: Run, step: int) -> tuple[int, int]:
    """The window of a step, over all ranks that name it."""
    spans = [m.shown([a, b]).tolist() for m in run.members for number, a, b in m.timeline.index["steps"] if number == step]
    if not spans:
        known = sorted({int(s) for m in run.members for s, _, _ in m.timeline.index["steps"]})
        raise UsageError(f"there is no step {step}; there are {', '.join(map(str, known[:20])) or 'none'}")
    return min(a for a, _ in spans), max(b for _, b in spans)
