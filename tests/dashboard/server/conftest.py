"""A server without pages: uploads and checks alone."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from dashboard.security import Access, protect
from dashboard.uploads import tus
from dashboard.uploads.room import Limits
from dashboard.uploads.spool import Spool

TOKEN = "a-token-of-20-letters"
#: What every write of ours carries.
OURS = {"X-Tracekit": "1", "Tus-Resumable": "1.0.0"}
BODY = {**OURS, "Content-Type": "application/offset+octet-stream"}
TRACE = b'{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n' + b" " * 200_000 + b"]}"


def serving(folder: Path, access: Access = Access(), limits: Limits = Limits(), host: str = "127.0.0.1", stored: int = 0) -> Flask:  # noqa: B008 frozen
    server = Flask("under test", static_folder=None)
    server.add_url_rule("/page", view_func=lambda: "<p>page</p>")
    server.add_url_rule("/_dash-update-component", view_func=lambda: {"ok": True}, methods=["POST"], endpoint="dash")
    server.register_blueprint(tus.blueprint(Spool(folder), limits, lambda user: stored))
    protect(server, access, host=host)
    return server


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "incoming")


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return serving(tmp_path / "incoming").test_client()


def named(path: str, size: int) -> dict[str, str]:
    """Headers that announce a file."""
    word = base64.b64encode(path.encode()).decode()
    return {**OURS, "Upload-Length": str(size), "Upload-Metadata": f"relativePath {word}"}


@pytest.fixture
def begin(client: FlaskClient) -> Callable[..., TestResponse]:
    """Announce a file."""

    def announce(path: str = "rank0.json", size: int | None = None) -> TestResponse:
        return client.post("/api/uploads", headers=named(path, len(TRACE) if size is None else size))

    return announce
