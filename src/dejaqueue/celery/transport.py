"""The transport of kombu for `dejaq://`: wakes its reader when something was pushed.

Room: celery. The class that kombu finds by `dejaqueue.celery:Transport`.
Holds: nothing polls: an event loop has a descriptor to watch, a blocking reader a bell; an error
that ends a consumer is raised where events are drained, so that Celery connects again.
See: channel.py; docs/guides/from-celery.md for `transport_options`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any
from urllib.parse import unquote, urlsplit

from kombu.transport import virtual

from dejaqueue.celery import choice
from dejaqueue.celery.channel import Channel as PushedChannel
from dejaqueue.celery.channel import Consuming
from dejaqueue.celery.link import Arrivals
from dejaqueue.client.credentials import Tls
from dejaqueue.errors import BadRequest, DejaQError, Locked, TopicUnknown, Unavailable
from dejaqueue.operating_system import WakeFile
from dejaqueue.version import __version__

ROUTES_TOPIC = "celery.routes"
"""Where bindings are kept, unless `transport_options` say otherwise."""
OPTIONS = ("api_key", "apart", "name", "retry_ms_max", "routes_topic", "tls", "topic")
"""What `transport_options` may say that is ours."""


class Transport(virtual.Transport):  # type: ignore[misc]
    """A transport of kombu."""

    Channel = PushedChannel
    can_parse_url = True
    default_port = 7464
    polling_interval = None
    driver_type = "dejaq"
    driver_name = "dejaqueue"
    connection_errors = (
        *virtual.Transport.connection_errors,
        OSError,
        Unavailable,
        TopicUnknown,
        Locked,
    )
    channel_errors = (*virtual.Transport.channel_errors, DejaQError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._arrivals: deque[tuple[PushedChannel, Consuming, int, Any]] = deque()
        self._bell = threading.Event()
        self._file: WakeFile | None = None
        self.shared: choice.SharedLink | None = None
        self.topic_settings: dict[str, Any] = client.transport_options.get("topic", {})

    def driver_version(self) -> str:
        """The version of DejaQ's client."""
        return __version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL without its API key."""
        url, api_key = without_key(uri if "://" in uri else url_of(self.client))
        if api_key is None:
            return url
        scheme, _, rest = url.partition("://")
        return f"{scheme}://:{api_key if include_password else mask}@{rest}"

    # --- the connection ------------------------------------------------------------------------

    def establish_connection(self) -> Transport:
        """Check that a broker answers."""
        given = self.client.transport_options
        url, api_key = without_key(url_of(self.client))
        options = {name: given[name] for name in OPTIONS[:4] if name in given and name != "apart"}
        if api_key is not None:
            options["api_key"] = api_key
        tls = given.get("tls") or tls_of(self.client.ssl)
        if tls:
            options["tls"] = tls
        self.shared = choice.shared(
            url,
            options,
            apart=given.get("apart"),
            routes_topic=given.get("routes_topic", ROUTES_TOPIC),
        )
        self.shared.link.connect()
        self._file = WakeFile()
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        """Close the channels; the link stays for other connections of this process."""
        super().close_connection(connection)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def verify_connection(self, connection: Any) -> bool:
        """Whether it can be used here."""
        return self.shared is not None and self.shared.is_mine

    # --- what arrives --------------------------------------------------------------------------

    def arrived(
        self,
        channel: PushedChannel,
        consuming: Consuming,
        number: int,
        arrivals: Arrivals | DejaQError,
    ) -> None:
        """On a thread of the link: keep what came, and wake whoever drains."""
        if isinstance(arrivals, DejaQError):
            self._arrivals.append((channel, consuming, number, arrivals))
        else:
            self._arrivals.extend((channel, consuming, number, arrival) for arrival in arrivals)
        self._bell.set()
        file = self._file
        if file is not None:
            file.ring()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand over what came before, wait for a message at most so long if nothing did.

        All of it, as kombu's own tests want: whoever asks for one message has a prefetch of one.

        Raises:
            socket.timeout: none came.
            Unavailable, TopicUnknown: a consumer has ended.
        """
        while not self._arrivals:
            self._bell.clear()
            if self._arrivals:
                break
            if timeout == 0 or not self._bell.wait(timeout):
                raise TimeoutError
        for _ in range(len(self._arrivals)):
            if not self._arrivals:  # whoever was called drained them
                return
            channel, consuming, number, arrival = self._arrivals.popleft()
            if not isinstance(arrival, DejaQError):
                channel.hand_over(consuming, number, arrival)
            elif consuming.number == number and not channel.closed:
                raise arrival

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Have the loop call when something came."""
        assert self._file is not None, "it is connected first"
        loop.add_reader(self._file.fileno(), self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """The loop is not to call any more."""
        if self._file is not None:
            loop.remove_reader(self._file.fileno())

    def on_readable(self, connection: Any, loop: Any) -> None:
        """Hand over what came before; what comes meanwhile wakes the loop again."""
        if self._file is None or not self._file.hush():
            return
        with contextlib.suppress(TimeoutError):  # what came is not there any more
            self.drain_events(connection, 0)


def url_of(client: Any) -> str:
    """The URL of a connection, which kombu has taken apart if it is one of several."""
    host: str = client.hostname or "localhost"
    if "://" in host:
        return host
    key = f":{client.password}@" if client.password else ""
    port = f":{client.port}" if client.port else ""
    return f"{client.transport_cls if client.transport_cls == 'dejaqs' else 'dejaq'}://{key}{host}{port}"


def without_key(url: str) -> tuple[str, str | None]:
    """A broker's URL, and the API key that was given as its password.

    >>> without_key("dejaq://:secret@host:7464")
    ('dejaq://host:7464', 'secret')
    """
    scheme, separator, rest = url.partition("://")
    credentials, at, hosts = rest.rpartition("@")
    if not separator or urlsplit(url).scheme not in {"dejaq", "dejaqs"}:
        raise BadRequest("broker_url", "dejaq://host:port or dejaqs://host:port", url)
    key = unquote(credentials.rpartition(":")[2]) if at else None
    return f"{scheme}://{hosts.rstrip('/') or 'localhost'}", key or None


def tls_of(ssl: Any) -> dict[str, Any]:
    """What `broker_use_ssl` says, in DejaQ's words."""
    names = {"ca_certs": "ca", "certfile": "certificate", "keyfile": "key"}
    given = ssl if isinstance(ssl, dict) else {}
    tls = {ours: given[theirs] for theirs, ours in names.items() if given.get(theirs)}
    Tls(**tls)
    return tls
