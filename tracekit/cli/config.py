"""What is set, and where? ``tracekit config show --origin``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.comparing import write_json
from tracekit.errors import UsageError
from tracekit.wording import clean


def config(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="show: every setting.")] = "show",
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    file: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Read this instead of the project's own file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the settings (tracekit.config/1) to stdout, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show what is set for comparing runs.

    The command line has the last word, then TRACEKIT_* variables, then the project's tracekit.toml (or [tool.tracekit] in
    pyproject.toml), then the user's ~/.config/tracekit/tracekit.toml.

    \b
    Examples:
      tracekit config show
      tracekit config show --origin
    """
    from tracekit.settings import settings
    from tracekit.settings.keys import BY_KEY

    if action != "show":
        raise UsageError(f"there is no action {action!r}: write tracekit config show")
    found = settings(file)
    if json:
        rows = [{"key": k, "value": v, "origin": found.origins[k], "meaning": BY_KEY[k].meaning} for k, v in found.values.items()]
        overrides = [{"origin": o, "rule": text} for o, text in found.overrides]
        write_json({"schema": "tracekit.config/1", "settings": rows, "rules": overrides})
        return
    width = max(map(len, found.values))
    for name, value in found.values.items():
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else "unset" if value is None else str(value)
        typer.echo(f"{name:<{width}}  {clean(shown or 'none', 200)}" + (f"   ({clean(found.origins[name], 200)})" if origin else ""))
    for where, text in found.overrides:
        typer.echo(f"{'rule':<{width}}  {clean(text, 200)}" + (f"   ({clean(where, 200)})" if origin else ""))
