"""What would another schedule take? ``tracekit simulate RUN``"""

from __future__ import annotations

import json as text
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tracekit.cli.reading import Capture, Workers, reads
from tracekit.cli.screen import meter, show, writable, write
from tracekit.errors import UsageError
from tracekit.reading import DEFAULT, Reading

if TYPE_CHECKING:
    from tracekit.analysis import Analysis
    from tracekit.memory_what_if import Recomputation
    from tracekit.metrics.base import Result
    from tracekit.report.parts import Story
    from tracekit.what_if import Alternative

_CANNOT_TELL = 3
_SIZE = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?i?B)?$", re.IGNORECASE)
_PREFIXES = " KMGT"
#: Bytes; more do not fit the tables.
_MOST = 2.0**62


@reads
def simulate(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directory, trace files, or folders that hold them; all of one job.")],
    schedule: Annotated[
        list[str] | None, typer.Option("--schedule", metavar="NAME", help="Schedule to try (repeat for several), e.g. zb-h1.", show_default="all")
    ] = None,
    microbatches: Annotated[
        list[int] | None, typer.Option("--microbatches", metavar="M", help="Microbatches per step to try (repeat for several).", min=1, show_default="as ran")
    ] = None,
    interleave: Annotated[
        int | None, typer.Option("--interleave", metavar="V", help="Stages per rank, for schedules with several.", min=1, show_default="as ran")
    ] = None,
    balance: Annotated[str, typer.Option("--balance", metavar="HOW", help="measured: stages keep their own times; even: all take the mean.")] = "measured",
    memory_limit: Annotated[
        str | None, typer.Option("--memory-limit", metavar="SIZE", help="Memory of a device, e.g. 70GiB: what needs more comes last.", show_default="none")
    ] = None,
    recompute: Annotated[
        list[str] | None, typer.Option("--recompute", metavar="MODE", help="none, selective, full, sqrt or every:K: tell memory and step time (repeat).")
    ] = None,
    microbatch_size: Annotated[
        list[int] | None, typer.Option("--microbatch-size", metavar="B", help="Samples per microbatch to try for memory (repeat).", min=1)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the what-if (tracekit.what_if/1) to stdout, and nothing else.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one self-contained HTML file.")] = None,
    capture: Capture = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Tell what other pipeline schedules would take, from the times that a run measured.

    First the schedule that ran is simulated with its own times; where that misses the measured window by more than 5 %,
    nothing is trusted, and the command ends with 3. Then every alternative: step time, bubble and memory, the best first.
    A run without a pipeline is asked what it would take to recompute more or less: peak memory, and the step.

    \b
    Examples:
      tracekit simulate runs/pp
      tracekit simulate runs/pp --schedule zb-h1 --schedule 1f1b --microbatches 32
      tracekit simulate runs/pp --schedule interleaved-1f1b --interleave 4 --memory-limit 70GiB --html what-if.html
      tracekit simulate runs/dense --recompute full --recompute every:2 --microbatch-size 8 --memory-limit 70GiB
    """
    from tracekit.analysis import analyze

    asked = _asked(schedule, microbatches, interleave, balance)
    limit = size_bytes(memory_limit) if memory_limit else None
    tried = _recomputations(recompute, microbatch_size)
    if (recompute or microbatch_size) and asked is not None:
        raise UsageError("--recompute and --microbatch-size ask about memory, the other options about a pipeline's schedule: ask one at a time")
    if html is not None:
        writable(html)
    with meter() as progress:
        analysis = analyze(list(paths), workers=workers, progress=progress, reading=reading, capture=capture)
    told = _memory(analysis, tried, limit) if recompute or microbatch_size else _pipeline(analysis, asked, limit)
    if not told.available and asked is None and not (recompute or microbatch_size):
        other = _memory(analysis, tried, limit)
        told = other if other.available else told
    if html is not None:
        write(html, told.html())
    if json:
        sys.stdout.write(text.dumps(told.document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    else:
        show(told.story())
    return 0 if told.believed else _CANNOT_TELL


class _Told(NamedTuple):
    """A what-if, ready to be shown in any way."""

    available: bool
    believed: bool
    document: Mapping[str, Any]
    story: Callable[[], Story]
    html: Callable[[], str]


def _pipeline(analysis: Analysis, asked: list[Alternative] | None, limit: int | None) -> _Told:
    from tracekit.report import what_if as report
    from tracekit.what_if import to_dict, what_if

    result = what_if(analysis, asked, limit)
    return _Told(result.available, _believed(result), to_dict(result), lambda: report.what_ifs_story(analysis, result), lambda: report.html(analysis, result))


def _memory(analysis: Analysis, tried: list[Recomputation], limit: int | None) -> _Told:
    from tracekit.memory_what_if import memory_what_if, to_dict
    from tracekit.report import memory_what_if as report

    result = memory_what_if(analysis, tried, limit)
    return _Told(result.available, _believed(result), to_dict(result), lambda: report.story(analysis, result), lambda: report.html(analysis, result))


def _believed(result: Result) -> bool:
    return result.available and bool(result.summary["trusted"])


def _recomputations(modes: list[str] | None, sizes: list[int] | None) -> list[Recomputation]:
    from tracekit.memory_what_if import MODES, Recomputation

    out = []
    tried: list[int | None] = [*(sizes or ())] or [None]
    for given in modes or [m for m in MODES if m != "every"] + ["every:2"]:
        mode, _, every = given.partition(":")
        if every and not (every.isdecimal() and len(every) < 10):
            raise UsageError(f"--recompute every:K needs a whole number, not {every[:40]!r}")
        out += [Recomputation(mode, int(every) if every else None, size) for size in tried]
    return out


def _asked(schedules: list[str] | None, microbatches: list[int] | None, interleave: int | None, balance: str) -> list[Alternative] | None:
    from tracekit.schedule import catalog
    from tracekit.what_if import Alternative

    if balance not in ("measured", "even"):
        raise UsageError(f"--balance is measured or even, not {balance!r}")
    if not schedules and not microbatches and interleave is None and balance == "measured":
        return None
    names = [name.lower().replace("-", "_") for name in schedules or ()]
    for name in names:
        catalog.kind(name)
    tried: list[str | None] = [*names] or [None]
    counts: list[int | None] = [*(microbatches or ())] or [None]
    return [Alternative(name, m, interleave, balance) for name in tried for m in counts]


def size_bytes(given: str) -> int:
    """A size such as 70GiB in bytes.

    Raises:
        UsageError: it is none, or more than any device has.

    >>> size_bytes("1.5GiB"), size_bytes("80GB"), size_bytes("1024")
    (1610612736, 80000000000, 1024)
    """
    m = _SIZE.match(given.strip())
    if m is None:
        raise UsageError(f"{given[:40]!r} is no size: write 70GiB, 80GB or a number of bytes")
    unit = (m["unit"] or "B").upper()
    power = _PREFIXES.index(unit[0]) if unit[0] in _PREFIXES[1:] else 0
    nbytes = float(m["number"]) * float((1024 if "I" in unit else 1000) ** power)
    if nbytes > _MOST:
        raise UsageError(f"a memory of {given.strip()[:40]} is more than any device has")
    return round(nbytes)
