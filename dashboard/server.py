"""What answers besides the pages? Uploads, runs and their jobs, downloads, the timeline, and a pulse; all behind the same checks."""

from __future__ import annotations

import logging
import uuid
from typing import NoReturn

from flask import Flask, Response, abort, jsonify, make_response, request
from werkzeug.exceptions import HTTPException

from dashboard.library import Library
from dashboard.security import HEALTH, Access, protect
from dashboard.settings import Settings
from dashboard.timeline.routes import blueprint as timeline
from dashboard.uploads import runs, tus
from dashboard.uploads.room import Limits
from dashboard.uploads.spool import Spool
from tracekit.wording import clean, size

log = logging.getLogger(__name__)


def create_server(settings: Settings, library: Library) -> Flask:
    """The server, with everything but the pages; ``create_app`` adds those.

    Args:
        settings: how it is started.
        library: the stored runs.

    Raises:
        UsageError: it would listen beyond loopback without asking who comes, or the token can be guessed.
    """
    server = Flask("dashboard.server", static_folder=None)
    server.config["MAX_CONTENT_LENGTH"] = tus.MOST_PER_REQUEST
    protect(server, Access(token=settings.token, proxy_header=settings.proxy_header), host=settings.host, names=settings.hosts)
    spool = Spool(settings.uploads, idle_s=settings.upload_ttl_hours * 3600)
    limits = Limits(
        file_bytes=settings.max_upload_bytes,
        user_bytes=settings.quota_bytes_per_user,
        total_bytes=settings.quota_bytes_total,
        keep_free_bytes=settings.min_free_bytes,
    )
    server.register_blueprint(tus.blueprint(spool, limits, library.stored_bytes))
    server.register_blueprint(runs.blueprint(spool, library))
    server.register_blueprint(timeline(library))
    server.add_url_rule(HEALTH, "health", lambda: {"status": "ok"})
    server.add_url_rule("/api/<path:rest>", "nothing", _nothing)  # or it would be a page to Dash
    server.register_error_handler(HTTPException, _refused)
    server.register_error_handler(Exception, _broken)
    return server


def _nothing(rest: str) -> NoReturn:
    abort(404, "there is nothing at this address")


def _refused(error: HTTPException) -> Response | HTTPException:
    """The reason as JSON for programs; for a person what Flask says."""
    if not request.path.startswith("/api/"):
        return error
    reason = f"a request may bring {size(tus.MOST_PER_REQUEST)} at most; send smaller pieces" if error.code == 413 else error.description or error.name
    return make_response(jsonify({"error": reason}), error.code or 500)


def _broken(error: Exception) -> Response:
    """A bug of ours: the log has it, the answer names its place there and nothing else."""
    reference = uuid.uuid4().hex[:8]
    log.error("request %s %s failed, reference %s", clean(request.method, 20), clean(request.path, 200), reference, exc_info=error)
    return make_response(jsonify({"error": f"a bug of tracekit ({type(error).__name__}); the server's log has it under {reference}"}), 500)
