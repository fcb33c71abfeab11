"""How does a pull request on GitHub get exactly one comment of ours? It is found by its last line, edited in place, and never deleted.

REST API: https://docs.github.com/rest/issues/comments. A token may create and edit comments with ``pull-requests: write``;
the one that a job for a fork's pull request gets may not, which is a ``ForgeError`` and no more.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tracekit.wording import clean

#: Longest comment that GitHub takes, in characters.
LONGEST = 65_536
#: Pages of a hundred comments that are searched.
MOST_PAGES = 50
TIMEOUT_S = 20.0
_MOST_BYTES = 32 << 20
_TAG = re.compile(r"<!-- tracekit: [^<>\n]{1,200} -->")
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,]*\brel="?next"?')
_TOKEN = re.compile(r"[!-~]+")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


class ForgeError(Exception):
    """The forge does not do what was asked: no right to, not there, or out of reach; one line says which."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(reason)


class Outcome(StrEnum):
    """What became of a comment."""

    CREATED = "created"
    EDITED = "edited"
    KEPT = "left as it is: it says this already"
    SILENT = "not written: there is no news"


@dataclass(frozen=True)
class PullRequest:
    """A pull request.

    Attributes:
        repository: ``owner/name``.
        number: of the pull request.
        api: root of the API; of GitHub Enterprise ``https://HOST/api/v3``.
    """

    repository: str
    number: int
    api: str = "https://api.github.com"

    def __post_init__(self) -> None:
        parts = urlsplit(self.api)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ForgeError(f"{clean(self.api)!r} is no root of an API; GITHUB_API_URL is https://api.github.com or that of your own server")
        if not _REPOSITORY.fullmatch(self.repository) or ".." in self.repository:
            raise ForgeError(f"{clean(self.repository)!r} is no repository; GITHUB_REPOSITORY is OWNER/NAME")
        if self.number < 1:
            raise ForgeError(f"{self.number} is no number of a pull request")


class _Answer(NamedTuple):
    body: Any
    next: str | None


def tag_of(body: str) -> str | None:
    """The hidden tag by which a comment is found again: its last line.

    >>> tag_of("text\\n<!-- tracekit: tp2 -->\\n"), tag_of("<!-- tracekit: tp2 -->\\nquoted"), tag_of("text")
    ('<!-- tracekit: tp2 -->', None, None)
    """
    lines = body.rstrip().splitlines()
    return lines[-1].strip() if lines and _TAG.fullmatch(lines[-1].strip()) else None


