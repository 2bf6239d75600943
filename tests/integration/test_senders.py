"""Two keys on one broker: neither's producers, transactions and notes are the other's, on any door.

Which calls a role may make is in test_authorisation.py; messages that a grant limits to the
caller's own are in test_own_messages.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dejaqueue.client import Client
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.integration.access_fixture import Site, running
from tests.patience import PATIENCE_SECONDS

TOPIC = "t"


@pytest.fixture
def site() -> Iterator[Site]:
    with running() as found:
        found.broker.create_topic(Topic(TOPIC))
        make = found.broker.keys.create
        found.keys["root"] = make("root", ["admin:*"])[1]
        for name in ("a", "b"):
            found.keys[name] = make(name, [f"produce:{TOPIC}"])[1]
        yield found


@pytest.fixture
def flights(site: Site) -> Iterator[dict[str, FlightTransport]]:
    opened = {name: FlightTransport(site.flight.url, key) for name, key in site.keys.items()}
    yield opened
    for transport in opened.values():
        transport.close()


def send(flight: FlightTransport, payload: bytes, number: int = 1, **options: Any) -> Reply:
    channel = flight.open_write(WriteStream(TOPIC, **options))
    try:
        return channel.send(number, pa.record_batch({"payload": [payload]})).result(
            PATIENCE_SECONDS
        )
    finally:
        channel.close()


def payloads(site: Site) -> list[bytes]:
    found = next(site.broker.read("peek", {"topic": TOPIC})[1]).column("payload").to_pylist()
    return sorted(found)


def test_batches_of_another_key_with_the_same_producers_name_are_its_own(
    site: Site, flights: dict[str, FlightTransport]
) -> None:
    first = send(flights["a"], b"a", producer="night-run")
    assert send(flights["a"], b"a", producer="night-run").first_id == first.first_id
    other = send(flights["b"], b"b", producer="night-run")
    assert other.first_id != first.first_id
    assert payloads(site) == [b"a", b"b"]


def test_a_key_of_the_same_name_is_the_same_producer(
    site: Site, flights: dict[str, FlightTransport]
) -> None:
    first = send(flights["a"], b"a", producer="night-run")
    site.broker.keys.revoke("a")
    _, text = site.broker.keys.create("a", [f"produce:{TOPIC}"])
    flight = FlightTransport(site.flight.url, text)
    assert send(flight, b"a", producer="night-run").first_id == first.first_id
    flight.close()
    assert payloads(site) == [b"a"]


@pytest.mark.parametrize("name", ["dead/t/0", "redrive/t.dead/0", "1:a:night-run", "night-run\n1"])
def test_no_name_reaches_what_others_or_the_broker_send(
    site: Site, flights: dict[str, FlightTransport], name: str
) -> None:
    send(flights["a"], b"a", producer="night-run")
    send(flights["b"], b"b", producer=name)
    known = site.broker.runtime(TOPIC).look(
        0, lambda place: list(place.engine.state.producers.by_name)
    )
    assert known.result(PATIENCE_SECONDS) == ["1:a:night-run", f"1:b:{name}"]


def test_an_idempotency_key_is_its_callers(site: Site) -> None:
    url = f"{site.http_url}/v1/topics/{TOPIC}/messages"
    ids = []
    for name in ("a", "b", "a", "b"):
        headers = {"Authorization": f"Bearer {site.keys[name]}", "Idempotency-Key": "order-17"}
        ids.append(
            httpx.post(
                url, json={"payload": name}, headers=headers, timeout=PATIENCE_SECONDS
            ).json()["id"]
        )
    assert ids[0] == ids[2] != ids[1] == ids[3]
    assert payloads(site) == [b"a", b"b"]


def test_requests_of_two_callers_are_two_batches(site: Site) -> None:
    for name in ("a", "b"):
        headers = {"Authorization": f"Bearer {site.keys[name]}"}
        answer = httpx.post(
            f"{site.http_url}/v1/topics/{TOPIC}/messages",
            json={"payload": name},
            headers=headers,
            timeout=PATIENCE_SECONDS,
        )
        assert answer.status_code == 201
    assert payloads(site) == [b"a", b"b"]


def test_another_key_neither_stages_in_a_transaction_nor_decides_it(
    site: Site, flights: dict[str, FlightTransport]
) -> None:
    a, b = flights["a"], flights["b"]
    name = a.action("begin_transaction", {"topic": TOPIC}).result(PATIENCE_SECONDS)["transaction"]
    assert send(a, b"a", transaction=name).error is None
    with pytest.raises(BadRequest, match="gave this caller"):
        send(b, b"b", transaction=name)
    for action in ("commit_transaction", "abort_transaction"):
        body = {"transaction": name, "participants": [f"{TOPIC}/0"]}
        with pytest.raises(BadRequest, match="gave this caller"):
            b.action(action, body).result(PATIENCE_SECONDS)
        answer = httpx.post(
            f"{site.http_url}/v1/transactions/{action.partition('_')[0]}",
            json=body,
            headers={"Authorization": f"Bearer {site.keys['b']}"},
            timeout=PATIENCE_SECONDS,
        )
        assert answer.status_code == 400
    assert payloads(site) == []
    a.action("commit_transaction", {"transaction": name, "participants": [f"{TOPIC}/0"]}).result(
        PATIENCE_SECONDS
    )
    assert payloads(site) == [b"a"]


def test_another_keys_query_of_the_same_name_has_epochs_of_its_own(
    site: Site, flights: dict[str, FlightTransport]
) -> None:
    def begin(flight: FlightTransport) -> dict[str, Any]:
        body = {"topic": TOPIC, "timeout_ms": 60_000, "query": "q", "epoch": 0}
        return flight.action("begin_transaction", body).result(PATIENCE_SECONDS)

    def commit(flight: FlightTransport, begun: dict[str, Any], branches: list[str]) -> None:
        body = {"topic": TOPIC, "query": "q", "epoch": 0, "branches": branches}
        body |= {"participants": [f"{TOPIC}/0"], "until_ms": begun["until_ms"]}
        flight.action("commit_epoch", body).result(PATIENCE_SECONDS)

    mine, theirs = begin(flights["a"]), begin(flights["b"])
    send(flights["a"], b"a", transaction=f"{mine['transaction']}~0.1")
    commit(flights["b"], theirs, [])
    assert begin(flights["b"])["committed"]
    assert not begin(flights["a"])["committed"]
    commit(flights["a"], mine, ["0.1"])
    assert payloads(site) == [b"a"]


def test_notes_of_a_write_are_the_callers__a_manager_sees_all(
    site: Site, flights: dict[str, FlightTransport]
) -> None:
    for name, count in (("a", 1), ("b", 2)):
        body = {"topic": TOPIC, "label": "nightly", "counts": {"OK": count}}
        flights[name].action("note_write", body).result(PATIENCE_SECONDS)

    def counts(name: str) -> list[int]:
        found = (
            flights[name]
            .action("writes", {"topic": TOPIC, "label": "nightly"})
            .result(PATIENCE_SECONDS)
        )
        return [note["counts"]["OK"] for note in found["writes"]]

    assert (counts("a"), counts("b"), counts("root")) == ([1], [2], [1, 2])


def test_rates_are_counted_for_each_key(site: Site) -> None:
    site.broker.alter_topic(TOPIC, {"producer_rate_max": 1})
    with (
        Client(site.flight.url, api_key=site.keys["a"], retry_ms_max=0) as a,
        Client(site.flight.url, api_key=site.keys["b"], retry_ms_max=0) as b,
    ):
        a.send(TOPIC, b"a")
        b.send(TOPIC, b"b")
    assert payloads(site) == [b"a", b"b"]
