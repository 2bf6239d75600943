"""Three real brokers of a cluster on servers that other tests use, too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from dejaqueue import Client
from dev.services.service import Service
from tests.crash.broker_process import BrokerProcess


@contextmanager
def three_brokers(
    folder: Path, postgresql: Service, etcd: Service, lease_ms: int, **settings: object
) -> Iterator[list[BrokerProcess]]:
    """`dejaq serve` three times on a schema and a namespace of their own; killed at the end."""
    with brokers_to_start(folder, postgresql, etcd, lease_ms, "abc", **settings) as made:
        for broker in made:
            broker.start()
        yield made


@contextmanager
def brokers_to_start(
    folder: Path, postgresql: Service, etcd: Service, lease_ms: int, names: str, **settings: object
) -> Iterator[list[BrokerProcess]]:
    """Brokers of one cluster by these letters, of which none runs; killed at the end.

    With the schema of an earlier test they would find its topics, its nodes and its API keys.
    """
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    journal = f"{postgresql.url}?options=-csearch_path%3D{name}"
    places = {"cluster__coordinator": f"{etcd.url}/{name}", "cluster__lease_ms": lease_ms}
    with brokers_at(folder, journal, names, **places, **settings) as made:
        yield made


@contextmanager
def brokers_at(
    folder: Path, journal: str, names: str, **settings: object
) -> Iterator[list[BrokerProcess]]:
    """Brokers of one cluster by these letters, of which none runs; killed at the end.

    Args:
        journal: URL of the server that keeps their journals.
    """
    made = [
        BrokerProcess(journal, folder / f"{node}.log", cluster__node=node, **settings)
        for node in names
    ]
    try:
        yield made
    finally:
        for broker in made:
            broker.kill()


def members(broker: BrokerProcess) -> dict[str, str]:
    """The brokers that one of them knows, and of which version each is."""
    with Client(broker.url) as client:
        return {one["node"]: one["version"] for one in client.cluster()["nodes"]}
