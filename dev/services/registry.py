"""Which servers there are. A server's file is imported when it is asked for.

Room: dev.
"""

from __future__ import annotations

import importlib

from dev.services.service import Service

_CLASSES = {
    "postgresql": "dev.services.postgresql:Postgresql",
    "mariadb": "dev.services.mariadb:Mariadb",
    "etcd": "dev.services.etcd:Etcd",
    "nats": "dev.services.nats:Nats",
    "redis": "dev.services.redis:Redis",
    "zookeeper": "dev.services.zookeeper:ZooKeeper",
    "cassandra": "dev.services.cassandra:Cassandra",
    "versitygw": "dev.services.versitygw:Versitygw",
    "azurite": "dev.services.azurite:Azurite",
}
NAMES = tuple(_CLASSES)


def _class_of(name: str) -> type[Service]:
    module, _, class_name = _CLASSES[name].partition(":")
    found: type[Service] = getattr(importlib.import_module(module), class_name)
    return found


def missing(name: str) -> str | None:
    """What a server lacks here, in words; None if it can be started."""
    return _class_of(name).missing()


def start(name: str, **settings: str) -> Service:
    """Start a server and return when it answers.

    Args:
        settings: of the server, under its own names.

    Raises:
        ServiceFailed: with the end of its output.
    """
    return _class_of(name)(**settings).start()
