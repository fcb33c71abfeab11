"""What may a page of ours load, and who may show it? Nothing from elsewhere, and nobody."""

from __future__ import annotations

from collections.abc import Iterable

#: Why each source is there: plotly, ag-grid and Mantine write style elements and attributes; figures are saved through data: and blob: images.
_POLICY = {
    "default-src": ("'none'",),
    "script-src": ("'self'",),
    "style-src": ("'self'", "'unsafe-inline'"),
    "img-src": ("'self'", "data:", "blob:"),
    "font-src": ("'self'", "data:"),
    "connect-src": ("'self'",),
    "manifest-src": ("'self'",),
    "base-uri": ("'none'",),
    "form-action": ("'self'",),
    "frame-ancestors": ("'none'",),
}

#: No Cross-Origin-Opener-Policy: Perfetto's page must be able to answer the window that opened it. ``same-origin`` and not ``no-referrer``:
#: with the latter a browser sends ``Origin: null`` with forms of our own.
FIXED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), usb=(), serial=()",
}


def content_policy(scripts: Iterable[str] = ()) -> str:
    """The content-security policy of a page.

    Args:
        scripts: hashes of its inline scripts, as ``Dash.csp_hashes()`` gives them; no other inline script runs.
    """
    policy = {**_POLICY, "script-src": (*_POLICY["script-src"], *scripts)}
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in policy.items())
