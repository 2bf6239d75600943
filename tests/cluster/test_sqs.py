"""SQS's clients at a cluster: signed requests at any broker; a FIFO queue whose owner is killed.

Covered: three `dejaq serve` on one PostgreSQL and one etcd; boto3 at a broker that does not serve
the queue, and at each while the owner dies.
Not covered: one broker's FIFO queues (tests/unit/http/sqs/test_fifo.py), and what rules 4, 7 and 10
say of any death (test_kill.py).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from dejaqueue import Client
from dev.services.service import Service
from tests.cluster.served import three_brokers
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until
from tests.sqs.conftest import client, key_of

pytestmark = [pytest.mark.crash]

LEASE_MS = 2_000
GROUPS = ("g", "h")
QUEUE = "orders.fifo"
BEFORE, IN_ALL = 10, 30
RUN = 10
"""Messages of a group that one receive gives."""


class Shop:
    """Three brokers, and a client of SQS with a key at each."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.brokers = brokers
        self._urls = [f"http://127.0.0.1:{broker.http_port}" for broker in brokers]
        self.key = key_of(self._urls[0], "root", "admin:*")
        for url in self._urls:
            until(lambda url=url: self._knows(url), "each broker knows the key")  # type: ignore[misc]
        self.clients = [client(url, **self.key) for url in self._urls]

    def _knows(self, url: str) -> bool:
        headers = {"authorization": f"Bearer {self.key['aws_secret_access_key']}"}
        found = httpx.get(f"{url}/v1/topics", headers=headers, timeout=PATIENCE_SECONDS)
        return found.status_code == 200

    def close(self) -> None:
        """Close the clients."""
        for one in self.clients:
            one.close()

    def owner_index(self) -> int:
        """Which broker serves the queue."""
        for broker in self.brokers:
            if not broker.is_up:
                continue
            secret = self.key["aws_secret_access_key"]
            with Client(broker.url, api_key=secret) as asking:
                found = asking.cluster(QUEUE)
            urls = {node["node"]: node["url"] for node in found["nodes"]}
            url = urls.get(found["topics"][0]["node"])
            for index, other in enumerate(self.brokers):
                if other.url == url:
                    return index
        raise AssertionError(f"nobody serves {QUEUE}")

    def patiently(self, call: Callable[[Any], Any]) -> Any:
        """What the brokers answer, one after the other, until one does."""
        answers: list[Any] = []
        turns = itertools.cycle(self.clients)

        def is_answered() -> bool:
            try:
                answers.append(call(next(turns)))
            except ClientError as error:
                # Whatever is the caller's fault would be no better at the next one.
                assert error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500, error
                return False
            except BotoCoreError:  # the connection
                return False
            return True

        until(is_answered, "an answer")
        return answers[0]


@pytest.fixture
def shop(postgresql: Service, etcd: Service, tmp_path: Path) -> Iterator[Shop]:
    with three_brokers(tmp_path, postgresql, etcd, LEASE_MS, sqs__enabled=True) as brokers:
        shop = Shop(brokers)
        yield shop
        shop.close()


def send(sqs: Any, url: str, group: str, number: int) -> tuple[str, str]:
    """Send a message of a group; its MessageId and SequenceNumber."""
    answer = sqs.send_message(
        QueueUrl=url,
        MessageBody=str(number),
        MessageGroupId=group,
        MessageDeduplicationId=f"{group}-{number}",
    )
    return answer["MessageId"], answer["SequenceNumber"]


def take(sqs: Any, url: str) -> list[Any]:
    found: list[Any] = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["MessageGroupId"]
    ).get("Messages", [])
    return found


def delete(sqs: Any, url: str, receipt: str) -> None:
    sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)


def test_a_fifo_queue_keeps_order_and_deduplication__its_owner_is_killed(shop: Shop) -> None:
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "600"}
    made = shop.clients[0].create_queue(QueueName=QUEUE, Attributes=attributes)
    url = made["QueueUrl"]
    owner = shop.owner_index()
    others = [one for index, one in enumerate(shop.clients) if index != owner]
    # What is known there is signed for another broker's host, and passed on with its signature.
    sent = {
        (group, number): send(others[number % 2], url, group, number)
        for number in range(BEFORE)
        for group in GROUPS
    }
    assert send(shop.clients[owner], url, "g", 0) == sent["g", 0]
    held = [one for _ in GROUPS for one in take(others[0], url)]
    runs: dict[str, list[str]] = {}
    for one in held:
        runs.setdefault(one["Attributes"]["MessageGroupId"], []).append(one["Body"])
    assert runs == {group: [str(number) for number in range(RUN)] for group in GROUPS}
    assert take(others[1], url) == [], "each group has a run in flight"

    failures: list[BaseException] = []

    def send_the_rest(group: str) -> None:
        try:
            for number in range(BEFORE, IN_ALL):
                place = group, number
                sent[place] = shop.patiently(lambda sqs, at=place: send(sqs, url, *at))  # type: ignore[misc]
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=send_the_rest, args=(group,)) for group in GROUPS]
    for thread in threads:
        thread.start()
    until(lambda: len(sent) > 2 * BEFORE + 4, "messages on their way")
    shop.brokers[owner].kill()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failures == []
    assert shop.owner_index() != owner

    for place, answer in sent.items():  # each for the second time, at one who has not seen it
        assert shop.patiently(lambda sqs, at=place: send(sqs, url, *at)) == answer  # type: ignore[misc]
    assert shop.patiently(lambda sqs: take(sqs, url)) == [], "what was in flight still is"
    got: dict[str, list[int]] = {group: [] for group in GROUPS}
    waiting = held
    while waiting:
        for message in waiting:
            got[message["Attributes"]["MessageGroupId"]].append(int(message["Body"]))
            shop.patiently(partial(delete, url=url, receipt=message["ReceiptHandle"]))
        waiting = shop.patiently(lambda sqs: take(sqs, url))
    assert got == {group: list(range(IN_ALL)) for group in GROUPS}
