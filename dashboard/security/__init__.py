"""Who may ask this server for what? Every request passes here before any page, upload or callback sees it.

Is the host ours? Did our own page start this? Who is asking? Only then the page; and headers that keep it to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import quote, urlencode

from flask import Flask, Response, g, jsonify, make_response, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from dashboard.security import origins, sign_in
from dashboard.security.headers import FIXED, content_policy
from dashboard.security.hosts import is_loopback, is_ours, name_in, names_of
from dashboard.security.sessions import LOCAL, Access, may_listen, new_token, same, user_of

#: Answered to anybody: whether the server lives tells nothing about a run.
HEALTH = "/healthz"
_HASHES = "tracekit_script_hashes"
_YEAR_S = 365 * 24 * 3600


def protect(server: Flask, access: Access, *, host: str = "127.0.0.1", names: Iterable[str] = ()) -> None:
    """Check every request of a server, and send the security headers with every answer.

    Args:
        server: the Flask server, before or after its routes are added.
        access: who may use it.
        host: the address that it listens on.
        names: host names that are allowed besides.

    Raises:
        UsageError: ``host`` can be reached from elsewhere and nobody would be asked who they are.
    """
    may_listen(host, access)
    known, beyond = names_of(host, names), not is_loopback(host)

    def check() -> AnyResponse | None:
        if not is_ours(request.headers.get("Host"), known, beyond_loopback=beyond):
            return refusal(403, f"this server is not called {name_in(request.headers.get('Host')) or 'that'}; start it with --allow-host to add a name")
        if (reason := origins.refused(request.method, request.path, request.headers, request.mimetype)) is not None:
            return refusal(403, reason)
        if request.path == HEALTH:
            return None
        if request.method == "GET" and access.token is not None and "token" in request.args:
            return _signed_in(access)
        g.user = user_of(access, request.headers, request.cookies, request.remote_addr)
        return None if g.user is not None else _ask(access)

    server.before_request_funcs.setdefault(None, []).insert(0, check)
    server.after_request(_harden)


def allow_scripts(server: Flask, hashes: Callable[[], Iterable[str]]) -> None:
    """Let the inline scripts of a Dash app run: give its ``csp_hashes``, which is asked for every page."""
    server.extensions[_HASHES] = hashes


def current_user() -> str:
    """The user of this request; ``local`` where there are no accounts."""
    return str(g.get("user") or LOCAL)


def refusal(status: int, reason: str) -> Response:
    """An answer that says in one line why not: JSON for programs, text for people."""
    if request.path.startswith("/api/") or request.is_json:
        answer = jsonify({"error": reason})
    else:
        answer = make_response(reason + "\n")
        answer.mimetype = "text/plain"
    answer.status_code = status
    return answer


def _signed_in(access: Access) -> AnyResponse:
    """The token leaves the URL, and stays in a cookie that no script reads and no other site sends."""
    if not same(request.args.get("token", ""), access.token or ""):
        return sign_in.page(wrong=True)
    rest = urlencode([(k, v) for k, v in request.args.items(multi=True) if k != "token"])
    # leading slashes would make another host of the path, and so would what a browser drops between them
    answer = redirect("/" + quote(request.path.lstrip("/")) + (f"?{rest}" if rest else ""), 303)
    answer.set_cookie(access.cookie, access.session, max_age=_YEAR_S, httponly=True, samesite="Strict", secure=_by_https(), path="/")
    return answer


def _by_https() -> bool:
    """Whether the browser came by https, if need be to a proxy before us; who says so falsely keeps the cookie from themselves only."""
    return request.is_secure or request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower() == "https"


def _ask(access: Access) -> AnyResponse:
    """Ask a person for the token; tell a program that it is missing."""
    if access.token is None:
        return refusal(401, "the proxy before this server names no user; sign in there")
    if request.method != "GET" or request.path.startswith(("/api/", "/_", "/assets/")):
        return refusal(401, "sign in first: open the address with ?token=… that tracekit serve printed, or send Authorization: Bearer TOKEN")
    return sign_in.again() if request.headers.get("Sec-Fetch-Site") == "cross-site" else sign_in.page()


def _harden(answer: Response) -> Response:
    for name, value in FIXED.items():
        answer.headers.setdefault(name, value)
    hashes = request_hashes() if answer.mimetype == "text/html" else ()
    answer.headers.setdefault("Content-Security-Policy", content_policy(hashes))
    if not request.path.startswith(("/assets/", "/_dash-component-suites/")):
        answer.headers.setdefault("Cache-Control", "no-store")
    return answer


def request_hashes() -> tuple[str, ...]:
    """Hashes of the inline scripts that pages of this server carry."""
    from flask import current_app

    hashes = current_app.extensions.get(_HASHES)
    return () if hashes is None else tuple(hashes())


__all__ = ["HEALTH", "Access", "allow_scripts", "current_user", "may_listen", "new_token", "protect", "refusal"]
