"""Is a run as good as its baseline? ``tracekit check HEAD… --baseline STORE``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.comparing import (
    AllowIncomparable,
    BaselinePlace,
    ConfigFile,
    Ignore,
    Inconclusive,
    Limit,
    Scenario,
    asked_inconclusive,
    ended_with,
    rules_of,
    scenario_of,
    snapshots,
    store_of,
)
from tracekit.cli.outputs import Outputs, renders, tell
from tracekit.cli.reading import Workers, reads
from tracekit.cli.screen import say
from tracekit.errors import NoBaseline, UsageError
from tracekit.reading import DEFAULT, Reading


@reads
@renders
def check(
    paths: Annotated[list[Path], typer.Argument(metavar="HEAD", help="Runs, reports or snapshots of what is to be checked.", show_default=False)],
    baseline: BaselinePlace = None,
    scenario: Scenario = None,
    json: Annotated[bool, typer.Option("--json", help="Write the comparison (tracekit.comparison/1) to stdout, and nothing else.")] = False,
    outputs: Outputs = Outputs(),  # noqa: B008
    ignore: Ignore = None,
    allow_incomparable: AllowIncomparable = False,
    limit: Limit = None,
    inconclusive: Inconclusive = None,
    missing_baseline: Annotated[
        str | None, typer.Option("--missing-baseline", metavar="pass|fail", help="What to end with where there is no baseline yet.", show_default="exit code 5")
    ] = None,
    config: ConfigFile = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Hold runs against the rolling baseline of their scenario and setup.

    The base is every run of the last commits that were kept for the same scenario and setup. Beside the comparison, the
    history is searched for metrics that creep: ten times one percent is found although no single step is. Where there is
    no baseline yet, limits are held all the same, and every output says that there is none.

    \b
    Examples:
      tracekit check runs/head --baseline baselines/ --scenario tp2
      tracekit check head.json --baseline git:tracekit-baselines
      tracekit check runs/head-* --baseline s3://bucket/baselines --json
      tracekit check runs/head-* --github --markdown comment.md --html report.html --save comparison.json

    \b
    Exit codes: 0 unchanged or improved, 1 regressed or a limit broken,
    3 cannot tell, 4 an input is unreadable, 5 no baseline.
    """
    from tracekit.baselines.rolling import rolling
    from tracekit.compare import compare, without_baseline
    from tracekit.settings import settings

    found = settings(config)
    if (missing := missing_baseline or found.values["missing_baseline"]) not in ("pass", "fail"):
        raise UsageError(f"--missing-baseline is pass or fail, not {missing!r}")
    rules, store, name = rules_of(found, ignore, allow_incomparable, limit), store_of(baseline, found), scenario_of(scenario, found)
    chosen = asked_inconclusive(inconclusive, found)
    head = snapshots(paths, reading, workers)
    history = rolling(store, name, head[0], rules, found.values["window"], say)
    if not history:
        document = without_baseline(head, rules, name)
        if document["verdict"] is None and missing == "pass":
            document["exit_code"] = 0
        code = tell(document, outputs, as_json=json)
        where = f"no baseline of scenario {name!r} in {store.files}"
        if code == NoBaseline.exit_code:
            raise NoBaseline(f"{where}: keep one with tracekit baseline add RUN --scenario {name}")
        say(f"{where}: nothing to compare with")
        return code
    base = [run for _, runs in history for run in runs]
    made = compare(base, head, rules, history=history, scenario=name)
    return ended_with(made, as_json=json, inconclusive=chosen, outputs=outputs)
