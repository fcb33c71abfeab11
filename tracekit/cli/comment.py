"""How does a pull request get its comment? ``tracekit comment COMMENT.md``"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.screen import say
from tracekit.errors import InputError, UsageError

#: A file that is larger is no comment, and no event.
_MOST_BYTES = 32 << 20


def comment(
    text: Annotated[Path, typer.Argument(metavar="COMMENT.md", help="What check or compare wrote with --markdown.", show_default=False)],
    pr: Annotated[int | None, typer.Option("--pr", metavar="N", min=1, help="The pull request.", show_default="that of the job's event")] = None,
    comparison: Annotated[
        Path | None, typer.Option("--comparison", metavar="FILE", help="What was written with --save: silent where nothing changed.", show_default=False)
    ] = None,
    always: Annotated[bool, typer.Option("--always", help="Comment although nothing changed.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Say on a GitHub pull request what changed, in one comment.

    The comment of before is found by its hidden last line and edited in place, also to say that all is well again. A new one
    is written only where there is news. It is never deleted.

    Reads GITHUB_TOKEN (or GH_TOKEN), GITHUB_REPOSITORY, GITHUB_EVENT_PATH and GITHUB_API_URL, as a job has them. Where the
    token may not comment (pull requests of forks) or GitHub cannot be reached, one line says so.

    \b
    Examples:
      tracekit check runs/head --baseline baselines/ --markdown comment.md --save comparison.json
      tracekit comment comment.md --comparison comparison.json
      tracekit comment comment.md --pr 12

    \b
    Exit codes: 0 also where there was no way to comment, 4 a file is unreadable.
    """
    from tracekit import forges

    body = _read(text).decode("utf-8", "replace")
    if forges.tag_of(body) is None:
        raise InputError("this is no comment that tracekit wrote: its last line is no tag; write it with tracekit check --markdown", text)
    news = always or comparison is None or _is_news(comparison)
    try:
        done = _posted(body, pr, news)
    except forges.ForgeError as e:
        say(f"warning: no comment: {e}")
        return
    say(f"comment {done}")


def _posted(body: str, number: int | None, news: bool) -> str:
    from tracekit import forges

    environment = os.environ
    if number is None:
        path = environment.get("GITHUB_EVENT_PATH")
        number = forges.pull_request_of(_event(Path(path))) if path else None
    if number is None:
        return "not written: this is no job of a pull request; name one with --pr"
    token = (environment.get("GITHUB_TOKEN") or environment.get("GH_TOKEN") or "").strip()
    if not token:
        raise forges.ForgeError("there is no token: set GITHUB_TOKEN")
    where = {"api": environment["GITHUB_API_URL"]} if environment.get("GITHUB_API_URL") else {}
    return forges.comment(forges.PullRequest(environment.get("GITHUB_REPOSITORY", ""), number, **where), token, body, news=news).value


def _event(path: Path) -> dict[str, object]:
    try:
        event = json.loads(_read(path))
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path}: this is no event of GitHub: {str(e)[:100]}") from e
    return event if isinstance(event, dict) else {}


def _is_news(path: Path) -> bool:
    from tracekit.compare.reread import read_comparison
    from tracekit.report.regression import is_news

    return is_news(read_comparison(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror or e}", path) from e
    if len(data) > _MOST_BYTES:
        raise InputError(f"larger than {_MOST_BYTES:,} bytes", path)
    return data
