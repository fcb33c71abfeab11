"""Was a request started by our own page? Browsers say so by Sec-Fetch-Site and Origin; what other programs send has neither, but a header of ours."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers

#: Sent with every write; a page elsewhere cannot add it without asking us first (a preflight, which is never granted).
HEADER = "X-Tracekit"
#: Paths to which Dash's own renderer writes; it sends JSON, and no header of ours.
DASH_WRITES = ("/_dash-update-component",)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def refused(method: str, path: str, headers: Headers | Mapping[str, str], content_type: str | None = None) -> str | None:
    """Why a request may not be answered, or None where it may.

    Args:
        method: GET, POST, …
        path: of the URL.
        headers: of the request, looked up by name regardless of case.
        content_type: media type of the body, without parameters.
    """
    if method in _SAFE:
        return _embedded(headers)
    if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return "this write was started by another site"
    if not _own(headers.get("Origin"), headers.get("Host", "")):
        return "this write was started by another site"
    if path in DASH_WRITES:
        return None if content_type == "application/json" else "this write is no JSON"
    return None if headers.get(HEADER) == "1" else f"writes need the header {HEADER}: 1"


def _embedded(headers: Headers | Mapping[str, str]) -> str | None:
    """A read that another site started is refused, unless a person follows a link."""
    if headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
        return None
    followed = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest", "document") == "document"
    return None if followed else "another site may link to this, but not embed or fetch it"


def _own(origin: str | None, host: str) -> bool:
    if origin is None:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
