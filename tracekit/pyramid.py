"""How is a rank's timeline stored while it is read, and opened when it is looked at? The two doors of ``tracekit.timeline``."""

from __future__ import annotations

from pathlib import Path

from tracekit.timeline import files
from tracekit.timeline.files import RankTimeline
from tracekit.trace import RankTrace


def build(trace: RankTrace, folder: str | Path) -> Path:
    """Store the timeline of one rank and capture.

    Args:
        trace: after the passes (``run_passes``), which give phases, layers and steps; without them slices are drawn by kind alone.
        folder: a folder of its own; made if need be. Whole once it holds ``timeline.json``.

    Returns:
        The folder.
    """
    return files.write(trace, Path(folder))


def open(folder: str | Path) -> RankTimeline:
    """Open a stored timeline.

    Raises:
        InputError: the folder holds none, or it is damaged.
    """
    return files.opened(Path(folder))
