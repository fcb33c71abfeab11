"""When did each step of this rank run? One line per step in ``spans.jsonl``, readable while the run goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TextIO


class StepSpans:
    """Appends ``{"step": N, "start_ns": …, "end_ns": …}`` to a file after every step; N is that of ``ProfilerStep#N``.

    Times are Unix-epoch ns of this host's clock. A step lasts from the end of the one before, so the export of a
    trace counts to the step after its window.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO | None = path.open("w", encoding="utf-8", buffering=1)
        self._step = 0
        self._start = time.time_ns()

    def step(self, values: dict[str, float]) -> None:
        """End the present step; ``values`` (a loss, a learning rate) stand beside its times."""
        if self._file is None:
            return
        now = time.time_ns()
        self._file.write(json.dumps({"step": self._step, "start_ns": self._start, "end_ns": now, **values}) + "\n")
        self._step += 1
        self._start = now

    def close(self) -> None:
        """Close the file; what has been written stays."""
        if self._file is not None:
            self._file.close()
            self._file = None
