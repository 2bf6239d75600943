"""Large payloads at a cluster, and at processes that divide a directory.

Covered: three `dejaq serve` on one PostgreSQL and one etcd with one payload store; a topic in three
shards, and each broker asked by clients that know nothing of clusters, by Flight and HTTP; payloads
that are streamed at one broker and read at another; one broker is killed. The same with
`--processes 2`, of which one is killed.
Not covered: what the store deletes, and when (tests/rules/test_rule_22_payloads.py).
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue import Client, limits
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import DejaQError
from dejaqueue.schema.vouchers import is_voucher
from dev.services.service import Service
from tests.cluster.served import three_brokers
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of, is_gone
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]

LEASE_MS = 2_000
INLINE = 1_024
TOPIC = "large"
RETRY_MS = int(PATIENCE_SECONDS * 1_000)


def raw(broker: BrokerProcess) -> Client:
    """A client that knows nothing of clusters, at one broker."""
    return Client(transport=FlightTransport(broker.url), retry_ms_max=RETRY_MS)


def payload_of(number: int) -> bytes:
    return f"{number} ".encode() * 10_000


def streamed_of(number: int) -> bytes:
    return bytes([number]) * (limits.PART_BYTES + 1_000 + number)


def read_all(client: Client, count: int) -> list[bytes]:
    """Payloads of so many messages, each acked."""
    found: list[bytes] = []
    with client.consume(TOPIC, prefetch=2, max_messages=count, idle_ms=RETRY_MS) as messages:
        for message in messages:
            with message.open() as payload:
                found.append(payload.read())
            message.ack()
    return found


def send_to(broker: BrokerProcess, number: int) -> list[bytes]:
    """A large payload and a streamed one, at one broker; what was sent."""
    sent = [payload_of(number), streamed_of(number)]
    with raw(broker) as client:
        client.send(TOPIC, sent[0])
        client.send(TOPIC, io.BytesIO(sent[1]))
    return sent


def peeked(broker: BrokerProcess) -> list[bytes]:
    """Payloads that one broker shows by Flight, those that are streamed not among them."""
    with raw(broker) as client:
        shown: list[bytes] = client.peek(TOPIC).column("payload").to_pylist()
    return sorted(one for one in shown if not is_voucher(one))


def shown_by_http(broker: BrokerProcess) -> list[bytes]:
    """What it shows by HTTP: large payloads, and those that are streamed by their vouchers."""
    url = f"http://127.0.0.1:{broker.http_port}/v1/topics/{TOPIC}"
    with httpx.Client(timeout=PATIENCE_SECONDS) as http:
        messages = http.get(f"{url}/messages").raise_for_status().json()["messages"]
        found = [one["payload"].encode() for one in messages if "payload" in one]
        for one in messages:
            if "payload_bytes" in one:
                asked = {"voucher": one["payload_base64"]}
                found.append(http.get(f"{url}/payload", params=asked).raise_for_status().content)
    return sorted(found)


@pytest.fixture
def brokers(postgresql: Service, etcd: Service, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    settings = {
        "payloads__url": str(tmp_path / "payloads"),
        "payloads__inline_bytes_max": INLINE,
    }
    with three_brokers(tmp_path, postgresql, etcd, LEASE_MS, **settings) as made:
        yield made


def test_any_broker_takes_and_gives_large_payloads__one_is_killed(
    brokers: list[BrokerProcess],
) -> None:
    with Client(brokers[0].url) as client:
        client.create_topic(TOPIC, partitions=3, spread=3, max_payload_bytes=64 << 20)
    until(lambda: all(_shows(broker) for broker in brokers), "each broker knows the topic")
    sent = [one for number, broker in enumerate(brokers) for one in send_to(broker, number)]
    large = sorted(payload_of(number) for number in range(3))
    for broker in brokers:
        assert peeked(broker) == large
        assert shown_by_http(broker) == sorted(sent)
    brokers[1].kill()
    with Client(brokers[2].url, retry_ms_max=RETRY_MS) as client:
        sent.append(streamed_of(7))
        client.send(TOPIC, io.BytesIO(sent[-1]))
        assert sorted(read_all(client, 7)) == sorted(sent)


def _shows(broker: BrokerProcess) -> bool:
    try:
        peeked(broker)
    except DejaQError:
        return False
    return True


def test_processes_take_and_give_large_payloads__one_is_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        server__processes=2,
        payloads__url=str(tmp_path / "payloads"),
        payloads__inline_bytes_max=INLINE,
    )
    broker.start()
    try:
        with Client(broker.url, retry_ms_max=RETRY_MS) as client:
            client.create_topic(TOPIC, partitions=2, spread=2, max_payload_bytes=64 << 20)
            sent = [one for number in range(4) for one in send_to(broker, number)]
            assert shown_by_http(broker) == sorted(sent)
            victim = children_of(broker.pid)[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: is_gone(victim), "it has ended")
            sent += send_to(broker, 4)
            assert sorted(read_all(client, len(sent))) == sorted(sent)
    finally:
        broker.kill()
