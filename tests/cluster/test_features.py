"""Features that the rules do not try, on three brokers and on three processes of one machine.

Covered: through the client and over HTTP at any of them: SQS's and DOQ's calls, history of a
message, erasure, cron, subscriptions that end by themselves, letters to another topic, filters, a
purge.
Not covered: deaths (test_kill.py, tests/crash/test_processes_kill.py), Spark (tests/spark).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from dejaqueue import Client
from dejaqueue.errors import TopicUnknown, TryLater
from dev.services.service import Service
from tests.cluster.served import three_brokers
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]

TOPICS = 4
"""So many of a kind: not all are where one is asked."""
SQS = {"Content-Type": "application/x-amz-json-1.0"}


@dataclass
class Doors:
    """Where several brokers are asked.

    Attributes:
        url: of all of them.
        http_urls: of each.
    """

    url: str
    http_urls: list[str]


@contextmanager
def _processes(folder: Path) -> Iterator[Doors]:
    broker = BrokerProcess(folder / "data", folder / "log", server__processes=3, sqs__enabled=True)
    broker.start()
    try:
        with Client(broker.url) as client:
            found = [one["http_url"] for one in client.cluster()["nodes"]]
        yield Doors(broker.url, found)
    finally:
        broker.kill()


@contextmanager
def _brokers(folder: Path, request: pytest.FixtureRequest) -> Iterator[Doors]:
    postgresql: Service = request.getfixturevalue("postgresql")
    etcd: Service = request.getfixturevalue("etcd")
    more = {"sqs__enabled": True, "history__directory": str(folder / "history")}
    with three_brokers(folder, postgresql, etcd, 5_000, **more) as made:
        url = "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in made)
        yield Doors(url, [f"http://127.0.0.1:{broker.http_port}" for broker in made])


@pytest.fixture(scope="module", params=["brokers", "processes"])
def doors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp(str(request.param))
    with _processes(folder) if request.param == "processes" else _brokers(folder, request) as made:
        yield made


@pytest.fixture
def client(doors: Doors) -> Iterator[Client]:
    with Client(doors.url, retry_ms_max=60_000) as made:
        yield made


def _payloads(client: Client, topic: str) -> list[bytes]:
    """What is in a topic; nothing while that is made, or on its way."""
    try:
        found: list[bytes] = sorted(client.peek(topic).column("payload").to_pylist())
    except (TopicUnknown, TryLater):
        return []
    return found


def test_sqs_at_any_door(doors: Doors) -> None:
    def call(door: str, name: str, **body: Any) -> dict[str, Any]:
        headers = SQS | {"X-Amz-Target": f"AmazonSQS.{name}"}
        answer = httpx.post(f"{door}/sqs/", json=body, headers=headers, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    first, *others = doors.http_urls
    for number in range(TOPICS):
        url = call(first, "CreateQueue", QueueName=f"sqs{number}")["QueueUrl"]
        for door in doors.http_urls:
            call(door, "SendMessage", QueueUrl=url, MessageBody="x")
        for door in doors.http_urls:
            [got] = call(door, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)["Messages"]
            call(others[0], "DeleteMessage", QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
        assert "Messages" not in call(first, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=0)


def test_doq_at_any_door(doors: Doors) -> None:
    def call(door: str, method: str, path: str, **how: Any) -> dict[str, Any]:
        url = f"{door}/API/v1/queues{path}"
        answer = httpx.request(method, url, timeout=PATIENCE_SECONDS, **how)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    for number in range(TOPICS):
        name = f"doq{number}"
        call(doors.http_urls[0], "POST", "", json={"name": name, "type": "delayed"})
        for place, door in enumerate(doors.http_urls):
            body = {"content": str(place), "priority": 10, "group": "default"}
            assert call(door, "POST", f"/{name}/messages", json=body)["status"] == "ENQUEUED"
        found = [call(door, "GET", f"/{name}/messages?ack=true") for door in doors.http_urls]
        assert sorted(one["content"] for one in found) == ["0", "1", "2"]


def test_the_history_of_a_message(client: Client) -> None:
    client.create_topic("lives", history=True, partitions=3, spread=3)
    ids = [client.send("lives", str(number), key=f"k{number}") for number in range(6)]
    with client.consume("lives", max_messages=6) as messages:
        for message in messages:
            message.ack()

    def is_told() -> bool:
        kinds = [[one.change for one in client.history("lives", one).changes] for one in ids]
        return all(found[:1] == ["enqueued"] and "acked" in found for found in kinds)

    until(is_told, "six lives")
    assert is_told()


def test_an_erasure_at_any_door(client: Client) -> None:
    client.create_topic("erased", history=True, partitions=3, spread=3)
    ids = [client.send("erased", str(number), key=f"k{number}") for number in range(6)]
    with client.consume("erased", max_messages=6) as messages:
        for message in messages:
            message.ack()

    def lives() -> list[int]:
        """Which messages are told of to their ends."""
        told = [[one.change for one in client.history("erased", one).changes] for one in ids]
        return [number for number, found in enumerate(told) if "acked" in found]

    until(lambda: lives() == [*range(6)], "six lives")
    waits = client.send("erased", "waits", key="k1", delay=3_600)
    erased = client.erase("erased", keys=["k0", "k1"])
    assert (erased.ended, erased.held, erased.silent) == (1, 0, ())
    assert erased.found >= 3
    assert lives() == [2, 3, 4, 5]
    erased = client.erase("erased", ids=[ids[2], waits])
    # On a server its row went with what came before the others.
    assert (erased.found <= 1, erased.silent) == (True, ())
    assert lives() == [3, 4, 5]


def test_cron_fires_once_each_time(client: Client) -> None:
    for number in range(TOPICS):
        client.create_topic(f"cron{number}", kind="cron")
        client.cron(f"cron{number}").put("each", cron="* * * * * *", payload=b"tick")
    for number in range(TOPICS):
        firings = set()
        with client.consume(f"cron{number}", max_messages=3) as messages:
            for message in messages:
                firings.add(message.headers["dejaq-cron-firing"])
                message.ack()
        assert len(firings) == 3
        client.delete_topic(f"cron{number}")


@pytest.mark.parametrize("spread", [1, 3])
def test_a_subscription_that_nobody_consumes_ends(client: Client, spread: int) -> None:
    topic = f"ends{spread}"
    client.create_topic(topic, spread=spread)
    client.create_subscription(topic, "short", ephemeral_ms=1_000)
    until(lambda: not client.subscriptions(topic), "it has ended")
    assert "short" not in client.subscriptions(topic)


@pytest.mark.parametrize("spread", [1, 3])
def test_an_exclusive_subscription(client: Client, spread: int) -> None:
    topic = f"dealt{spread}"
    client.create_topic(topic, spread=spread, partitions=6)
    client.create_subscription(topic, "s", assignment="exclusive")

    def parts() -> list[int]:
        rows = client.assignments(f"{topic}@s")["partitions"]
        return sorted(Counter(row["next"] or row["consumer"] for row in rows).values())

    consume = partial(client.consume, topic, subscription="s")
    with consume(name="one"), consume(name="two"):
        until(lambda: parts() == [3, 3], "each has half of them")
        assert client.assignments(topic)["assignment"] == "shared"


def test_letters_go_to_any_topic(client: Client) -> None:
    client.create_topic("fails", max_attempts=1)
    for number in range(TOPICS):
        client.create_topic(f"repaired{number}")
        client.send("fails", str(number))
        with client.consume("fails", max_messages=1) as messages:
            for message in messages:
                message.nack(reason="no")
        until(lambda: len(_payloads(client, "fails.dead")) == 1, "a letter")
        client.redrive("fails.dead", to=f"repaired{number}")
        expected = [str(number).encode()]
        until(lambda: _payloads(client, f"repaired{number}") == expected, "repaired")  # noqa: B023
        assert _payloads(client, "fails.dead") == []


def test_filters_move_and_cancel_in_all_shards(client: Client) -> None:
    client.create_topic("chosen", partitions=3, spread=3)
    rows = [
        {"payload": str(n), "key": str(n), "delay": 3_600, "tags": ["odd"] * (n % 2)}
        for n in range(60)
    ]
    client.send_batch("chosen", rows)
    assert client.move_where("chosen", tags_any=["odd"], by=60) == 30
    assert client.cancel_where("chosen", tags_none=["odd"]) == 30
    assert client.stats("chosen").scheduled == 30
    assert client.purge("chosen") == 30
    assert client.stats("chosen").scheduled == 0
