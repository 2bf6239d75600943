"""Covers: the light client when connections break, answers are lost, a broker goes and comes back.

What may be sent again is, and once is enough; what may not is not.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue_client import AsyncClient, Client, DejaQError, RowStatus, Tls, Unavailable
from dejaqueue_client.errors import Forbidden, Unauthenticated
from tests.clients.light_faces import counted, refusal
from tests.clients.relay import Relay
from tests.integration.access_fixture import Site, give_keys, make_topics, running
from tests.integration.papers import Papers, server_tls
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture
def site() -> Iterator[Site]:
    with running() as served:
        yield served


@pytest.fixture
def relay(site: Site) -> Iterator[Relay]:
    between = Relay(site.http.port)
    yield between
    between.close()


@pytest.fixture
def near(site: Site) -> Iterator[Client]:
    """A client without anything between it and the broker, which has the topic `t`."""
    with Client(site.http_url) as client:
        client.create_topic("t", lease_ms=600_000)
        yield client


@pytest.fixture
def far(relay: Relay) -> Iterator[Client]:
    """A client behind the relay."""
    with Client(f"http://127.0.0.1:{relay.port}") as client:
        client.connect()
        yield client


def while_mute(relay: Relay, call: Any, is_done: Any) -> Any:
    """The result of a call whose first answer is lost: once `is_done` says that the broker has
    carried it out, the connection breaks, and the next one works."""
    found: list[Any] = []

    def calling() -> None:
        try:
            found.append(call())
        except DejaQError as error:
            found.append(error)

    relay.mute = True
    thread = threading.Thread(target=calling, daemon=True)
    thread.start()
    until(is_done, "the broker has carried it out")
    relay.mute = False
    relay.cut()
    thread.join(PATIENCE_SECONDS)
    return found[0]


def test_a_send_whose_answer_is_lost_is_there_once(near: Client, far: Client, relay: Relay) -> None:
    sent = while_mute(relay, lambda: far.send("t", "x"), lambda: counted(near, "t"))
    assert [view.id for view in near.peek("t")] == [sent]
    result = while_mute(
        relay,
        lambda: far.send_batch("t", ["y"] * 100),
        lambda: counted(near, "t") == {"scheduled": 101},
    )
    assert sorted([sent, *result.ids]) == sorted(view.id for view in near.peek("t", limit=200))


def test_a_shift_is_never_sent_twice(near: Client, far: Client, relay: Relay) -> None:
    message_id = near.send("t", "x", delay=600)
    due_ms = near.peek("t")[0].due_ms
    moved = while_mute(
        relay,
        lambda: far.move("t", id=message_id, by=60),
        lambda: near.peek("t")[0].due_ms != due_ms,
    )
    assert isinstance(moved, Unavailable)
    assert near.peek("t")[0].due_ms == due_ms + 60_000
    moved = while_mute(
        relay,
        lambda: far.move("t", id=message_id, by=60, if_due=due_ms + 60_000),
        lambda: near.peek("t")[0].due_ms != due_ms + 60_000,
    )
    assert moved == RowStatus.CHANGED  # the second one found what the first one had done
    assert near.peek("t")[0].due_ms == due_ms + 120_000


def test_a_cancel_whose_answer_is_lost_says_so(near: Client, far: Client, relay: Relay) -> None:
    message_id = near.send("t", "x", delay=600)
    cancelled = while_mute(
        relay, lambda: far.cancel("t", id=message_id), lambda: not counted(near, "t")
    )
    assert isinstance(cancelled, Unavailable)
    assert "whether it was this call is unknown" in str(cancelled)


def test_a_consumer_outlives_its_connection(near: Client, far: Client, relay: Relay) -> None:
    found: list[bytes] = []

    def consume() -> None:
        for message in far.consume("t", max_messages=3):
            found.append(message.payload)
            message.ack()

    consuming = threading.Thread(target=consume, daemon=True)
    consuming.start()
    near.send("t", "a")
    until(lambda: near.stats("t")["acked"] == 1, "the first one is done")
    relay.cut()
    near.send("t", "b")
    until(lambda: near.stats("t")["acked"] == 2, "the second one is done")
    relay.cut()
    near.send("t", "c")
    consuming.join(PATIENCE_SECONDS)
    assert found == [b"a", b"b", b"c"]
    assert counted(near, "t") == {}


def test_a_broker_that_is_started_later_is_found(site: Site, near: Client) -> None:
    near.send("t", "x")
    # Nobody answers here until there is a relay.
    held = socket.create_server(("127.0.0.1", 0))
    port = held.getsockname()[1]
    held.close()
    with Client(f"http://127.0.0.1:{port}") as client:
        found: list[Any] = []
        asking = threading.Thread(target=lambda: found.append(counted(client, "t")), daemon=True)
        asking.start()
        server = HttpServer(Service(site.broker, Gate(), lambda: True), "127.0.0.1", port)
        server.start()
        try:
            asking.join(PATIENCE_SECONDS)
        finally:
            client.close()
            server.stop()
    assert found == [{"scheduled": 1}]


def test_the_next_broker_that_is_named_answers(site: Site, near: Client) -> None:
    held = socket.create_server(("127.0.0.1", 0))
    port = held.getsockname()[1]
    held.close()
    url = f"http://127.0.0.1:{port},127.0.0.1:{site.http.port}"
    with Client(url) as client:
        assert counted(client, "t") == {}
        assert client.move("t", id=5, by=1) == RowStatus.NOT_FOUND  # nobody was reached before


def test_where_nobody_answers_it_says_so_in_time() -> None:
    with Client("http://127.0.0.1:9", retry_ms_max=200) as client:
        kind, text = refusal(client.connect)
        assert kind == "Unavailable"
        assert "http://127.0.0.1:9 does not answer" in text
        client.close()
        assert refusal(client.topics) == ("Unavailable", "the client is closed")
        assert refusal(lambda: client.consume("t"))[0] == "Unavailable"


def test_what_a_proxy_answers_is_an_error_of_the_tree(site: Site) -> None:
    with Client(f"{site.http_url}/elsewhere", retry_ms_max=0) as client:
        assert refusal(client.topics)[0] == "BadRequest"


def test_keys(site: Site) -> None:
    make_topics(site.broker)
    give_keys(site)
    with Client(site.http_url, api_key=site.keys["produce mine"]) as client:
        client.send("mine", "x")
        with pytest.raises(Forbidden):
            client.send("theirs", "x")
        with pytest.raises(Forbidden):
            next(client.consume("mine"))
    with Client(site.http_url) as client, pytest.raises(Unauthenticated):
        client.topics()
    with Client(site.http_url, api_key=site.keys["root"]) as client:
        made = client.create_key("shop", ["consume:mine"])
        with Client(site.http_url, api_key=made["api_key"]) as shop:
            message = next(shop.consume("mine"))
            assert message.payload == b"x"
            client.revoke_key("shop")
            with pytest.raises(Unauthenticated):
                message.ack(wait=True)
        assert "shop" not in [key["name"] for key in client.api_keys()]
    assert str(site.keys["root"]) not in repr(client)


def test_tls(tmp_path: Any) -> None:
    papers = Papers(tmp_path)
    with running(server_tls(papers.broker, papers.ca)) as site:
        url = f"https://localhost:{site.http.port}"
        pair = {"certificate": papers.client[0], "key": papers.client[1]}
        with Client(url, tls=Tls(ca=papers.ca, **pair)) as client:
            client.create_topic("t")
            client.send("t", "x")
            assert [one.payload for one in client.peek("t")] == [b"x"]
        with Client(url, tls=Tls(ca=papers.other_ca, **pair), retry_ms_max=0) as client:
            assert refusal(client.topics)[0] == "Unavailable"
    with running(server_tls(papers.elsewhere)) as site:
        url = f"https://localhost:{site.http.port}"
        with Client(url, tls=Tls(ca=papers.ca), retry_ms_max=0) as client:
            assert refusal(client.topics)[0] == "Unavailable"
        named = Tls(ca=papers.ca, server_name="queue.example")
        with Client(url, tls=named) as client:
            client.connect()
    for wrong in (Tls(ca=tmp_path / "none.pem"), Tls(certificate=papers.client[0])):
        assert refusal(lambda wrong=wrong: Client(url, tls=wrong))[0] == "BadRequest"  # type: ignore[misc]


async def lease_and_leave(url: str) -> None:
    async with AsyncClient(url) as client:
        await anext(client.consume("t"))


def test_an_event_loop_that_ends_leaves_nothing_behind(near: Client, site: Site) -> None:
    import asyncio

    near.send("t", "x")
    asyncio.run(lease_and_leave(site.http_url))
    # Closing the client gave back what nobody had settled.
    assert counted(near, "t") == {"scheduled": 1}
