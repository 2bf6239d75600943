"""A broker, and each of the clients in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.flight.server import FlightServer
from tests.clients.drivers import Driver, Drivers
from tests.clients.places import Place, Processes, brokers_on_redis
from tests.integration.access_fixture import Site, running

LANGUAGES = ("go", "java")
WAYS = {
    "go": ("go", False),
    "go-by-flight": ("go", True),
    "java": ("java", False),
    "java-by-flight": ("java", True),
}
"""A language, and whether its client is told to take no lane."""


@pytest.fixture
def site() -> Iterator[Site]:
    """A broker without topics, by Flight and HTTP: it has lanes."""
    with running() as site:
        yield site


@pytest.fixture
def server(site: Site) -> FlightServer:
    """By Flight."""
    return site.flight


@pytest.fixture
def ours(server: FlightServer) -> Iterator[Client]:
    """Our own client of the same broker: what the other one did is looked at by it."""
    with Client(server.url) as client:
        yield client


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def way(request: pytest.FixtureRequest) -> tuple[str, bool]:
    language, flight_only = request.param
    return str(language), bool(flight_only)


@pytest.fixture
def alone(way: tuple[str, bool], site: Site, tmp_path: Path) -> Iterator[Driver]:
    """The client, not connected. It ends before the broker does."""
    language, flight_only = way
    driver = Driver(language, tmp_path / "client.log", flight_only=flight_only)
    yield driver
    driver.end()


@pytest.fixture
def client(alone: Driver, server: FlightServer) -> Driver:
    """The client, connected to the broker, which has the topic `t`."""
    alone.call("connect", url=server.url)
    alone.call("create_topic", topic="t")
    return alone


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Drivers]]:
    """A process for each language."""
    folder, made = tmp_path_factory.mktemp("programs"), dict[str, Drivers]()
    try:
        for language in LANGUAGES:
            made[language] = Drivers(language, folder / f"{language}.log")
        yield made
    finally:
        for program in made.values():
            program.end()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Three brokers of a cluster, on Redis."""
    yield from brokers_on_redis(tmp_path_factory.mktemp("brokers"))


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One broker in several processes."""
    with Processes(tmp_path_factory.mktemp("processes")) as place:
        yield place
