"""Covers: the clients where a topic is served elsewhere than by the broker that they were told of:
by another broker of a cluster, by three of them in shards, by one of several processes; while
brokers leave and die. Our own client passes each test first.

Not covered: what holds on one broker (test_conformance.py, test_reconnects.py); our own client in
networks that fail in other ways (tests/chaos).
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import TryLater
from tests.clients.conftest import LANGUAGES
from tests.clients.drivers import ClientError, Driver
from tests.clients.own_driver import OwnDriver
from tests.clients.places import BrokersOnRedis, Place
from tests.patience import until

pytestmark = [pytest.mark.crash]

Make = Callable[..., Driver | OwnDriver]

RETRY_MS = 120_000
OWN = "own"
PLACES = ["brokers", "processes"]
SPREAD = 3
FLOOD_BATCHES = 40
FLOOD = 20 * FLOOD_BATCHES
LATER_MS = 3_600_000
LEASE_MS = 3_000


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Make]:
    """Makes clients; they end before the brokers do."""
    with ExitStack() as ends:

        def make(language: str, *, flight_only: bool = False) -> Driver | OwnDriver:
            driver: Driver | OwnDriver = OwnDriver()
            if language != OWN:
                log = tmp_path / f"{len(list(tmp_path.iterdir()))}.log"
                driver = Driver(language, log, flight_only=flight_only)
            ends.callback(driver.end)
            return driver

        yield make


def rows_of(numbers: range, **fields: Any) -> list[dict[str, Any]]:
    payloads = [b64encode(b"%d" % number).decode() for number in numbers]
    return [
        {"payload": payload, "key": f"k{number}"} | fields
        for number, payload in zip(numbers, payloads, strict=True)
    ]


def topic_of(place: Place, name: str, spread: int, *, at_entry: bool = False) -> str:
    """A new topic: in shards of several brokers, or of that where clients begin, or of another."""
    numbers = itertools.count()
    found = ""

    def is_like_this() -> bool:
        nonlocal found
        found = f"{name}-{spread}-{at_entry}-{next(numbers)}"
        with Client(place.url, retry_ms_max=RETRY_MS) as client:
            client.create_topic(found, spread=spread, partitions=spread)
        until(lambda: all(place.owners(found)), "somebody serves it")
        owners = set(place.owners(found))
        return len(owners) >= 3 if spread > 1 else (place.entry in owners) == at_entry

    until(is_like_this, "a topic like this")
    return found


class Taken:
    """What a consumer got, and what it was told of its acks."""

    def __init__(self, client: Driver | OwnDriver) -> None:
        self._client = client
        self.got: Counter[int] = Counter()
        self.acked: Counter[int] = Counter()
        self.unknown: set[int] = set()
        self.lost: set[int] = set()

    def take(self, count: int) -> None:
        """Take so many different messages, and ack them."""

        def is_enough() -> bool:
            self._take_some()
            return len(self.got) >= count

        until(is_enough, "all have come")

    def take_rest(self, place: Place, topic: str) -> None:
        """Take what comes again, until nothing is left."""

        def is_empty() -> bool:
            self._take_some()
            with suppress(TryLater), Client(place.url, retry_ms_max=RETRY_MS) as client:
                return len(client.peek(topic, limit=10)) == 0
            return False  # whom it asked goes away just then

        until(is_empty, "all is acked")

    def _take_some(self) -> None:
        rows = self._client.receive(40, wait_ms=100)
        if not rows:
            return
        numbers = {row["id"]: int(row["payload"]) for row in rows}
        self.got.update(numbers.values())
        try:
            statuses = self._client.call("ack", ids=list(numbers))["statuses"]
        except ClientError as error:
            # Whether it was carried out is unknown. Nothing else may go wrong.
            assert error.number == 32, error
            self.unknown |= set(numbers.values())
            return
        for number, status in zip(numbers.values(), statuses, strict=True):
            if status == "OK":
                self.acked[number] += 1
            else:
                assert status == "LEASE_LOST", (number, status)
                self.lost.add(number)

    def check(self, numbers: range) -> None:
        """All were there, and each was acked once, or nobody knows."""
        assert set(self.got) == set(numbers)
        assert {number for number, count in self.acked.items() if count > 1} == set()
        assert set(numbers) - set(self.acked) <= self.unknown | self.lost


@pytest.mark.parametrize("spread", [1, SPREAD], ids=["another broker", "in shards"])
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("language", [OWN, *LANGUAGES])
def test_what_any_broker_is_given_is_there_once(
    request: pytest.FixtureRequest, made: Make, where: str, spread: int, language: str
) -> None:
    place: Place = request.getfixturevalue(where)
    place.come_back()
    topic = topic_of(place, f"calm-{language}", spread)
    client = made(language)
    for flight_only in (False, True):
        client.call("connect", url=place.entry_url, retry_ms=RETRY_MS, flight_only=flight_only)
        check_all_calls(client, place, topic)
        client.call("close")


def check_all_calls(client: Driver | OwnDriver, place: Place, topic: str) -> None:
    ids = []
    for first in range(0, 60, 20):
        answer = client.call("send", topic=topic, rows=rows_of(range(first, first + 20)))
        assert answer["statuses"] == ["OK"] * 20
        ids += answer["ids"]
    for number in range(60, 80):
        answer = client.call("send", topic=topic, rows=rows_of(range(number, number + 1)))
        assert answer["statuses"] == ["OK"]
        ids += answer["ids"]
    answers = client.call("send_each", topic=topic, rows=rows_of(range(80, 120)))["answers"]
    assert [one["statuses"] for one in answers] == [["OK"]] * 40
    ids += [one["ids"][0] for one in answers]
    assert len(set(ids)) == 120
    later = rows_of(range(1_000, 1_012), due_ms=SystemClock().now_ms() + LATER_MS)
    late = client.call("send", topic=topic, rows=later)["ids"]
    partitions = {int(one) >> 47 for one in ids + late}
    assert len(partitions) == len(place.owners(topic))
    keys = [row["key"] for row in later[6:]]
    assert client.call("cancel", topic=topic, ids=late[:6])["statuses"] == ["OK"] * 6
    assert client.call("cancel", topic=topic, keys=keys)["statuses"] == ["OK"] * 6
    assert client.call("cancel", topic=topic, ids=late)["statuses"] == ["NOT_FOUND"] * 12
    taken = Taken(client)
    client.call("consume", topic=topic, credit=50)
    taken.take(120)
    taken.check(range(120))
    # A slot may change hands, with a broker that came back just now: then an ack is not known.
    assert taken.lost == set()
    assert client.receive(1, wait_ms=50) == []
    taken.take_rest(place, topic)
    client.call("close_consumer")


class Pair:
    """A client that sends to a topic, and one that takes from it, in two processes."""

    def __init__(self, clients: tuple[Driver | OwnDriver, Driver | OwnDriver], topic: str) -> None:
        self._sender, self._consumer = clients
        self._topic = topic
        self.taken = Taken(self._consumer)

    def begin(self, url: str) -> None:
        for client in (self._sender, self._consumer):
            client.call("connect", url=url, retry_ms=RETRY_MS)
        self._consumer.call("consume", topic=self._topic, credit=100, lease_ms=LEASE_MS)
        flood = {"batches": FLOOD_BATCHES, "wait_ms": 20, "mixed": True, "keyed": True}
        self._sender.begin("flood", topic=self._topic, **flood)

    def check(self, place: Place) -> set[int]:
        """Take all there is: each was acked once. What was there."""
        self.taken.take(FLOOD)
        assert self._sender.answer()["sent"] == FLOOD
        self.taken.take_rest(place, self._topic)
        self.taken.check(range(FLOOD))
        self._consumer.call("close_consumer")
        return set(self.taken.got)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("language", [OWN, *LANGUAGES])
def test_clients_go_on_by_themselves_while_brokers_leave_and_die(
    request: pytest.FixtureRequest, made: Make, where: str, language: str
) -> None:
    place: Place = request.getfixturevalue(where)
    place.come_back()
    pairs = []
    for flight_only, spread, at_entry in (
        (False, 1, bool(place.entry)),
        (True, 1, False),
        (False, SPREAD, False),
    ):
        clients = (made(language, flight_only=flight_only), made(language, flight_only=flight_only))
        topic = topic_of(place, f"rough-{language}-{flight_only}", spread, at_entry=at_entry)
        pairs.append(Pair(clients, topic))
    for pair in pairs:
        pair.begin(place.url)
    if isinstance(place, BrokersOnRedis):
        until(lambda: place.lanes() >= 2, "one sends and one takes by a lane")
    with ThreadPoolExecutor(len(pairs)) as taking:
        checking = [taking.submit(pair.check, place) for pair in pairs]

        def at_part(part: int) -> None:
            least = part * FLOOD // 4
            until(
                lambda: (
                    all(len(pair.taken.got) >= least for pair in pairs)
                    or any(check.done() for check in checking)
                ),
                "they get on",
            )

        at_part(1)
        place.die(place.nodes[1])
        at_part(2)
        place.leave(place.nodes[0])
        assert [check.result() for check in checking] == [set(range(FLOOD))] * len(pairs)
