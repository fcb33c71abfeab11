"""Two sample runs, a forged job of 16 ranks, and an app over them, made once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dash
import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from dashboard.app import create_app
from dashboard.jobs.what_ifs import simulated
from dashboard.security.headers import content_policy
from dashboard.store.rows import JobProgress, State
from tests.analyses import analysis_of
from tests.dashboard.pages.library import MemoryLibrary, row


@dataclass(frozen=True)
class Stored:
    """An analysis that also holds what a stored one does: the what-ifs."""

    analysis: Any
    extras: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.analysis, name)

    def extra(self, name: str) -> Any:
        return self.extras.get(name)


@pytest.fixture(scope="session")
def analyses(samples: Path) -> dict[str, Any]:
    found = {name: analysis_of(samples / name) for name in ("pp-1f1b", "recompute-full", "tp")}
    return found | {name: Stored(found[name], simulated(found[name])) for name in ("pp-1f1b", "recompute-full")}


@pytest.fixture
def library(analyses: dict[str, Any]) -> MemoryLibrary:
    """Three runs that are ready, one that is being read, one that failed."""
    made = MemoryLibrary()
    for day, (name, analysis) in enumerate(analyses.items(), start=1):
        known = {"ranks": len(analysis.run()["ranks"]), "verdict": analysis.health()["verdict"], "created_at": datetime(2026, 11, day, tzinfo=UTC)}
        made.add(row(f"run{day}", name, tags=("sample", name.split("-")[0]), **known), analysis)
    made.add(row("reading", "being read", state=State.READING, generation=0))
    made.told["reading"] = JobProgress(State.READING, "reading", 3, 16, 900_000, 300_000.0, 12.0, (0, 1, 2), "", None)
    made.add(row("failed", "no trace", state=State.FAILED, generation=0, error="rank0.json: no trace (byte 0)"))
    return made


@pytest.fixture
def app(library: MemoryLibrary) -> dash.Dash:
    return create_app(SimpleNamespace(cache_bytes=32 << 20), library)


@pytest.fixture
def opened(app: dash.Dash) -> Iterator[Callable[..., Any]]:
    """Call something as a page of the app would."""
    with app.server.test_request_context("/"):
        yield lambda call, *args, **query: call(*args, **query)


class Silent(WSGIRequestHandler):
    """Answers, and says nothing of it."""

    def log_request(self, *_: Any) -> None:
        """Not a line for each figure."""


class Serving:
    """An app behind a real server on loopback, its pages under the policy of the whole dashboard."""

    def __init__(self, library: MemoryLibrary) -> None:
        self.app = create_app(SimpleNamespace(), library)

        @self.app.server.after_request
        def guarded(response: Any) -> Any:
            response.headers["Content-Security-Policy"] = content_policy(self.app.csp_hashes())
            return response

        self.server = make_server("127.0.0.1", 0, self.app.server, threaded=True, request_handler=Silent)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join(10)
        self.server.server_close()
