"""Addresses of this machine alone: loopback, judged as an address and never as a text.

Room: vocabulary; imports nothing of the project.
Holds: a name is never taken for an address because it begins like one: `127.0.0.1.example.org` is a
machine of somebody else. The one name that counts is `localhost`.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address


@lru_cache(maxsize=1_024)
def is_loopback(host: str) -> bool:
    """True for a host that only this machine reaches.

    >>> [is_loopback(host) for host in ("127.8.0.1", "[::1]", "::ffff:127.0.0.1", "localhost")]
    [True, True, True, True]
    >>> [is_loopback(host) for host in ("127.0.0.1.example.org", "127.evil", "0.0.0.0", "::", "")]
    [False, False, False, False, False]
    """
    text = host.strip("[]").partition("%")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return text.lower() == "localhost"
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)
