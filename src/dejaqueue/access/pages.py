"""Web pages: requests that a browser makes for a page are told from those that a program makes.

Room: access. Headers in, a refusal or nothing out; no sockets.
Holds: what no API key came with does nothing for a page of another origin, whatever the page makes
the browser send; a page cannot leave out or forge the headers that are looked at.
See: docs/adr/0023-no-key-at-first.md; docs/guides/security.md, "Web pages";
tests/hostile/test_web_page.py, where a real browser tries.

A page of another site can have a browser send nearly any request to this machine. It cannot read
the answers, but a request that changes something has done so by then. Browsers say where such a
request comes from, in headers that no page can set:

    Sec-Fetch-Site, Sec-Fetch-Dest   what asks, and for what; sent to loopback and over TLS alone
    Origin                           with everything but plain GETs of other origins
    Referer                          unless the page asks for it to be left out
    Host                             the name in the address; the page's own, if it has had its name
                                     resolved to this machine (DNS rebinding), and no header but
                                     this one is foreign then
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from dejaqueue.errors import Forbidden
from dejaqueue.settings import BrokerSettings

HEADERS = frozenset({"host", "origin", "referer", "sec-fetch-site", "sec-fetch-dest", "user-agent"})
"""The headers that `Pages.check` looks at."""
REASONS = ("host", "origin", "referer", "site", "destination", "taking")
"""Why a request was refused."""

_OWN_SITES = frozenset({"", "same-origin", "none"})
"""`none`: somebody typed the address, or has opened a bookmark."""
_OWN_DESTINATIONS = frozenset({"", "empty", "document"})
"""`empty`: a script asks, which the answer goes to. All others are parts of a page."""
_BROWSER = "mozilla/"
"""Every browser begins its User-Agent with this, and no page can change it for a picture."""
_SHOWN_CHARS_MAX = 100


class Pages:
    """What tells requests of web pages, for one server.

    Args:
        names: beside loopback names and addresses, what programs may call this broker.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names if name)
        self._mutex = threading.Lock()
        self._refused = dict.fromkeys(REASONS, 0)

    @classmethod
    def of(cls, settings: BrokerSettings) -> Pages:
        """As an operator has set the names."""
        server, cluster = settings.server, settings.cluster
        extra = [name.strip() for name in server.http_names.split(",")]
        return cls([server.host, cluster.advertise, *extra])

    def refused(self) -> dict[str, int]:
        """How many requests were refused since the start, by reason."""
        return self._refused.copy()

    def check(self, headers: Mapping[str, str], *, is_secure: bool, takes: bool) -> None:
        """Raise Forbidden for a request of a page.

        Args:
            headers: those of HEADERS that the request has; names in lower case.
            is_secure: it came over TLS: then its host is one that the certificate is for, since a
                browser would not have sent it otherwise.
            takes: it is a GET, and takes something away. A browser sends such a request for a link,
                too, so only a script of our own page may.
        """
        host = headers.get("host", "")
        is_known = is_secure or _is_loopback_or_address(host) or _name_of(host) in self._names
        if host and not is_known:
            self._refuse("host", "host", "a loopback name, an address or one of http_names", host)
        site = headers.get("sec-fetch-site", "")
        if site not in _OWN_SITES:
            self._refuse("site", "sec-fetch-site", "same-origin, or a program", site)
        destination = headers.get("sec-fetch-dest", "")
        if destination not in _OWN_DESTINATIONS:
            self._refuse("destination", "sec-fetch-dest", "no part of a page", destination)
        for name in ("origin", "referer"):
            value = headers.get(name, "")
            if value and _authority(value) != host.lower():
                self._refuse(name, name, "this broker's own, or a program", value)
        agent = headers.get("user-agent", "")
        is_browser = bool(site) or agent.lower().startswith(_BROWSER)
        if takes and is_browser and site != "same-origin":
            self._refuse("taking", "user-agent", "no browser, for a GET that takes messages", agent)

    def _refuse(self, reason: str, header: str, limit: str, value: str) -> None:
        with self._mutex:
            self._refused[reason] += 1
        shown = value[:_SHOWN_CHARS_MAX]
        raise Forbidden(f"{header} of a call without an API key: {limit}, got: {shown}")


@lru_cache(maxsize=256)
def _is_loopback_or_address(host: str) -> bool:
    """True for names that browsers resolve to this machine themselves, and for addresses.

    An address cannot be rebound: a page that is at this address is this server's own.
    """
    name = _name_of(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name_of(host: str) -> str:
    """The name in a Host header, without its port.

    >>> [_name_of(host) for host in ("Queue.example:80", "[::1]:80", "localhost.", "::1")]
    ['queue.example', '::1', 'localhost', '::1']
    """
    text = host.lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, colon, port = text.rpartition(":")
    if colon and port.isascii() and port.isdigit() and ":" not in name:
        text = name
    return text.removesuffix(".")


def _authority(url: str) -> str:
    """Host and port of an origin or a referer; "null" and the like have none that a host equals.

    >>> _authority("http://LOCALHOST:7465/docs?a"), _authority("null")
    ('localhost:7465', 'null')
    """
    try:
        return urlsplit(url).netloc.lower() or "null"
    except ValueError:
        return "null"
