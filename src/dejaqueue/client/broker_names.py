"""Brokers that are found by a name in DNS: all addresses of it, or its SRV records.

    dejaq+dns://dejaq.example.org:7464      each address of the name, at this port
    dejaq+srv://dejaq.example.org           what _dejaq._tcp.dejaq.example.org names, with ports

Room: client. Asks resolvers, and waits for them; opens no connection to a broker.
Holds: an answer has one broker at least, or is Unavailable, and then nothing was sent to anybody.
With TLS an address has to show a certificate for the name that it was found by; what an SRV record
names, one for its own name.
See: routed_transport.py, which asks again when a broker is lost; ADR 61.
"""

from __future__ import annotations

import random
from dataclasses import replace
from importlib.util import find_spec
from socket import AF_INET6, SOCK_STREAM, getaddrinfo
from urllib.parse import urlsplit

from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_transport import PORT_DEFAULT, flight_location
from dejaqueue.errors import BadRequest, Refused, Unavailable

FOUND_MAX = 64
"""Brokers of one answer that are used; to begin with, a client needs one that is there."""
SRV_PREFIX = "_dejaq._tcp."
SRV_SECONDS_MAX = 5.0
"""A resolver that has not answered by then has failed."""
INSTALL = "pip install 'dejaqueue[dns]'"


class Names:
    """The names of a URL, to be looked up as often as it takes."""

    def __init__(self, scheme: str, kind: str, names: list[tuple[str, int]]) -> None:
        self._scheme, self._kind, self._names = scheme, kind, names
        self._certified: dict[str, str] = {}

    @classmethod
    def of(cls, url: str) -> Names | None:
        """The names that a URL wants looked up; None = it has addresses.

        Raises:
            BadRequest: it has no such form. Refused: SRV needs a package that is not there.

        >>> Names.of("dejaq://a:1") is None
        True
        """
        both, mark, rest = url.partition("://")
        scheme, plus, kind = both.partition("+")
        if not plus:
            return None
        form = "dejaq+dns://name:port, dejaq+srv://name, or dejaqs+… for TLS"
        if kind not in {"dns", "srv"} or not mark:
            raise BadRequest("url", form, url)
        if kind == "srv" and find_spec("dns") is None:
            raise Refused(f"dejaq+srv:// needs the package dnspython: {INSTALL}")
        names = []
        for part in rest.split(","):
            place = f"{scheme}://{part.strip()}"
            flight_location(place)
            parts = urlsplit(place)
            if kind == "srv" and parts.port:
                raise BadRequest("url", "dejaq+srv:// without a port, which the records have", url)
            names.append((parts.hostname or "", parts.port or PORT_DEFAULT))
        return cls(scheme, kind, names)

    def __str__(self) -> str:
        return ", ".join(name for name, _ in self._names)

    @property
    def plain_url(self) -> str:
        """A URL with the first name in it, for what is judged by scheme and host."""
        return f"{self._scheme}://{self._names[0][0]}"

    def look_up(self) -> list[str]:
        """The URLs of brokers, in the order to try them. Waits for a resolver.

        Raises:
            Unavailable: nothing is found.
        """
        found: dict[str, str] = {}
        wrong: OSError | None = None
        for name, port in self._names:
            try:
                one = (
                    _addresses(self._scheme, name, port)
                    if self._kind == "dns"
                    else _services(self._scheme, name)
                )
            except OSError as error:  # another name of the URL may have an answer
                wrong = error
                continue
            found |= one
        if not found:
            raise unheard(f"no broker is found by the name {self}: {wrong or 'it has no address'}")
        self._certified |= found
        return list(found)[:FOUND_MAX]

    def tls(self, url: str, tls: Tls | None) -> Tls | None:
        """What a connection to a broker that was found needs, by what the caller gave."""
        name = self._certified.get(url)
        if self._scheme != "dejaqs" or not name or (tls and tls.server_name):
            return tls
        return replace(tls or Tls(), server_name=name)


def unheard(text: str) -> Unavailable:
    """The error of a call that reached nobody."""
    error = Unavailable(text)
    error.is_unheard = True
    return error


def _addresses(scheme: str, name: str, port: int) -> dict[str, str]:
    """A URL for each address of a name -> that name, which certificates are for. Raises OSError.

    They come by turns from a place by chance, so that not all clients begin with the same broker.
    """
    hosts = dict.fromkeys(
        f"[{place[0]}]" if family == AF_INET6 else str(place[0])
        for family, _, _, _, place in getaddrinfo(name, port, type=SOCK_STREAM)
    )
    urls = [f"{scheme}://{host}:{port}" for host in hosts]
    first = random.randrange(len(urls)) if urls else 0
    return dict.fromkeys(urls[first:] + urls[:first], name)


def _services(scheme: str, name: str) -> dict[str, str]:
    """URLs of what the SRV records of a name say, as `_addresses`: the lowest priority first, by
    chance of weight within one (RFC 2782). Raises OSError."""
    records = srv_records(f"{SRV_PREFIX}{name}")
    urls = {}
    for priority in sorted({record[0] for record in records}):
        left = [record for record in records if record[0] == priority]
        while left:
            [one] = random.choices(left, [max(record[1], 0.1) for record in left])
            left.remove(one)
            port, target = one[2], one[3].rstrip(".")
            if target:  # "." alone says that there is no such service
                urls[f"{scheme}://{target}:{port}"] = target
    return urls


def srv_records(name: str) -> list[tuple[int, int, int, str]]:
    """The SRV records of a name: priority, weight, port, target. Raises OSError."""
    # An extra, which only this form of a URL needs.
    import dns.exception
    import dns.resolver

    try:
        answer = dns.resolver.resolve(name, "SRV", lifetime=SRV_SECONDS_MAX, search=True)
    except dns.exception.DNSException as wrong:
        raise OSError(f"{name}: {wrong}") from None
    return [(one.priority, one.weight, one.port, one.target.to_text()) for one in answer]
