"""Brokers that hear nothing of API keys from the coordinator know a change when it is answered.

Three brokers in this process, with ports; what the coordinator would say to them is left out, so
that being told by the broker that changed the keys is the only way.
Not covered: processes, and one that hangs (test_keys_processes.py); what they hear from the
coordinator (test_keys.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.cluster.shared_keys import SharedKeys
from dejaqueue.errors import Unauthenticated
from tests.patience import PATIENCE_SECONDS, until
from tests.rules.three_brokers import ThreeBrokers


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Where the brokers are."""

    def only_confirm(keys: SharedKeys) -> None:
        keys._confirm(keys._clock.now_us())

    monkeypatch.setattr(SharedKeys, "refresh", only_confirm)
    three = ThreeBrokers({})
    yield [f"dejaq://127.0.0.1:{proxy.port}" for proxy in three._proxies.values()]
    three.stop()


def ask(url: str, action: str, api_key: str | None, **body: object) -> dict[str, object]:
    transport = FlightTransport(url, api_key)
    try:
        return transport.action(action, body).result(PATIENCE_SECONDS)
    finally:
        transport.close()


def lets_in(url: str, key: str | None) -> bool:
    try:
        ask(url, "list_topics", key)
    except Unauthenticated:
        return False
    return True


def test_a_change_of_keys_is_known_to_all_when_it_is_answered(urls: list[str]) -> None:
    until(lambda: all(lets_in(url, None) for url in urls), "all serve")
    root = str(ask(urls[0], "create_key", None, name="root", grants=["admin:*"])["api_key"])
    assert [lets_in(url, None) for url in urls] == [False] * 3
    assert [lets_in(url, root) for url in urls] == [True] * 3
    for number, url in enumerate(urls):
        made = ask(url, "create_key", root, name=f"k{number}", grants=["consume:*"])
        key = str(made["api_key"])
        assert [lets_in(one, key) for one in urls] == [True] * 3
        ask(urls[number - 1], "revoke_key", root, key=f"k{number}")
        assert [lets_in(one, key) for one in urls] == [False] * 3
