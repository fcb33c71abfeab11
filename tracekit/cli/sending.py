"""How does a file get to a dashboard from a shell? In pieces that survive a network cut (tus 1.0), with nothing but the standard library."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tracekit.errors import InputError, UsageError

PIECE = 8 << 20
#: Sent along with the announcement: what is no trace is refused at once.
FIRST = 64 << 10
_TRIES = 9
_TIMEOUT_S = 120.0
#: Answers after which the same request may succeed.
_AGAIN = frozenset({408, 423, 425, 429, 500, 502, 503, 504})


class NotTaken(InputError):
    """The server knows no use for this file: it is no trace, or its name is none. The others may go on without it."""


class Item(NamedTuple):
    """A file to send, and the relative path that it is given."""

    path: Path
    label: str

    @property
    def size(self) -> int:
        """Its bytes.

        Raises:
            InputError: it is gone.
        """
        try:
            return self.path.stat().st_size
        except OSError as error:
            raise _unreadable(self, error) from error

    @property
    def mark(self) -> str:
        """By which the server's list tells this file from another of its name and size."""
        return str(self.path.stat().st_mtime_ns)


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def error(self) -> str:
        """The reason that it gives for a refusal."""
        return str(self.body.get("error") or f"the server answered {self.status}")


class Dashboard:
    """A dashboard at an address; requests are repeated over network cuts.

    Args:
        address: as ``tracekit serve`` printed it; a token in it is taken out and kept.
        token: instead of one in the address.
        say: takes a line for the person when a request has to be repeated.
        pause: waits some seconds.

    Raises:
        UsageError: that is no address.
    """

    def __init__(self, address: str, token: str | None, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{address!r} is no address of a dashboard; give the one that tracekit serve prints, such as http://127.0.0.1:8900")
        self.token = token or next(iter(parse_qs(parts.query).get("token", [])), None)
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._parts, self._say, self._pause = parts, say, pause
        self._line: http.client.HTTPConnection | None = None
        self._answered = False
        self._sending: set[str] = set()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, instead: Callable[[], Answer | None] | None = None
    ) -> Answer:
        """One request, repeated while the network or the server is away.

        Args:
            method: of HTTP.
            path: at the server.
            body: of the request.
            headers: besides those that each request has.
            instead: is asked before a repetition whether the first request arrived, and what its answer must have been.

        Raises:
            UsageError: the server cannot be reached, does not do what it is asked, or does not know the token.
        """
        for misses in range(_TRIES):
            if misses and instead is not None and (found := instead()) is not None:
                return found
            reached = False
            try:
                answer = self._once(method, path, body, headers or {})
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            else:
                if answer.status not in _AGAIN:
                    break
                why, reached = answer.error, True
            if misses == _TRIES - 1 and reached:
                raise UsageError(f"{self.address}: {why}")
            if misses == _TRIES - 1 or (misses == 2 and self._line is None and not (reached or self._answered)):
                raise UsageError(f"{self.address} cannot be reached ({why}); check the address, and that tracekit serve runs there")
            seconds = min(30.0, 0.5 * 2**misses)
            if misses:
                self._say(f"{self.address}: {why}; trying again in {seconds:.0f} s")
            self._pause(seconds)
        if answer.status == 401:
            raise UsageError(f"{self.address} asks for a token; give --token, the one in the address that tracekit serve printed")
        return answer

    def send(self, item: Item, known: Iterable[Mapping[str, Any]], progress: Callable[[int], None]) -> str:
        """Send one file, from where an earlier attempt stopped, and return the id of its upload.

        Args:
            item: the file.
            known: the sender's uploads that are on their way, as the server lists them.
            progress: takes the bytes that are there.

        Raises:
            NotTaken: it is no trace.
            InputError: the server has no room for it, or it cannot be read to its end; a run without it would lack a rank.
        """
        try:
            return self._sent(item, known, progress)
        except OSError as error:
            raise _unreadable(item, error) from error

    def _sent(self, item: Item, known: Iterable[Mapping[str, Any]], progress: Callable[[int], None]) -> str:
        size, mark = item.size, item.mark
        known = list(known)
        match = [u for u in known if _is_of(u, item, size, mark)]
        with item.path.open("rb") as file:
            if match:
                id, offset = str(match[0]["id"]), int(match[0]["offset_bytes"])
            else:
                id, offset = self._announce(item, size, mark, file.read(FIRST), {str(u.get("id")) for u in known})
            self._sending.add(id)
            progress(offset)
            while offset < size:
                file.seek(offset)
                piece = file.read(min(PIECE, size - offset))
                if not piece:
                    raise InputError(f"ended at byte {offset} although it had {size} bytes; it changed while it was sent, send it again", item.path)
                offset = self._append(item, id, offset, piece)
                progress(offset)
        return id

    def uploads(self) -> list[dict[str, Any]]:
        """The sender's uploads that are on their way."""
        return list(self.ask("GET", "/api/uploads").body.get("uploads", []))

    def close(self) -> None:
        """End the connection."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _announce(self, item: Item, size: int, mark: str, first: bytes, known: Collection[str]) -> tuple[str, int]:
        def arrived() -> Answer | None:
            """The answer that was lost: a second announcement would hold room for the file twice."""
            new = [u for u in self.uploads() if _is_of(u, item, size, mark) and str(u["id"]) not in {*known, *self._sending}]
            return Answer(201, {"location": f"/api/uploads/{new[0]['id']}", "upload-offset": str(new[0]["offset_bytes"])}, {}) if new else None

        told = {"filename": item.path.name, "relativePath": item.label, "mark": mark}
        metadata = ",".join(f"{key} {base64.b64encode(value.encode('utf-8', 'replace')).decode()}" for key, value in told.items())
        answer = self.ask("POST", "/api/uploads", first, {"Upload-Length": str(size), "Upload-Metadata": metadata, **_BYTES}, arrived)
        if answer.status != 201:
            raise _refusal(item, answer, (400, 415))
        return answer.headers["location"].rsplit("/", 1)[1], int(answer.headers["upload-offset"])

    def _append(self, item: Item, id: str, offset: int, piece: bytes) -> int:
        answer = self.ask("PATCH", f"/api/uploads/{id}", piece, {"Upload-Offset": str(offset), **_BYTES})
        if answer.status in (204, 409) and "upload-offset" in answer.headers:  # 409: an answer was lost, the bytes are there
            return int(answer.headers["upload-offset"])
        raise _refusal(item, answer, (415,))

    def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._line is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                self._line = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=ssl.create_default_context())
            else:
                self._line = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        own = {"X-Tracekit": "1", "Tus-Resumable": "1.0.0", "Accept": "application/json"}
        signed = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self._line.request(method, path, body=body, headers={**own, **signed, **headers})
        answer = self._line.getresponse()
        text = answer.read()
        self._answered = True
        try:
            document = json.loads(text) if text else {}
        except ValueError:
            document = {"error": f"the server answered {answer.status}, and is no dashboard of tracekit" if answer.status >= 400 else None}
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, document if isinstance(document, dict) else {})


def _is_of(upload: Mapping[str, Any], item: Item, size: int, mark: str) -> bool:
    """Whether an upload of the server's list is of a file."""
    return (upload.get("label"), upload.get("size_bytes"), upload.get("mark")) == (item.label, size, mark)


def _unreadable(item: Item, error: OSError) -> InputError:
    return InputError(f"cannot be read ({error.strerror or error}); make it readable, or leave it out", item.path)


def _refusal(item: Item, answer: Answer, of_the_file: Collection[int]) -> InputError:
    """Why a file is not taken: for what it is, or for want of room, a quota, a limit."""
    kind = NotTaken if answer.status in of_the_file else InputError
    return kind(answer.error.removeprefix(f"{item.label}: "), item.path)


_BYTES = {"Content-Type": "application/offset+octet-stream"}
