"""As much of GitHub's API as a comment needs, on this machine: comments in pages, and tokens that may more or less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: Token -> login and type of its user, and whether it may write. A job's token is an app's: it may not ask who it is.
USERS = {
    "ghs_job": ("github-actions[bot]", "Bot", True),
    "ghp_person": ("ada", "User", True),
    "ghs_fork": ("github-actions[bot]", "Bot", False),
}


@dataclass
class GitHub:
    """What the server holds, and what it was asked."""

    address: str = ""
    page: int = 2
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def say(self, login: str, kind: str, body: str) -> dict[str, Any]:
        """A comment of somebody's."""
        made = {"id": len(self.comments) + 1, "user": {"login": login, "type": kind}, "body": body}
        self.comments.append(made)
        return made

    @property
    def changes(self) -> list[str]:
        """Methods of the requests that change something."""
        return [method for method, _ in self.asked if method != "GET"]


@contextmanager
def github() -> Iterator[GitHub]:
    """A server as long as the context lasts."""
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            user = self._asked()
            if user is None:
                return
            where = urlsplit(self.path)
            if where.path == "/user":
                self._answer(*((403, {"message": "Resource not accessible by integration"}) if user[1] == "Bot" else (200, {"login": user[0]})))
            elif where.path == "/repos/o/r/issues/7/comments":
                number = int(parse_qs(where.query).get("page", ["1"])[0])
                shown = state.comments[(number - 1) * state.page : number * state.page]
                more = number * state.page < len(state.comments)
                link = f'<{state.address}{where.path}?per_page=100&page={number + 1}>; rel="next", <{state.address}/x>; rel="last"' if more else ""
                self._answer(200, shown, Link=link)
            else:
                self._answer(404, {"message": "Not Found"})

        def do_POST(self) -> None:
            if (user := self._asked(writes=True)) is not None:
                self._answer(201, state.say(user[0], user[1], self._body()))

        def do_PATCH(self) -> None:
            if self._asked(writes=True) is not None:
                found = state.comments[int(self.path.rsplit("/", 1)[1]) - 1]
                found["body"] = self._body()
                self._answer(200, found)

        def _asked(self, writes: bool = False) -> tuple[str, str, bool] | None:
            state.asked.append((self.command, self.path))
            user = USERS.get(self.headers["Authorization"].removeprefix("Bearer "))
            if user is None:
                self._answer(401, {"message": "Bad credentials"})
            elif writes and not user[2]:
                self._answer(403, {"message": "Resource not accessible by integration"})
                user = None
            return user

        def _body(self) -> str:
            return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

        def _answer(self, status: int, document: Any, **headers: str) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
