"""The addresses of brokers, as users give them.

Room: client. Texts only; opens nothing.
Holds: what comes out begins with http or https, has a host, and no slash behind it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from dejaqueue_client.errors import BadRequest

URL_DEFAULT = "http://localhost:7465"
PORT_DEFAULT = 7465
_LIMIT = "http://host:port or https://host:port; of a cluster several hosts, with commas"


def broker_urls(url: object) -> list[str]:
    """The address of each broker that a text names. Raises BadRequest.

    >>> broker_urls("https://a,b:8443")
    ['https://a:7465', 'https://b:8443']
    >>> broker_urls("https://queue.example:443/dejaq/")
    ['https://queue.example:443/dejaq']
    """
    if not isinstance(url, str):
        raise BadRequest("url", _LIMIT, url)
    scheme, mark, rest = url.strip().partition("://")
    if mark and scheme in ("dejaq", "dejaqs", "dejaq+dns", "dejaq+srv"):
        limit = f"{_LIMIT} (this client speaks HTTP, which is another port)"
        raise BadRequest("url", limit, _shown(url))
    hosts, slash, path = rest.partition("/")
    if not mark or scheme not in ("http", "https") or not hosts:
        raise BadRequest("url", _LIMIT, _shown(url))
    return [_broker_url(scheme, host, f"{slash}{path}", url) for host in hosts.split(",")]


def _broker_url(scheme: str, host: str, path: str, whole: str) -> str:
    try:
        parts = urlsplit(f"{scheme}://{host}{path}")
        port = parts.port or PORT_DEFAULT
    except ValueError:
        raise BadRequest("url", _LIMIT, _shown(whole)) from None
    if parts.username or parts.password:
        raise BadRequest("url", f"{_LIMIT}; a key is given as api_key", "***")
    if not parts.hostname or parts.query or parts.fragment:
        raise BadRequest("url", _LIMIT, _shown(whole))
    shown = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{shown}:{port}{parts.path.rstrip('/')}"


def _shown(url: str) -> str:
    """The address without what may be a secret in it."""
    return url if "@" not in url else f"***@{url.rpartition('@')[2]}"