def pull_request_of(event: Mapping[str, Any]) -> int | None:
    """The number of the pull request that an event is about; None where it is about none.

    Args:
        event: the document at GITHUB_EVENT_PATH.

    >>> pull_request_of({"pull_request": {"number": 7}}), pull_request_of({"ref": "refs/heads/main"})
    (7, None)
    """
    told = event.get("pull_request")
    number = told.get("number") if isinstance(told, Mapping) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def comment(on: PullRequest, token: str, body: str, *, news: bool, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Say something on a pull request, once: edit the comment of before, or write one if there is news.

    Args:
        on: where.
        token: by which to do so; it is in no message.
        body: Markdown whose last line is the tag.
        news: whether it is worth a new comment; one that stands already is edited in either case.
        timeout_s: of each request.

    Raises:
        ForgeError: it cannot be done.
    """
    tag = tag_of(body)
    if tag is None:
        raise ForgeError("the last line of the comment is no tag: write it with --markdown")
    if len(body) > LONGEST:
        raise ForgeError(f"the comment has {len(body):,} characters; GitHub takes {LONGEST:,}")
    if not _TOKEN.fullmatch(token):
        raise ForgeError("the token holds characters that no token has")
    api = _Api(on.api.rstrip("/"), token, timeout_s)
    refused: ForgeError | None = None
    for own in _own(api, on, tag):
        if own["body"].replace("\r\n", "\n").rstrip() == body.rstrip():
            return Outcome.KEPT
        try:
            api.ask("PATCH", f"/repos/{on.repository}/issues/comments/{own['id']}", {"body": body})
        except ForgeError as e:
            # somebody else's that only looks like ours, or one that was deleted just now
            if e.status not in (403, 404):
                raise
            refused = e if e.status == 403 else refused
        else:
            return Outcome.EDITED
    if not news:
        if refused is not None:
            raise refused
        return Outcome.SILENT
    api.ask("POST", f"/repos/{on.repository}/issues/{on.number}/comments", {"body": body})
    return Outcome.CREATED


def _own(api: _Api, on: PullRequest, tag: str) -> list[dict[str, Any]]:
    """Our comments with the tag, oldest first.

    Anybody can write the tag, and a token may have the right to edit anybody's comment: their author could then rewrite what
    we said under their name. So only the token's own user counts, or, where a job's token has none to name, bots.
    """
    found = [
        c
        for c in api.pages(f"/repos/{on.repository}/issues/{on.number}/comments?per_page=100")
        if isinstance(c, dict) and isinstance(c.get("id"), int) and isinstance(c.get("body"), str) and tag_of(c["body"]) == tag
    ]
    if not found:
        return []
    name = _login(api)
    own = [c for c in found if _author(c, "login") == name] if name else [c for c in found if _author(c, "type") == "Bot"]
    return sorted(own, key=lambda c: (_author(c, "login") != "github-actions[bot]", c["id"]))


def _login(api: _Api) -> str | None:
    """Whose the token is; None where it is an app's, which may not ask."""
    try:
        user = api.ask("GET", "/user").body
    except ForgeError as e:
        if e.status in (401, 403, 404):
            return None
        raise
    name = user.get("login") if isinstance(user, dict) else None
    return name if isinstance(name, str) else None


def _author(comment: Mapping[str, Any], key: str) -> object:
    user = comment.get("user")
    return user.get(key) if isinstance(user, Mapping) else None


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    """Redirections would carry the token to wherever they point."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True)
class _Api:
    """Requests to one root, with one token."""

    root: str
    token: str
    timeout_s: float

    def pages(self, path: str) -> list[Any]:
        """The items of every page of a list."""
        url: str | None = self.root + path
        items: list[Any] = []
        for _ in range(MOST_PAGES):
            if url is None:
                break
            answer = self._at("GET", url)
            items += answer.body if isinstance(answer.body, list) else []
            url = answer.next
        return items

    def ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> _Answer:
        """One request."""
        return self._at(method, self.root + path, document)

    def _at(self, method: str, url: str, document: Mapping[str, Any] | None = None) -> _Answer:
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28", "User-Agent": "tracekit"}
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(url, data=data, method=method, headers=headers | ({"Content-Type": "application/json"} if data else {}))
        request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.build_opener(_Unfollowed).open(request, timeout=self.timeout_s) as answer:
                body, links = answer.read(_MOST_BYTES), answer.headers.get("Link") or ""
        except urllib.error.HTTPError as e:
            with e:
                raise ForgeError(_refusal(e.code, _message(e)), e.code) from None
        except (OSError, http.client.HTTPException) as e:
            why = getattr(e, "reason", None) or getattr(e, "strerror", None) or type(e).__name__
            raise ForgeError(f"{self.root} cannot be reached: {clean(why)}") from None
        try:
            return _Answer(json.loads(body), self._next(links))
        except (ValueError, RecursionError):
            raise ForgeError(f"{self.root} answered with something that is no JSON") from None

    def _next(self, links: str) -> str | None:
        """The next page, if it is at the same place: the token goes nowhere else."""
        match = _NEXT.search(links)
        return match[1] if match and urlsplit(match[1])[:2] == urlsplit(self.root)[:2] else None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        document = json.loads(error.read(1 << 16))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return ""
    return clean(document["message"]) if isinstance(document, dict) and isinstance(document.get("message"), str) else ""


def _refusal(status: int, message: str) -> str:
    said = f"GitHub answered {status}" + (f" ({message})" if message else "")
    match status:
        case 401:
            return f"{said}: the token is not valid, or no longer"
        case 403 | 404:
            return f"{said}: the token may not comment here; a job needs permissions: pull-requests: write, which a fork's never has"
    return said
