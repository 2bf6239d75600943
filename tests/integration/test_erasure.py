"""Erasure through the doors: the command, HTTP, the audit log; leases, subscriptions, transactions.

Not here: that no file has anything (tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dejaqueue
from dejaqueue.access import audit
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.model import RowStatus
from dejaqueue.settings import BrokerSettings, HistorySettings, JournalSettings
from tests.crash.test_erasure_kill import far_ms, files_with
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture
def client(tmp_path: Path) -> dejaqueue.Client:
    return dejaqueue.open(str(tmp_path / "data"))


def wait_for_letters(client: dejaqueue.Client, count: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with suppress(DejaQError):
            if client.counts("orders.dead")["scheduled"] == count:
                return
        threading.Event().wait(0.05)
    raise AssertionError(f"{count} dead letters did not come")


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


def test_by_id__what_is_done_long_ago__what_waits__and_what_is_leased(
    client: dejaqueue.Client, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with client:
        client.create_topic("orders", partitions=2, history=True, retention_ms=0)
        for number in range(20):
            client.send("orders", f"kept {number}", due=far_ms())
        done = client.send("orders", "marker-done", key="marker-a")
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                message.ack(wait=True)
    with dejaqueue.open(str(data)) as client:  # nothing of it is in memory any more
        cancelled = client.send("orders", "marker-cancelled", due=far_ms())
        client.cancel("orders", id=cancelled)
        waits = client.send("orders", "marker-waits", due=far_ms(), group="marker-g")
        client.send("orders", "stays beside it", due=far_ms())
        leased = client.send("orders", "marker-leased")
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                assert files_with("marker-", data)
                erased = client.erase("orders", ids=[done, cancelled, waits, leased])
                assert (erased.found, erased.ended, erased.held) == (4, 2, 0)
                assert files_with("marker-", data) == []
                assert message.ack(wait=True) is RowStatus.LEASE_LOST
        assert client.history("orders", done).changes == ()
        assert client.counts("orders")["scheduled"] == 21
        assert client.erase("orders", ids=[done, waits]).found == 0
        assert client.erase("orders", ids=[1 << 46]).found == 0  # nothing has it yet


def test_by_id__in_every_subscription_and_copied_forward(
    client: dejaqueue.Client, tmp_path: Path
) -> None:
    with client:
        client.create_topic("orders", retention_ms=3_600_000)
        client.create_subscription("orders", "billing")
        first = client.send("orders", "marker", key="a")
        client.send("orders", "goes", key="b")
        client.erase("orders", keys=["b"])  # which has the first one copied forward
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                message.ack(wait=True)
        assert client.erase("orders", ids=[first]).ended == 1
        assert files_with("marker", tmp_path / "data") == []
        assert client.seek("orders", to="beginning").replayed == 0


@pytest.mark.parametrize("spread", [1, 2])
def test_by_id__its_dead_letters_too(client: dejaqueue.Client, tmp_path: Path, spread: int) -> None:
    with client:
        client.create_topic("orders", max_attempts=1, partitions=2, spread=spread)
        ids = [client.send("orders", f"marker-{n}", key=f"marker-{n}") for n in range(4)]
        with client.consume("orders", max_messages=4) as messages:
            for message in messages:
                message.nack(reason="refused", dead=True)
        wait_for_letters(client, 4)
        erased = client.erase("orders", ids=ids[:3])
        assert (erased.ended, erased.held) == (3, 0)
        [left] = client.peek("orders.dead").to_pylist()
        assert left["payload"] == b"marker-3"
        client.erase("orders", keys=["marker-3"])
        assert files_with("marker-", tmp_path / "data") == []


def test_history_of_letters_that_are_long_done_goes_with_their_messages(tmp_path: Path) -> None:
    settings = BrokerSettings(
        journal=JournalSettings(url=str(tmp_path / "data"), erase_ms_max=1_000),
        history=HistorySettings(roll_ms=200),
    )
    with dejaqueue.open("", settings=settings) as client:
        client.create_topic("orders", max_attempts=1, partitions=2)
        client.create_topic("orders.dead", history=True)
        sent = [
            client.send("orders", f"marker-{n}", key=f"key-{n}", group=f"group-{n}")
            for n in range(4)
        ]
        for topic in ("orders", "orders.dead"):
            if topic == "orders.dead":
                wait_for_letters(client, 4)
            with client.consume(topic, max_messages=4) as messages:
                for message in messages:
                    if topic == "orders":
                        message.nack(reason="refused", dead=True)
                    else:
                        message.ack(wait=True)
        until(lambda: not files_with("marker-", tmp_path / "data"), "their rows are gone")
        by_key = client.erase("orders", keys=["key-0"])
        assert (by_key.found, by_key.changes) == (0, 0)
        assert by_key.left == (
            "history of orders.dead may tell of letters that are done: it knows them by the ids of "
            "their messages, not by keys or tags",
        )
        for chosen in ({"ids": [sent[0]]}, {"group": "group-1"}):
            erased = client.erase("orders", **chosen)
            assert (erased.found, erased.changes, erased.left) == (0, 3, ())
        files = list((tmp_path / "data" / "history").rglob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        left = sorted(row["group"] for row in rows if row["change"] == "enqueued")
        assert left == ["group-2", "group-3"]
        assert len(rows) == 6
