"""Which commit of the code did runs come from? What they say themselves, else where the work tree stands."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tracekit.compare.snapshot import Snapshot


def commit_of(runs: Iterable[Snapshot], folder: Path | None = None) -> str:
    """The commit of runs.

    Args:
        runs: the first that states one decides.
        folder: of the work tree; the current one where None.

    Returns:
        Its SHA; ``unknown`` where no run states one and there is no git repository.
    """
    return next((str(s.about["git_commit"]) for s in runs if s.about.get("git_commit")), None) or _head(folder)


def _head(folder: Path | None) -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=folder)
    except OSError:
        return "unknown"
    return done.stdout.strip() if not done.returncode else "unknown"
