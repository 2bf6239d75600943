"""A change of API keys is told to all other brokers of the cluster, which keep it for a second.

Not covered: processes that are told (tests/cluster/test_keys_processes.py); what a change is
(tests/unit/access/test_administration.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.senders import Requester
from dejaqueue.broker.calls import api_keys
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

NEAR = Requester(is_near=True)
ROOT = {"name": "root", "grants": ["admin:*"]}
NODES = [
    {"node": "a", "url": "dejaq://a"},
    {"node": "b", "url": "dejaq://b"},
    {"node": "c", "url": "dejaq://c"},
    {"node": "starting", "url": ""},
]


class Others:
    """Brokers that answer, or do not; what they were asked, and whether the key was there then."""

    def __init__(self, documents: InMemory, silent: str = "") -> None:
        self._documents, self._silent = documents, silent
        self.asked: list[tuple[str, str]] = []
        self.found: list[bool] = []

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert body == {}
        self.asked.append((url, action))
        self.found.append(self._documents.load_document("keys") is not None)
        answer: Future[dict[str, Any]] = Future()
        if url == "dejaq://b":
            answer.set_exception(Unavailable("it is stopping"))
        elif url != self._silent:
            answer.set_result({})
        return answer


def broker_of(silent: str = "", *, alone: bool = False) -> tuple[BrokerPort, Others]:
    documents = InMemory()
    others = Others(documents, silent)
    made = SimpleNamespace(
        keys=KeyRing(VirtualClock(), documents),
        peers=None if alone else others,
        cluster=lambda: {"node": "a", "nodes": NODES},
    )
    return cast(BrokerPort, made), others


def test_all_others_are_told_when_it_is_durable__of_keys_made_and_revoked() -> None:
    broker, others = broker_of()
    assert "api_key" in api_keys.change(broker, "create_key", ROOT, NEAR)
    told = [("dejaq://b", "read_keys"), ("dejaq://c", "read_keys")]
    assert others.asked == told
    assert others.found == [True, True]
    api_keys.change(broker, "revoke_key", {"key": "root", "force": True}, NEAR)
    assert others.asked == told * 2


def test_nobody_is_told_of_what_was_refused__or_where_there_is_nobody() -> None:
    broker, others = broker_of()
    api_keys.change(broker, "create_key", ROOT, NEAR)
    others.asked.clear()
    with pytest.raises(Refused):
        api_keys.change(broker, "revoke_key", {"key": "root"}, NEAR)
    assert others.asked == []
    alone, _ = broker_of(alone=True)
    assert "api_key" in api_keys.change(alone, "create_key", ROOT, NEAR)


def test_who_is_silent_keeps_the_answer_no_longer_than_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_keys, "PEER_SECONDS_MAX", 0.01)
    broker, others = broker_of("dejaq://c")
    assert "api_key" in api_keys.change(broker, "create_key", ROOT, NEAR)
    assert len(others.asked) == 2


def test_a_cluster_that_cannot_be_asked_changes_nothing_about_what_was_done() -> None:
    broker, _ = broker_of()

    def away() -> dict[str, Any]:
        raise Unavailable("the broker is stopping")

    monkey = cast(Any, broker)
    monkey.cluster = away
    assert "api_key" in api_keys.change(broker, "create_key", ROOT, NEAR)


def test_who_is_told_knows_what_was_stored() -> None:
    documents, clock = InMemory(), VirtualClock()
    one, other = KeyRing(clock, documents), KeyRing(clock, documents)
    _, text = one.create("root", ["admin:*"])
    api_keys.read(cast(BrokerPort, SimpleNamespace(keys=other)))
    assert other.find(text).name == "root"
