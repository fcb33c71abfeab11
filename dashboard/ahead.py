"""What is drawn before anybody asks? The overview of a run, the moment that its results are stored."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from flask import Flask

from dashboard.pages import overview

log = logging.getLogger(__name__)


class Ahead:
    """Works in one thread of its own, so it takes at most one reader's turn.

    Args:
        app: whose pages are drawn; what is drawn is kept where its readers find it (``dashboard.components.cache``).
    """

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")

    def ready(self, run: str) -> Future[None]:
        """Draw the overview of a run whose analysis was stored; whoever asks meanwhile waits for this one drawing. Returns at once."""
        return self._thread.submit(self._overview, run)

    def close(self) -> None:
        """Drop what has not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _overview(self, run: str) -> None:
        try:
            with self._app.app_context():
                overview.layout(run_id=run)
        except Exception:  # its reader will be told; nobody is waiting here
            log.exception("the overview of run %s could not be drawn ahead", run)
