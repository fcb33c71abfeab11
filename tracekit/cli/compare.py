"""Did a change make training slower or hungrier? ``tracekit compare BASE… -- HEAD…``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.comparing import AllowIncomparable, ConfigFile, Ignore, Inconclusive, Limit, asked_inconclusive, ended_with, rules_of, snapshots
from tracekit.cli.outputs import Outputs, renders
from tracekit.cli.reading import Workers, reads
from tracekit.errors import UsageError
from tracekit.reading import DEFAULT, Reading

#: Stands where the shell's ``--`` stood: the parser would take that away.
SIDES = ":--:"


@reads
@renders
def compare(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="BASE… -- HEAD…", help="Runs, reports, snapshots, or folders of them; of two, the first is the base.", show_default=False),
    ],
    json: Annotated[bool, typer.Option("--json", help="Write the comparison (tracekit.comparison/1) to stdout, and nothing else.")] = False,
    outputs: Outputs = Outputs(),  # noqa: B008
    ignore: Ignore = None,
    allow_incomparable: AllowIncomparable = False,
    limit: Limit = None,
    inconclusive: Inconclusive = None,
    config: ConfigFile = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Compare runs with runs: regressed, improved, unchanged, inconclusive or incomparable.

    Facts of the program (collectives and their bytes, kernels, schedule, recomputation, peak GPU memory) are compared
    exactly: one run per side is enough. Times are compared over runs, one number each: ten per side see what five
    cannot, and every row says what it could have seen.

    \b
    Examples:
      tracekit compare runs/before runs/after
      tracekit compare before.json -- after.json
      tracekit compare runs/base-1 runs/base-2 -- runs/head-1 runs/head-2
      tracekit compare baseline-runs/ -- new-runs/ --limit 'bubble_ratio <= 0.15'
      tracekit compare before.json after.json --html comparison.html --junit junit.xml

    \b
    Exit codes: 0 unchanged or improved, 1 regressed or a limit broken,
    3 cannot tell, 4 an input is unreadable.
    """
    from tracekit.compare import compare as compared
    from tracekit.settings import settings

    base, head = sides(paths)
    found = settings(config)
    rules = rules_of(found, ignore, allow_incomparable, limit)
    chosen = asked_inconclusive(inconclusive, found)
    made = compared(snapshots(base, reading, workers), snapshots(head, reading, workers), rules)
    return ended_with(made, as_json=json, inconclusive=chosen, outputs=outputs)


def sides(paths: list[str]) -> tuple[list[Path], list[Path]]:
    """Base and head of a list of paths.

    Raises:
        UsageError: it cannot be told which is which.

    >>> sides(["a", "b"])[1], sides(["a", "b", SIDES, "c"])[0]
    ([PosixPath('b')], [PosixPath('a'), PosixPath('b')])
    """
    if SIDES in paths:
        at = paths.index(SIDES)
        base, head = paths[:at], paths[at + 1 :]
    elif len(paths) == 2:
        base, head = paths[:1], paths[1:]
    else:
        raise UsageError(f"{len(paths)} paths and no --: write tracekit compare BASE… -- HEAD…")
    if not base or not head or SIDES in head:
        raise UsageError("name at least one run on each side of one --: tracekit compare BASE… -- HEAD…")
    return [Path(p) for p in base], [Path(p) for p in head]


def with_sides(arguments: list[str]) -> list[str]:
    """Arguments of the command line with the ``--`` of ``compare`` kept as a path of its own.

    >>> with_sides(["compare", "a", "--", "b", "--json"])
    ['compare', 'a', ':--:', 'b', '--json']
    """
    if arguments[:1] != ["compare"] or "--" not in arguments:
        return arguments
    return [SIDES if a == "--" else a for a in arguments]
