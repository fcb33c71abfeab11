"""Is a request meant for this server? The Host header must name an address of ours, or a page elsewhere has been rebound to us (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

_HOST = re.compile(r"^(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})))(?::\d{1,5})?$")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("gpu7")
    (True, True, True, False, False)
    """
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def name_in(header: str | None) -> str | None:
    """The host that a Host header names, lower-case and without port; None where it is missing or malformed.

    >>> name_in("LocalHost:8050"), name_in("[::1]:8050"), name_in("a@b"), name_in(None)
    ('localhost', '::1', None, None)
    """
    match = _HOST.match(header or "")
    return None if match is None else (match["six"] or match["name"]).lower().rstrip(".")


def names_of(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """The names by which a server that listens on ``host`` may be asked for.

    Args:
        host: the address that it listens on.
        more: names that the operator allows besides, such as that of a proxy before it.
    """
    own = {"localhost"} if is_loopback(host) else {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(own | {name.lower().strip().rstrip(".") for name in more})


def is_ours(header: str | None, names: frozenset[str], *, beyond_loopback: bool) -> bool:
    """Whether a Host header names this server.

    A page can be rebound under a name only, so an address is always right where we listen on one; on loopback only loopback's own are.
    """
    name = name_in(header)
    if name is None:
        return False
    address = _address(name)
    if address is not None and (beyond_loopback or address.is_loopback):
        return True
    return name in names


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
