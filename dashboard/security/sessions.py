"""Who is asking? Someone who knows the token (once in the URL, then in a cookie), or whom a trusted proxy before us has let in."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from werkzeug.datastructures import Headers

from dashboard.security.hosts import is_loopback
from tracekit.errors import UsageError

#: Shorter tokens could be guessed.
SHORTEST = 16
#: The one user of a server without accounts.
LOCAL = "local"
_USER = re.compile(r"^[\w.@+ -]{1,128}$")
_TOKEN = re.compile(r"^[A-Za-z0-9._~-]+$")


@dataclass(frozen=True)
class Access:
    """Who may use a server.

    Attributes:
        token: what they must know; None: no token is asked for.
        proxy_header: header in which a proxy names the user that it has let in; None: there is no such proxy.
        proxies: addresses from which that header is believed.
    """

    token: str | None = None
    proxy_header: str | None = None
    proxies: frozenset[str] = frozenset({"127.0.0.1", "::1"})

    def __post_init__(self) -> None:
        """Refuse a token that could be guessed or that a URL would change.

        Raises:
            UsageError: it is too short, or has other characters than letters, digits and ``._~-``.
        """
        if self.token is not None and (len(self.token) < SHORTEST or not _TOKEN.match(self.token)):
            raise UsageError(f"the token needs at least {SHORTEST} letters, digits or ._~- (it can be guessed otherwise); --token auto makes one")

    @property
    def asks(self) -> bool:
        """Whether anybody is asked who they are."""
        return self.token is not None or self.proxy_header is not None

    @property
    def cookie(self) -> str:
        """Name of the cookie; servers of one host on several ports share a cookie jar, so each token has a name of its own."""
        return f"tracekit_{_digest(self.token or '', 'name')[:12]}"

    @property
    def session(self) -> str:
        """Content of the cookie; it does not tell the token, and stands as long as the token does."""
        return _digest(self.token or "", "session")


def new_token() -> str:
    """A token that nobody guesses: 256 bits, fit for a URL."""
    return secrets.token_urlsafe(32)


def may_listen(host: str, access: Access) -> None:
    """Refuse to serve other machines without asking who they are.

    Raises:
        UsageError: ``host`` can be reached from elsewhere, and neither a token nor a proxy's header is set.
    """
    if not is_loopback(host) and not access.asks:
        says = f"--host {host} can be reached from other machines, and nobody would be asked who they are"
        raise UsageError(f"{says}; add --token auto, or --proxy-header NAME behind a proxy that signs people in")


def user_of(access: Access, headers: Headers | Mapping[str, str], cookies: Mapping[str, str], peer: str | None) -> str | None:
    """Who is asking; None where nobody that may.

    Args:
        access: who may.
        headers: of the request.
        cookies: of the request.
        peer: address that the connection came from.
    """
    if not access.asks:
        return LOCAL
    if access.proxy_header is not None and peer in access.proxies:
        named = headers.get(access.proxy_header, "").strip()
        if _USER.match(named):
            return named
    if access.token is None:
        return None
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and same(given.strip(), access.token):
        return LOCAL
    return LOCAL if same(cookies.get(access.cookie, ""), access.session) else None


def same(given: str, wanted: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _digest(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"tracekit {purpose}".encode(), hashlib.sha256).hexdigest()
