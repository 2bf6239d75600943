"""Covers: API keys of several processes that divide a directory: made at one, followed by all.

A key that is made, or revoked, over the shared addresses counts at each process when that is
answered, by HTTP and by Flight; one that hangs then keeps the answer for a second, not for ever.
Not covered: keys of brokers with JetStream beside each, forged ones (test_keys.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue import Client
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import Forbidden, Unauthenticated
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path / "data", tmp_path / "log", server__processes=3)
    made.start()
    yield made
    made.kill()


def doors(broker: BrokerProcess, key: str | None) -> list[str]:
    """The HTTP address of each process."""
    with Client(broker.url, api_key=key) as client:
        return [str(one["http_url"]) for one in client.cluster()["nodes"]]


def lets_in_by_flight(url: str, key: str) -> bool:
    transport = FlightTransport(url, key)
    try:
        transport.action("list_topics", {}).result(PATIENCE_SECONDS)
    except Unauthenticated:
        return False
    finally:
        transport.close()
    return True


def lets_in(door: str, key: str) -> bool:
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.get(f"{door}/v1/topics", headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code in {200, 401, 503}, answer.text
    return answer.status_code == 200


def test_a_key_is_followed_by_all_processes__made_revoked_and_after_a_restart(
    broker: BrokerProcess,
) -> None:
    others = doors(broker, None)
    assert len(others) == 3
    with Client(broker.url) as client:
        client.create_topic("orders")
        root = str(client.create_key("root", ["admin:*"])["api_key"])
    until(lambda: all(lets_in(door, root) for door in others), "all know the first key")
    assert not any(lets_in(door, "dejaq_nobody") for door in others)
    with Client(broker.url, api_key=root) as client:
        some = str(client.create_key("some", ["produce:orders"])["api_key"])
    until(lambda: all(lets_in(door, some) for door in others), "all know the second one")
    with Client(broker.url, api_key=some) as client:
        client.send("orders", "x")
        with pytest.raises(Forbidden):
            client.cancel("bills", ids=[1])
    assert broker.stop() == 0
    broker.start()
    others = doors(broker, root)
    assert [lets_in(door, key) for door in others for key in (root, some)] == [True] * 6
    with Client(broker.url, api_key=root) as client:
        assert {one["name"] for one in client.api_keys()} == {"root", "some"}
        client.revoke_key("some")
    until(lambda: not any(lets_in(door, some) for door in others), "none lets it in")
    with Client(broker.url, api_key=some, retry_ms_max=0) as client, pytest.raises(Unauthenticated):
        client.send("orders", "y")


def test_a_key_counts_at_every_process_when_it_is_answered__made_and_revoked(
    broker: BrokerProcess,
) -> None:
    with Client(broker.url) as client:
        root = str(client.create_key("root", ["admin:*"])["api_key"])
    with Client(broker.url, api_key=root) as client:
        nodes = client.cluster()["nodes"]
    shared = f"http://127.0.0.1:{broker.http_port}"
    ways: list[tuple[Callable[[str, str], bool], str]] = []
    ways += [(lets_in, str(one["http_url"])) for one in nodes]
    ways += [(lets_in_by_flight, str(one["url"])) for one in nodes]
    ways += [(lets_in, shared), (lets_in_by_flight, broker.url)]
    headers = {"authorization": f"Bearer {root}"}
    with Client(broker.url, api_key=root) as client, httpx.Client(headers=headers) as http:
        http.timeout = httpx.Timeout(PATIENCE_SECONDS)
        for number in range(24):
            name, by_http = f"k{number}", number % 2 == 0
            if by_http:
                wanted = {"name": name, "grants": ["consume:*"]}
                key = str(http.post(f"{shared}/v1/keys", json=wanted).json()["api_key"])
            else:
                key = str(client.create_key(name, ["consume:*"])["api_key"])
            ways = ways[1:] + ways[:1]  # the next one is asked first
            assert [by(door, key) for by, door in ways] == [True] * len(ways), number
            if by_http:
                assert http.delete(f"{shared}/v1/keys/{name}").status_code == 200
            else:
                client.revoke_key(name)
            ways = ways[1:] + ways[:1]
            assert [by(door, key) for by, door in ways] == [False] * len(ways), number


def test_a_process_that_hangs_keeps_no_change_of_keys(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        root = str(client.create_key("root", ["admin:*"])["api_key"])
    with Client(broker.url, api_key=root) as client:
        asked, *others = client.cluster()["nodes"]
    hanging = next(
        pid for pid in children_of(broker.pid) if f'"{others[0]["node"]}"' in environment_of(pid)
    )
    os.kill(hanging, signal.SIGSTOP)
    try:
        transport = FlightTransport(str(asked["url"]), root)
        wanted = {"name": "some", "grants": ["consume:*"]}
        some = str(transport.action("create_key", wanted).result(PATIENCE_SECONDS)["api_key"])
        transport.close()
        assert lets_in(str(asked["http_url"]), some)
    finally:
        os.kill(hanging, signal.SIGCONT)
    until(lambda: lets_in(str(others[0]["http_url"]), some), "it has heard of it")


def environment_of(pid: int) -> str:
    told = Path(f"/proc/{pid}/environ").read_text()
    return told.partition('"cluster.node": ')[2].partition(",")[0]
