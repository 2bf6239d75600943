"""What a `nats://` URL says: servers, user, copies of each record, where their state is told.

Room: connections.
Holds: a secret of a URL never gets into a text.
See: connection.py for the connection.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from dejaqueue.connections.tls import OPTIONS, client_context
from dejaqueue.errors import BadRequest

CLIENT_PORT = 4222
MONITOR_PORT = 8222
HTTPS = "https://"
REPLICAS = (1, 3, 5)
PARAMETERS = ("replicas", "prefix", "monitor", "system", *OPTIONS)


@dataclass(frozen=True, slots=True)
class NatsUrl:
    """A URL in pieces.

    Attributes:
        servers: host:port of each server that is named; the connection learns of others.
        user, password: "" = none.
        replicas: copies of each record that the servers keep.
        prefix: begins the names of all streams, so that several clusters can share the servers.
        monitors: host:port of the servers' monitoring, with https:// before it where that has TLS;
            empty = port 8222 of each server.
        system_user, system_password: of the servers' system account, which tells the same without
            monitoring ports; "" = none.
        tls: how the servers are known, and what is shown to them; None = in plain text.
    """

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    replicas: int = 1
    prefix: str = "dejaq"
    monitors: tuple[str, ...] = ()
    system_user: str = ""
    system_password: str = ""
    tls: ssl.SSLContext | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"nats://{','.join(self.servers)}"

    __str__ = __repr__


def read_url(url: str) -> NatsUrl:
    """Read `nats://[user:password@]host[:port],…[?replicas=1|3|5&prefix=&monitor=&system=&tls=]`.

    TLS is used with `tls=true`, or one of the files `ca`, `certificate`, `key`.

    Raises:
        BadRequest: naming the part that is wrong.
    """
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    if parts.scheme != "nats" or not places or parts.path.strip("/"):
        raise BadRequest("url", "nats://host:port,host:port", f"{parts.scheme}://{places}")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    for name in query:
        if name not in PARAMETERS:
            raise BadRequest("url", f"of the parameters only {', '.join(PARAMETERS)}", name)
    replicas = query.get("replicas", "1")
    if replicas not in {str(count) for count in REPLICAS}:
        raise BadRequest("replicas", "1, 3 or 5", replicas)
    prefix = query.get("prefix", "dejaq")
    if not prefix.replace("-", "").replace("_", "").isalnum() or len(prefix) > 50:
        raise BadRequest("prefix", "1 to 50 letters, digits, - and _", prefix)
    user, _, password = login.partition(":")
    system_user, _, system_password = query.get("system", "").partition(":")
    return NatsUrl(
        servers=_places(places, CLIENT_PORT, "url"),
        user=unquote(user),
        password=unquote(password),
        replicas=int(replicas),
        prefix=prefix,
        monitors=_monitors(query.get("monitor", "")),
        system_user=system_user,
        system_password=system_password,
        tls=client_context(query, "url"),
    )


def _monitors(text: str) -> tuple[str, ...]:
    monitors: list[str] = []
    for place in text.split(","):
        scheme = HTTPS if place.startswith(HTTPS) else ""
        places = _places(place.removeprefix(scheme), MONITOR_PORT, "monitor")
        monitors += (scheme + one for one in places)
    return tuple(monitors)


def _places(text: str, port: int, field: str) -> tuple[str, ...]:
    addresses = []
    for place in filter(None, text.split(",")):
        try:
            parts = urlsplit(f"//{place}")
            host, given = None if parts.path else parts.hostname, parts.port or port
        except ValueError:
            host, given = None, 0
        if not host:
            raise BadRequest(field, "host:port, with commas between several", place)
        addresses.append(f"[{host}]:{given}" if ":" in host else f"{host}:{given}")
    return tuple(addresses)
