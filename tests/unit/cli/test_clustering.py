"""Where a broker stands among others, as `dejaq serve` has it. Real clusters: tests/cluster."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.cli import clustering as module
from dejaqueue.cli.clustering import ClusterSeat, coordinator_url
from dejaqueue.cluster import embedded
from dejaqueue.coordinator import registry
from dejaqueue.errors import Unavailable
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings, ServerSettings

STOPS = (signal.SIGUSR2,)


@pytest.fixture(autouse=True)
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The signal to stop waits until somebody asks for it, as in `dejaq serve`."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.001)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    yield
    while signal.sigtimedwait(STOPS, 0):
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


class Answers:
    """Servers that answer when they have been asked so often."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked <= self.left:
            raise Unavailable("not yet")


def settings(**cluster: Any) -> BrokerSettings:
    return BrokerSettings(
        journal=JournalSettings(url="memory:"),
        server=ServerSettings(host="10.0.0.1"),
        cluster=ClusterSettings(**cluster),
    )


def waiting() -> ClusterSeat:
    """One that knows which signals stop it."""
    seat = ClusterSeat(settings())
    assert seat.prepare(STOPS)
    return seat


def test_servers_are_asked_until_they_answer__and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "dejaqueue.serve")
    answers = Answers(3)
    assert waiting()._comes_about(answers)
    assert answers.asked == 4
    assert caplog.text.count("waiting for the servers of the cluster: not yet") == 1


def test_a_signal_ends_the_waiting() -> None:
    answers = Answers(1_000_000)
    signal.pthread_kill(threading.get_ident(), STOPS[0])
    assert not waiting()._comes_about(answers)
    assert answers.asked == 1


def test_what_is_wrong_is_not_waited_for() -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        waiting()._comes_about(wrong)


FLIGHT = cast(Any, SimpleNamespace(port=1, drop=None))


def test_a_broker_that_is_alone_starts_nothing() -> None:
    given = settings()
    seat = ClusterSeat(given)
    assert seat.prepare(STOPS)
    assert seat.node is None
    assert seat.beside(given) is seat.settings is given
    assert seat.join(cast(Broker, None), FLIGHT, 2, tls=False)
    seat.reload_files()
    seat.leave()
    seat.close()


class Node:
    """Notes what it is told."""

    on_gone = disk = care = None

    def __init__(self, after: int = 0) -> None:
        self.told: list[tuple[str, ...]] = []
        self.answers = Answers(after)

    def start(self, broker: Any, url: str, http_url: str) -> None:
        self.answers()
        self.told.append(("start", url, http_url))

    def stop(self) -> None:
        self.told.append(("stop",))


@pytest.mark.parametrize(
    ("advertise", "tls", "told"),
    [
        ("", False, ("start", "dejaq://10.0.0.1:1", "http://10.0.0.1:2")),
        ("a.example", True, ("start", "dejaqs://a.example:1", "https://a.example:2")),
    ],
)
def test_others_are_told_where_this_broker_is(
    advertise: str, tls: bool, told: tuple[str, ...]
) -> None:
    seat = ClusterSeat(settings(advertise=advertise))
    seat.node = cast(Any, Node())
    broker = SimpleNamespace(store=None)
    seat.join(cast(Broker, broker), FLIGHT, 2, tls=tls)
    seat.leave()
    assert cast(Any, seat.node).told == [told, ("stop",)]


def test_one_of_several_starts_when_its_servers_answer__one_alone_says_that_they_do_not() -> None:
    several, alone = waiting(), waiting()
    several.node = cast(Any, Node())
    broker = SimpleNamespace(start=Answers(2))
    assert several.start(cast(Broker, broker))
    assert broker.start.asked == 3
    with pytest.raises(Unavailable, match="not yet"):
        alone.start(cast(Broker, SimpleNamespace(start=Answers(1))))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_who_waits_for_a_place_among_others_gets_it__or_is_stopped(is_stopped: bool) -> None:
    seat, node = waiting(), Node(after=1_000_000 if is_stopped else 2)
    seat.node = cast(Any, node)
    if is_stopped:
        signal.pthread_kill(threading.get_ident(), STOPS[0])
    broker = cast(Broker, SimpleNamespace(store=None))
    assert seat.join(broker, FLIGHT, 2, tls=False) is not is_stopped
    seat.leave()
    assert [one[0] for one in node.told] == (["stop"] if is_stopped else ["start", "stop"])


def test_who_waits_for_the_coordinator_can_be_stopped__and_has_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(url: str) -> None:
        raise Unavailable(f"{url} is silent")

    monkeypatch.setattr(registry, "open_coordinator", silent)
    seat = ClusterSeat(settings(coordinator="etcd://h"))
    signal.pthread_kill(threading.get_ident(), STOPS[0])
    assert not seat.prepare(STOPS)
    assert seat.node is None


class Server:
    """A server beside the broker."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: self.told.append(name)

    def wait_until_ready(self, ms: int) -> None:
        raise Unavailable("no majority")


def test_who_is_stopped_while_it_waits_for_the_other_servers_ends_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "warn_if_plain", lambda settings: None)
    seat = ClusterSeat(settings())
    server = Server()
    seat._server = cast(Any, server)
    signal.pthread_kill(threading.get_ident(), STOPS[0])
    assert not seat.prepare(STOPS)
    assert server.told == ["start", "stop"]
    seat.reload_files()
    assert server.told[-1] == "reload_files"


def test_facts_may_be_where_the_journals_are() -> None:
    journal = JournalSettings(url="s3://bucket/queues?between_ms=50")
    for said, expected in (
        ("journal", "s3://bucket/queues?between_ms=50"),
        ("etcd://host:2379", "etcd://host:2379"),
        ("", ""),
    ):
        settings = BrokerSettings(journal=journal, cluster=ClusterSettings(coordinator=said))
        assert coordinator_url(settings) == expected
