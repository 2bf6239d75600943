"""Every rule is tried on memory and on segment files, on three brokers and on three processes.

The last two cost more: the first test of each file runs on both everywhere, and with
DEJAQ_RELIABILITY=all (`make reliability`) all tests do but those of the marks `one_broker` and
`one_process`, which say why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rules.broker_fixture import BrokerFixture
from tests.rules.cluster_fixture import ClusterFixture, Topology
from tests.rules.three_brokers import ThreeBrokers
from tests.rules.three_processes import ThreeProcesses

MakeBroker = Callable[..., BrokerFixture]
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
MAKERS: dict[str, Callable[[dict[str, int]], Topology]] = {
    "brokers": ThreeBrokers,
    "processes": ThreeProcesses,
}
SEVERAL = tuple(MAKERS)
FIXTURES = {"make_broker": ("memory", "segments"), "on_files": ("segments",)}
SILENCE = {"consumer_silence_ms_max": 1_000_000_000}

_chosen: dict[tuple[str, str], str] = {}
"""(file, topology) → the test that is to run on it where not all do."""


def _runs(metafunc: pytest.Metafunc, fixture: str, topology: str) -> bool:
    if metafunc.definition.get_closest_marker("one_broker"):
        return False
    if topology == "processes" and metafunc.definition.get_closest_marker("one_process"):
        return False
    place = metafunc.module.__name__, topology
    return (
        ALL or _chosen.setdefault(place, metafunc.function.__name__) == metafunc.function.__name__
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test the topologies that it is to run on."""
    for name, topologies in FIXTURES.items():
        if name in metafunc.fixturenames:
            several = [_param(one) for one in SEVERAL if _runs(metafunc, name, one)]
            metafunc.parametrize(name, [*topologies, *several], indirect=True)


def _param(topology: str) -> Any:
    """Real processes are left out where only what is quick is run."""
    marks = [pytest.mark.crash] if topology == "processes" else []
    return pytest.param(topology, marks=marks)


class Clusters:
    """Clusters that tests use one after the other, by the settings of their brokers."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Topology] = {}

    def of(self, kind: str, dispatch: dict[str, int]) -> Topology:
        """One without topics."""
        place = kind, repr(sorted(dispatch.items()))
        if place not in self._made:
            self._made[place] = MAKERS[kind](SILENCE | dispatch)
        return self._made[place]

    def drop(self, topology: Topology) -> None:
        """One that a test has broken is not used again."""
        self._made = {place: one for place, one in self._made.items() if one is not topology}
        topology.stop()

    def stop(self) -> None:
        """End all of them."""
        for topology in self._made.values():
            topology.stop()


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    made = Clusters()
    yield made
    made.stop()


def _making(request: pytest.FixtureRequest, path: Path, kind: str) -> Iterator[MakeBroker]:
    made: list[BrokerFixture] = []

    def make(**topic: Any) -> BrokerFixture:
        fixture: BrokerFixture
        if kind in SEVERAL:
            clusters: Clusters = request.getfixturevalue("clusters")
            fixture = ClusterFixture(clusters.of(kind, topic.pop("dispatch", {})), **topic)
        else:
            fixture = BrokerFixture(None if kind == "memory" else path, **topic)
        made.append(fixture)
        return fixture

    with pytest.MonkeyPatch.context() as patch:
        # A pause by a clock that stands still would not end.
        patch.setattr("dejaqueue.access.quotas.CLOSING_PAUSE_MS", 0)
        yield make
        for fixture in made:
            fixture.stop()


@pytest.fixture
def make_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBroker]:
    """Makes a broker, or several, with the topic "t"."""
    yield from _making(request, tmp_path / "journal", _kind(request, "memory"))


def _kind(request: pytest.FixtureRequest, usual: str) -> str:
    """What a test is to run on; tests of other folders that use these fixtures have the usual."""
    kind: str = getattr(request, "param", usual)
    return kind


@pytest.fixture
def on_files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBroker]:
    """The same, for rules that need a restart: of a cluster, that of whoever serves the topic."""
    yield from _making(request, tmp_path / "journal", _kind(request, "segments"))
