"""Erasure through the doors: the command, HTTP, the audit log; leases, subscriptions, transactions.

Not here: that no file has anything (tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.access import audit
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus
from tests.crash.test_erasure_kill import files_with


@pytest.fixture
def client(tmp_path: Path) -> dejaqueue.Client:
    return dejaqueue.open(str(tmp_path / "data"))


def test_who_has_it_leased_loses_the_lease(client: dejaqueue.Client, tmp_path: Path) -> None:
    with client:
        client.create_topic("orders")
        client.send("orders", b"marker-x", key="k")
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                erased = client.erase("orders", keys=["k"])
                assert (erased.found, erased.ended, erased.held) == (1, 1, 0)
                assert files_with("marker-x", tmp_path / "data") == []
                assert message.ack(wait=True) is RowStatus.LEASE_LOST
        assert client.counts("orders")["leased"] == 0


def test_it_ends_in_every_subscription__and_is_not_replayed(
    client: dejaqueue.Client, tmp_path: Path
) -> None:
    with client:
        client.create_topic("orders", retention_ms=3_600_000)
        client.create_subscription("orders", "billing")
        client.send("orders", b"marker-done", key="k")
        client.send("orders", b"other", key="other")
        for subscription in ("", "billing"):
            with client.consume("orders", subscription=subscription, max_messages=2) as messages:
                for message in messages:
                    message.ack(wait=True)
        client.send("orders", b"marker-waits", key="k")
        erased = client.erase("orders", keys=["k"])
        assert (erased.found, erased.ended) == (2, 2)
        assert files_with("marker-", tmp_path / "data") == []
        assert client.seek("orders", to="beginning").replayed == 1


def test_what_is_in_an_open_transaction_is_held(client: dejaqueue.Client) -> None:
    with client:
        client.create_topic("orders")
        with client.transaction() as transaction:
            transaction.send("orders", b"x", key="k")
            assert client.erase("orders", keys=["k"]).held == 1
        assert client.erase("orders", keys=["k"]).ended == 1


def test_a_live_message_is_what_it_is_now(client: dejaqueue.Client) -> None:
    with client:
        client.create_topic("orders")
        client.send("orders", b"stays", key="a", group="g", delay=3_600)
        client.send("orders", b"goes", key="b", group="h", delay=3_600)
        client.move_where("orders", group="g", set_group="other")
        client.move_where("orders", group="h", set_group="g")
        assert client.erase("orders", group="g").ended == 1
        [left] = client.peek("orders").to_pylist()
        assert left["payload"] == b"stays"


def test_the_audit_log_says_what__without_the_key(
    client: dejaqueue.Client, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"topic": "orders", "keys": ["alice"], "group": None, "due_from": 7}
    facts = audit.facts("erase", body)
    assert facts["keys"][0].startswith("sha256:2bd806c97f0e00af1a1fc3328fa763a9")
    assert facts["due_from"] == 7
    answer = {"found": 1, "ended": 0, "bytes": 10, "next": None, "took_ms": 3}
    assert audit.facts_of_answer("erase", answer)["is_done"] is True
    with client, caplog.at_level(logging.INFO):
        assert "alice" not in caplog.text


def test_a_filter_that_selects_all_is_refused(client: dejaqueue.Client) -> None:
    with client:
        client.create_topic("orders")
        with pytest.raises(BadRequest):
            client.erase("orders")
