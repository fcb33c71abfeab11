"""How does the dashboard run? One process that answers, behind waitress, and child processes that read; until it is told to end."""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import waitress
from flask import Flask

from dashboard.ahead import Ahead
from dashboard.app import create_app
from dashboard.jobs.supervisor import Supervisor
from dashboard.library import Library
from dashboard.logs import legible
from dashboard.security import allow_scripts
from dashboard.security.hosts import is_loopback
from dashboard.server import create_server
from dashboard.settings import Settings
from dashboard.uploads.tus import MOST_PER_REQUEST
from tracekit.errors import UsageError

#: Requests that are answered at a time; drawing a page takes some 100 ms of one core, so more would only wait for each other.
THREADS = 12
#: Connections that are open at a time: a browser holds six. What each brings is put aside before it is checked, so they bound the disk it takes.
CONNECTIONS = 128
_SPARE = 1 << 20


def dashboard(settings: Settings, library: Library) -> Flask:
    """The whole WSGI app: pages, uploads, checks."""
    server = create_server(settings, library)
    app = create_app(settings, library, server)
    allow_scripts(server, app.csp_hashes)
    return server


def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Run the dashboard until SIGTERM or Ctrl-C; what is being read then goes on at the next start.

    Args:
        settings: how.
        ready: takes the address, with the token in it, once it answers.

    Raises:
        UsageError: the address cannot be listened at, or nobody there would be asked who they are.
        StoreError: the database cannot be used.
    """
    with legible():
        _serve(settings, ready)


def _serve(settings: Settings, ready: Callable[[str], None]) -> None:
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # requests that wait a moment are no news
    library = Library(settings)
    elsewhere, tempfile.tempdir = tempfile.tempdir, str(settings.temporary)
    _allow_files()
    try:
        app = dashboard(settings, library)
        try:
            listening = waitress.create_server(
                app,
                host=settings.host,
                port=settings.port,
                threads=THREADS,
                connection_limit=CONNECTIONS,
                asyncore_use_poll=True,
                channel_timeout=120,
                max_request_body_size=MOST_PER_REQUEST + _SPARE,
                ident="tracekit",
                clear_untrusted_proxy_headers=False,  # whether a proxy was asked by https is looked at; nothing else of them is believed
            )
        except OSError as error:
            raise UsageError(f"cannot listen at {settings.host}:{settings.port} ({error.strerror or error}); choose another --port") from error
        ahead = Ahead(app)
        supervisor = Supervisor(library, ahead.ready)
        with _terminable():
            supervisor.start()
            try:
                ready(address(settings, _port(listening)))
                listening.run()
            finally:
                supervisor.stop()
                ahead.close()
                listening.close()
    finally:
        tempfile.tempdir = elsewhere
        library.close()


def _allow_files() -> None:
    """As many open files as the system lets this process have: a timeline maps one for each rank."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def address(settings: Settings, port: int) -> str:
    """Where the dashboard is reached, with the token that opens it."""
    host = settings.host
    if not is_loopback(host) and host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={quote(settings.token)}" if settings.token else "")


def _port(listening: Any) -> int:
    several = getattr(listening, "effective_listen", None)
    return int(several[0][1] if several else listening.effective_port)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the server as Ctrl-C does: answers under way are finished, children are stopped."""

    def end(_: int, __: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
