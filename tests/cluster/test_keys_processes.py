"""Covers: API keys of several processes that divide a directory: made at one, followed by all.

Not covered: keys of brokers with JetStream beside each, forged ones (test_keys.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue import Client
from dejaqueue.errors import Forbidden, Unauthenticated
from tests.crash.broker_process import BrokerProcess
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
