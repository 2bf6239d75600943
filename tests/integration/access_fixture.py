"""A broker behind both servers, with a key for each role on a topic, and keys that are no good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from dejaqueue.access.gate import Gate
from dejaqueue.access.roles import OWNABLE, Role
from dejaqueue.access.tls import ServerTls
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicExists
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.app import build_app
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic, TopicKind
from dejaqueue.settings import BrokerSettings, JournalSettings

MINE, THEIRS, CRON = "mine", "theirs", "mine.cron"


@dataclass
class Site:
    """A broker that is reached in both ways.

    Attributes:
        keys: text of each caller's key; None = none is sent.
    """

    broker: Broker
    flight: FlightServer
    http: HttpServer
    keys: dict[str, str | None] = field(default_factory=dict)

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http.port}"


@contextmanager
def running(tls: ServerTls | None = None, **settings: Any) -> Iterator[Site]:
    """A broker without keys. Of its settings some groups may be others."""
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:"), **settings))
    broker.start()
    gate = Gate(broker.keys)
    flight = FlightServer(broker, "127.0.0.1", 0, gate=gate, tls=tls)
    http = HttpServer(Service(broker, gate, lambda: True), "127.0.0.1", 0, tls=tls)
    flight.start()
    http.start()
    try:
        yield Site(broker, flight, http)
    finally:
        flight.stop()
        broker.stop()
        http.stop()


def give_keys(site: Site) -> None:
    """A key for each role on `mine` and on `theirs`, an admin's, and such as are no good."""
    make = site.broker.keys.create
    root = make("root", ["admin:*"])[1]
    site.keys = {"root": root, "none": None, "unknown": f"dq_{'0' * 12}_{'0' * 64}"}
    site.keys["wrong secret"] = root[:-4] + "zzzz"
    for role in Role:
        site.keys[f"{role.value} mine"] = make(f"{role.value}.m", [f"{role.value}:{MINE}*"])[1]
        site.keys[f"{role.value} theirs"] = make(f"{role.value}.t", [f"{role.value}:{THEIRS}"])[1]
    for role in OWNABLE:
        grants = [f"{role.value}:own:{MINE}*"]
        site.keys[f"{role.value}.own mine"] = make(f"{role.value}.o", grants)[1]
    revoked, site.keys["revoked"] = make("revoked", ["admin:*"])
    site.broker.keys.revoke(revoked.id)


def make_topics(broker: Broker) -> None:
    """The topics that calls are about."""
    for topic in (Topic(MINE), Topic(THEIRS), Topic(CRON, kind=TopicKind.CRON)):
        with suppress(TopicExists):  # a call before has changed its settings
            broker.create_topic(topic)


__all__ = ["CRON", "MINE", "THEIRS", "Site", "build_app", "give_keys", "make_topics", "running"]
