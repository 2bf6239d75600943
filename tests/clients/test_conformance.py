"""Covers: the clients for other languages, written from docs/wire.md alone, at a broker.

Send, consume, hold until due, ack, nack, extend, move, cancel, transactions, errors, keys, TLS.
Not covered: broken connections (test_reconnects.py), answers that grow (test_newer_broker.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.clock import SystemClock
from dejaqueue.flight.server import FlightServer
from tests.clients.drivers import ClientError, Driver
from tests.clients.newer_broker import NewerBroker
from tests.integration.access_fixture import give_keys, make_topics, running
from tests.integration.papers import Papers, server_tls


def now_ms() -> int:
    return SystemClock().now_ms()


def test_messages_arrive_as_they_were_sent(client: Driver, ours: Client) -> None:
    rich: dict[str, Any] = {
        "key": "k",
        "group": "gröup",
        "priority": 7,
        "tags": ["a", "b"],
        "headers": {"h": "ü"},
    }
    sent = client.send("t", bytes(range(256)), **rich)
    client.send("t", b"", b"two")
    assert sent["statuses"] == ["OK"]
    (peeked,) = ours.peek("t", keys=["k"]).to_pylist()
    assert str(peeked["id"]) == sent["ids"][0]
    client.call("consume", topic="t")
    found = client.receive(3)
    assert [row["payload"] for row in found] == [bytes(range(256)), b"", b"two"]
    assert {name: found[0][name] for name in rich} == rich
    assert found[0]["attempts"] == 1
    assert (found[1]["key"], found[1]["priority"], found[1]["tags"] or []) == ("", 32_768, [])
    acked = client.call("ack", ids=[row["id"] for row in found])
    assert acked["statuses"] == ["OK"] * 3
    stats = ours.stats("t")
    assert (stats["acked"], stats["leased"], stats["scheduled"]) == (3, 0, 0)


def test_a_thousand_in_a_batch_come_with_credit_for_a_hundred(client: Driver) -> None:
    payloads = [b"%d" % n for n in range(1_000)]
    assert len(set(client.send("t", *payloads)["ids"])) == 1_000
    client.call("consume", topic="t", credit=100)
    got: list[bytes] = []
    while len(got) < 1_000:
        found = client.receive(min(60, 1_000 - len(got)))
        got += [row["payload"] for row in found]
        client.call("ack", ids=[row["id"] for row in found])
    assert got == payloads
    assert client.receive(1, wait_ms=50) == []


def test_no_more_comes_than_there_is_credit_for(client: Driver, ours: Client) -> None:
    client.send("t", *[b"x"] * 20)
    client.call("consume", topic="t", credit=5)
    assert len(client.receive(5)) == 5
    assert client.receive(1, wait_ms=500) == []
    assert ours.stats("t")["leased"] == 5


def test_a_message_is_handed_over_when_it_is_due(client: Driver) -> None:
    client.call("create_topic", topic="early", settings={"lease_ahead_ms": 900})
    client.call("consume", topic="early")
    client.receive(1, wait_ms=600)  # the clock is measured
    dues = [now_ms() + 1_000 + 7 * n for n in range(20)]
    for due in dues:
        client.send("early", b"x", due_ms=due)
    found = client.receive(20)
    assert [row["due_ms"] for row in found] == dues
    assert all(0 <= row["received_ms"] - row["due_ms"] <= 2_000 for row in found)


@pytest.mark.parametrize("shift_ms", [-40, 40])
def test_whose_clock_counts_is_the_brokers(
    alone: Driver, server: FlightServer, ours: Client, shift_ms: int
) -> None:
    ours.create_topic("early", lease_ahead_ms=900)
    far = NewerBroker(server.port, shift_us=shift_ms * 1_000)
    try:
        alone.call("connect", url=f"dejaq://127.0.0.1:{far.port}")
        alone.call("consume", topic="early")
        alone.receive(1, wait_ms=600)  # the clock is measured
        due = now_ms() + 1_000
        ours.send("early", b"x", due=due)
        (found,) = alone.receive(1)
        assert found["received_ms"] >= due - shift_ms - 1
    finally:
        alone.call("close_consumer")
        far.close()


def test_a_nack_brings_a_message_again(client: Driver, ours: Client) -> None:
    client.send("t", b"x")
    client.call("consume", topic="t")
    (first,) = client.receive(1)
    before = now_ms()
    assert client.call("nack", ids=[first["id"]], delay_ms=300)["statuses"] == ["OK"]
    (second,) = client.receive(1)
    assert second["attempts"] == 2
    assert second["received_ms"] - before >= 300
    ours.create_topic("t.dead")
    client.call("nack", ids=[second["id"]], dead=True, reason="no good")
    (letter,) = ours.consume("t.dead", max_messages=1)
    assert letter.payload == b"x"
    assert "no good" in letter.headers.values()


def test_a_subscription_is_consumed_and_acked_by_its_name(client: Driver, ours: Client) -> None:
    ours.create_subscription("t", "billing")
    ours.create_subscription("t", "audit", order="arrival")
    sent = client.send("t", b"later", b"now")["ids"]
    client.call("consume", topic="t@audit")
    found = client.receive(2)
    assert [(row["id"], row["payload"]) for row in found] == [
        (sent[0], b"later"),
        (sent[1], b"now"),
    ]
    assert client.call("nack", ids=[found[1]["id"]], delay_ms=0)["statuses"] == ["OK"]
    (again,) = client.receive(1)
    assert (again["id"], again["attempts"]) == (sent[1], 2)
    assert client.call("ack", ids=[sent[0], sent[1]])["statuses"] == ["OK", "OK"]
    assert ours.stats("t@audit")["acked"] == 2
    assert [ours.stats(name)["ready"] for name in ("t", "t@billing")] == [2, 2]


def test_a_lease_that_ended_is_lost__and_one_that_was_extended_is_not(client: Driver) -> None:
    client.send("t", b"a", b"b")
    client.call("consume", topic="t", lease_ms=2_500)
    ids = [row["id"] for row in client.receive(2)]
    assert client.call("extend", ids=[ids[0]], lease_ms=20_000)["statuses"] == ["OK"]
    again = client.receive(1)
    assert [(row["id"], row["attempts"]) for row in again] == [(ids[1], 2)]
    assert client.call("ack", ids=[ids[0]])["statuses"] == ["OK"]
    assert client.call("ack", ids=[ids[0]])["statuses"] == ["LEASE_LOST"]
    assert client.call("ack", ids=[ids[1]])["statuses"] == ["OK"]


def test_rows_of_several_deliveries_and_partitions_are_settled_together(client: Driver) -> None:
    client.call("create_topic", topic="wide", settings={"partitions": 4})
    for n in range(12):
        client.send("wide", b"%d" % n, key=f"k{n}")
    client.call("consume", topic="wide")
    ids = [row["id"] for row in client.receive(12)]
    assert len({int(one) >> 47 for one in ids}) > 1
    settled = client.call("ack", ids=ids[::2])["statuses"]
    assert settled == ["OK"] * 6
    assert client.call("ack", ids=ids)["statuses"] == ["LEASE_LOST", "OK"] * 6


def test_consumers_with_tags_get_what_has_them(client: Driver) -> None:
    client.send("t", b"no", tags=["blue"])
    client.send("t", b"yes", tags=["red", "blue"])
    client.call("consume", topic="t", tags_any=["red"])
    assert [row["payload"] for row in client.receive(1)] == [b"yes"]
    assert client.receive(1, wait_ms=500) == []


def test_messages_are_moved_and_cancelled(client: Driver) -> None:
    far = now_ms() + 3_600_000
    ids = client.send("t", b"a", b"b", due_ms=far)["ids"]
    client.send("t", b"c", key="c", due_ms=far)
    client.send("t", b"d", key="d", due_ms=far)
    assert client.call("cancel", topic="t", ids=[ids[0], ids[0]])["statuses"][0] == "OK"
    assert client.call("cancel", topic="t", ids=[ids[0]])["statuses"] == ["NOT_FOUND"]
    assert client.call("cancel", topic="t", keys=["c", "none"])["statuses"] == ["OK", "NOT_FOUND"]
    moved = client.call("move", topic="t", rows=[{"id": ids[1], "due_ms": now_ms()}])
    assert moved["statuses"] == ["OK"]
    moved = client.call("move", topic="t", rows=[{"key": "d", "due_ms": now_ms() + 50}])
    assert moved["statuses"] == ["OK"]
    client.call("consume", topic="t")
    assert [row["payload"] for row in client.receive(2)] == [b"b", b"d"]
    assert client.call("cancel", topic="t", ids=[ids[1]])["statuses"] == ["LEASED"]


def test_a_key_that_lives_is_a_status_with_its_id(client: Driver) -> None:
    first = client.send("t", b"a", key="k", due_ms=now_ms() + 3_600_000)
    second = client.send("t", b"b", key="k")
    assert second["statuses"] == ["DUPLICATE"]
    assert second["ids"] == first["ids"]


def test_closing_gives_back_what_was_not_settled(client: Driver, ours: Client) -> None:
    client.send("t", b"a", b"b", b"c")
    client.call("consume", topic="t", lease_ms=600_000)
    (first, _second) = client.receive(2)
    client.call("ack", ids=[first["id"]])
    client.call("close_consumer")
    assert sorted(m.payload for m in ours.consume("t", max_messages=2)) == [b"b", b"c"]


def test_a_transaction_counts_at_its_commit(client: Driver, ours: Client) -> None:
    client.call("create_topic", topic="out", settings={"partitions": 3})
    client.send("t", b"in")
    client.call("consume", topic="t")
    (received,) = client.receive(1)
    client.call("begin", topic="t", timeout_ms=30_000)
    staged = client.send("out", b"a", b"b", do="tx_send")
    assert staged["statuses"] == ["OK", "OK"]
    assert client.call("tx_ack", ids=[received["id"]])["statuses"] == ["OK"]
    assert ours.stats("out")["ready"] == 0
    client.call("commit")
    client.call("commit")  # said again: the same
    assert sorted(m.payload for m in ours.consume("out", max_messages=2)) == [b"a", b"b"]
    assert ours.stats("t")["acked"] == 1


def test_an_aborted_transaction_never_was(client: Driver, ours: Client) -> None:
    client.send("t", b"in")
    client.call("consume", topic="t", lease_ms=2_500)
    (received,) = client.receive(1)
    client.call("begin", topic="t", timeout_ms=30_000)
    client.send("t", b"never", do="tx_send")
    client.call("tx_ack", ids=[received["id"]])
    client.call("abort")
    (again,) = client.receive(1)
    assert (again["payload"], again["attempts"]) == (b"in", 2)
    with pytest.raises(ClientError) as refused:
        client.call("commit")
    assert not refused.value.retry
    assert ours.stats("t")["scheduled"] == 0


def test_errors_have_numbers_and_names(client: Driver) -> None:
    with pytest.raises(ClientError) as unknown:
        client.send("nobody", b"x")
    assert (unknown.value.number, unknown.value.name) == (11, "TopicUnknown")
    assert unknown.value.fields["field"] == "topic"
    assert not unknown.value.retry
    with pytest.raises(ClientError) as late:
        client.send("t", b"x", due_ms=1_700_000_000)
    assert (late.value.number, late.value.name) == (10, "BadRequest")
    with pytest.raises(ClientError) as exists:
        client.call("create_topic", topic="t", settings={"lease_ms": 5_000})
    assert (exists.value.number, exists.value.name) == (21, "TopicExists")
    client.call("consume", topic="nobody")
    with pytest.raises(ClientError) as nothing:
        client.receive(1)
    assert nothing.value.number == 11
    client.call("consume", topic="t")
    client.send("t", b"x")
    (received,) = client.receive(1)
    with pytest.raises(ClientError) as reason:
        client.call("nack", ids=[received["id"]], reason="\x1e")
    assert reason.value.number == 10
    # The stream is in order: what was refused was one settle.
    assert client.call("ack", ids=[received["id"]])["statuses"] == ["OK"]


def test_a_backlog_that_is_full_can_be_retried(alone: Driver, server: FlightServer) -> None:
    alone.call("connect", url=server.url, retry_ms=2_000)
    alone.call("create_topic", topic="small", settings={"max_backlog_count": 1})
    alone.send("small", b"x")
    with pytest.raises(ClientError) as full:
        alone.send("small", b"y")
    assert (full.value.number, full.value.retry) == (31, True)


def test_a_broker_out_of_reach_is_unavailable(alone: Driver) -> None:
    alone.call("connect", url="dejaq://127.0.0.1:9", retry_ms=300)
    with pytest.raises(ClientError) as far:
        alone.send("t", b"x")
    assert (far.value.number, far.value.retry) == (32, True)
    with pytest.raises(ClientError) as action:
        alone.call("stats", topic="t")
    assert action.value.number == 32


def test_keys_and_tls(alone: Driver, tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    with running(tls=server_tls(papers.broker)) as site:
        make_topics(site.broker)
        give_keys(site)
        url = f"dejaqs://localhost:{site.flight.port}"
        known = next(key for name, key in site.keys.items() if name == "manage mine" and key)
        alone.call("connect", url=url, ca=papers.ca)
        with pytest.raises(ClientError) as nobody:
            alone.call("stats", topic="mine")
        assert (nobody.value.number, nobody.value.name) == (51, "Unauthenticated")
        alone.call("connect", url=url, ca=papers.ca, api_key=known)
        assert alone.call("stats", topic="mine")["topic"] == "mine"
        with pytest.raises(ClientError) as forbidden:
            alone.call("stats", topic="theirs")
        assert forbidden.value.number == 52
        alone.call("connect", url=url, ca=papers.other_ca, api_key=known)
        with pytest.raises(ClientError) as stranger:
            alone.call("stats", topic="mine")
        assert stranger.value.number == 32
