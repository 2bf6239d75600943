"""API keys as users meet them: clients with keys, keys that end under way, what the logs say."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import dejaqueue
from dejaqueue import limits
from dejaqueue.access import audit
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.client import AsyncClient, Client
from dejaqueue.client.flight_errors import error_of
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.clock import SystemClock
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Forbidden,
    Refused,
    ResourceExhausted,
    Unauthenticated,
)
from dejaqueue.flight.bounds import OpenStreams
from dejaqueue.flight.server import FlightServer
from dejaqueue.log_rate import LogRate
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Ping
from tests.integration.access_fixture import MINE, THEIRS, Site, give_keys, make_topics, running
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture
def site() -> Iterator[Site]:
    with running() as found:
        make_topics(found.broker)
        give_keys(found)
        yield found


@pytest.fixture(autouse=True)
def no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests were refused does not count here."""
    monkeypatch.setattr(audit, "_rate", LogRate(audit.LINES_PER_SECOND_MAX, 1.0))


def client_of(site: Site, caller: str) -> Client:
    return Client(site.flight.url, api_key=site.keys[caller], retry_ms_max=5_000)


def test_messages_travel_with_keys_in_both_faces(site: Site) -> None:
    with client_of(site, "produce mine") as sender, client_of(site, "consume mine") as taker:
        sender.send(MINE, b"one")
        sender.send_batch(MINE, [{"payload": b"two"}])
        got = []
        for message in taker.consume(MINE, max_messages=2, idle_ms=20_000):
            got.append(message.payload)
            message.ack(wait=True)
        assert sorted(got) == [b"one", b"two"]
        with pytest.raises(Forbidden, match="produce"):
            taker.send(MINE, b"no")
        with pytest.raises(Forbidden, match="consume"):
            next(iter(sender.consume(MINE, idle_ms=20_000)))
        with pytest.raises(Forbidden, match=THEIRS):
            sender.send(THEIRS, b"no")

    async def asynchronous() -> list[bytes]:
        async with AsyncClient(site.flight.url, api_key=site.keys["admin mine"]) as both:
            await both.send(MINE, b"three")
            found = []
            async for message in both.consume(MINE, max_messages=1, idle_ms=20_000):
                found.append(message.payload)
                await message.ack(wait=True)
            return found

    assert asyncio.run(asynchronous()) == [b"three"]


def test_keys_are_made_listed_and_revoked_by_the_client(site: Site) -> None:
    with client_of(site, "root") as root:
        made = root.create_key("shop", ["produce:mine"])
        listed = root.api_keys()
        assert listed[-1] == {name: made[name] for name in made if name != "api_key"} | {
            "ended": False,
            "used_ms": None,
        }
        assert listed[0]["used_ms"] % 60_000 == 0  # this very call is a use
        with pytest.raises(Refused, match="shop"):
            root.create_key("shop", ["produce:mine"])
        with pytest.raises(BadRequest, match="grants"):
            root.create_key("other", ["sing:*"])
        with Client(site.flight.url, api_key=made["api_key"]) as shop:
            shop.send(MINE, b"x")
            with pytest.raises(Forbidden):
                shop.api_keys()
            assert root.revoke_key("shop")["id"] == made["id"]
            with pytest.raises(Unauthenticated):
                shop.connect()
        with pytest.raises(Refused, match="last admin"):
            root.revoke_key("root")
    with Client(site.flight.url) as nobody, pytest.raises(Unauthenticated):
        nobody.connect()


def revoke(site: Site, caller: str) -> None:
    site.broker.keys.revoke(caller.replace(" mine", ".m"))


def test_an_open_consumer_of_a_revoked_key_ends_at_once(site: Site) -> None:
    with client_of(site, "consume mine") as taker:
        errors: list[BaseException] = []
        first, ended = threading.Event(), threading.Event()

        def consume() -> None:
            try:
                for message in taker.consume(MINE):
                    message.ack(wait=True)
                    first.set()
            except DejaQError as error:
                errors.append(error)
            ended.set()

        threading.Thread(target=consume, daemon=True).start()
        with client_of(site, "produce mine") as sender:
            sender.send(MINE, b"one")
            assert first.wait(PATIENCE_SECONDS)
            revoke(site, "consume mine")
            assert ended.wait(PATIENCE_SECONDS)
            assert [type(error) for error in errors] == [Unauthenticated]
            sender.send(MINE, b"two")
        with client_of(site, "manage mine") as looker:
            assert looker.counts(MINE)["ready"] == 1, "nothing is leased to a key that is gone"


def test_messages_that_a_revoked_key_holds_come_back_at_once(site: Site) -> None:
    with client_of(site, "produce mine") as sender, client_of(site, "admin mine") as other:
        sender.send(MINE, b"held")
        with client_of(site, "consume mine") as taker:
            held = next(iter(taker.consume(MINE, idle_ms=20_000)))
            revoke(site, "consume mine")
            for message in other.consume(MINE, max_messages=1, idle_ms=20_000):
                assert message.payload == b"held"
                message.ack(wait=True)
            with pytest.raises(DejaQError):
                held.ack(wait=True)
        assert other.counts(MINE)["ready"] == other.counts(MINE)["leased"] == 0


def test_who_hangs_up_as_its_key_ends_keeps_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is told, and hangs up, before the broker has come to give back what it held."""
    close = ConsumerSession.close

    def slow(self: ConsumerSession, *, release: bool) -> DejaQError | None:
        if release:
            threading.Event().wait(0.5)
        return close(self, release=release)

    with client_of(site, "produce mine") as sender, client_of(site, "admin mine") as other:
        other.alter_topic(MINE, lease_ms=600_000)
        sender.send(MINE, b"held")
        with client_of(site, "consume mine") as taker:
            messages = iter(taker.consume(MINE, idle_ms=20_000))
            next(messages)
            monkeypatch.setattr(ConsumerSession, "close", slow)
            revoke(site, "consume mine")
            with pytest.raises(DejaQError):
                next(messages)
        until(lambda: other.counts(MINE)["leased"] == 0, "it is given back")


def test_an_open_write_stream_of_a_revoked_key_takes_no_more(site: Site) -> None:
    with client_of(site, "produce mine") as sender:
        sender.send(MINE, b"one")
        revoke(site, "produce mine")
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                sender.send(MINE, b"two")
    with client_of(site, "manage mine") as looker:
        assert looker.counts(MINE)["ready"] == 1


def test_a_consumer_whose_key_ends_is_told_within_a_second(site: Site) -> None:
    clock = SystemClock()
    ends_ms = clock.now_ms() + 1_500
    key = site.broker.keys.create("short", [f"consume:{MINE}"], ends_ms)[1]
    with Client(site.flight.url, api_key=key) as taker, pytest.raises(Unauthenticated):
        next(iter(taker.consume(MINE, idle_ms=60_000)))
    assert 0 <= clock.now_ms() - ends_ms < 10_000  # a loaded machine; the gate itself waits 0


def test_the_first_key_shuts_out_who_was_in(site: Site) -> None:
    with running() as fresh:
        make_topics(fresh.broker)
        with Client(fresh.flight.url) as early, Client(fresh.flight.url) as taker:
            early.send(MINE, b"one")
            consumer = taker.consume(MINE, idle_ms=60_000)
            next(iter(consumer)).ack(wait=True)
            made = early.create_key("root", ["admin:*"])
            with pytest.raises(Unauthenticated):
                early.send(MINE, b"two")
            with pytest.raises(Unauthenticated):
                next(iter(consumer))
        with Client(fresh.flight.url, api_key=made["api_key"]) as root:
            assert root.counts(MINE)["ready"] == 0


def test_letters_go_back_only_where_the_caller_may_send(site: Site) -> None:
    site.broker.delete_topic(THEIRS)
    clock = SystemClock()
    with client_of(site, "root") as root, client_of(site, "manage mine") as manager:
        for name in ("mine.a", THEIRS):
            root.create_topic(name, max_attempts=1, dead_letter="mine.dead")
            root.send(name, name.encode())
            for message in root.consume(name, max_messages=1, idle_ms=20_000):
                message.nack()
        moved, left, until_ms = 0, 0, clock.now_ms() + PATIENCE_SECONDS * 1_000
        while (moved, left) != (1, 1) and clock.now_ms() < until_ms:
            sent = manager.redrive("mine.dead")  # letters are on their way here for a moment
            moved, left = moved + sent.moved, sent.left
        assert (moved, left) == (1, 1)
        [message] = root.consume("mine.a", max_messages=1, idle_ms=20_000)
        assert message.payload == b"mine.a"
        assert root.counts(THEIRS)["ready"] == 0
        assert manager.counts("mine.dead")["ready"] == 1


def test_a_request_that_waits_with_a_revoked_key_gets_nothing(site: Site) -> None:
    waiting, answers = threading.Event(), []

    def lease() -> None:
        headers = {"Authorization": f"Bearer {site.keys['consume mine']}"}
        waiting.set()
        body = {"max": 1, "wait_ms": 20_000}
        url = f"{site.http_url}/v1/topics/{MINE}/lease"
        answers.append(httpx.post(url, json=body, headers=headers, timeout=PATIENCE_SECONDS))

    thread = threading.Thread(target=lease)
    thread.start()
    assert waiting.wait(PATIENCE_SECONDS)
    with client_of(site, "manage mine") as looker:
        until_ms = SystemClock().now_ms() + PATIENCE_SECONDS * 1_000
        while (
            not site.broker.call("stats", {"topic": MINE})["consumers"]
            and SystemClock().now_ms() < until_ms
        ):
            pass
        revoke(site, "consume mine")
        with client_of(site, "produce mine") as sender:
            sender.send(MINE, b"one")
        thread.join(PATIENCE_SECONDS)
        assert answers[0].status_code == 401
        with (
            client_of(site, "admin mine") as other,
            other.consume(MINE, max_messages=1, idle_ms=20_000) as consumer,
        ):
            assert next(consumer).payload == b"one"
            assert looker.counts(MINE)["ready"] == 0  # before its lease ends with the consumer


def test_a_body_beyond_the_limit_is_refused_by_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACTION_BYTES_MAX", 1_000)
    with client_of(site, "root") as root, pytest.raises(BadRequest, match=r"action\.body"):
        root._core.transport.action("clock", {"x": "y" * 1_000}).result(PATIENCE_SECONDS)


def test_streams_beyond_the_limit_are_refused_until_one_ends(site: Site) -> None:
    site.flight._generations._current._open_streams = OpenStreams(1)  # type: ignore[union-attr]
    options = ConsumeStream(MINE)
    ponged, ended = threading.Event(), threading.Event()
    errors: list[DejaQError | None] = []

    def end(error: DejaQError | None) -> None:
        errors.append(error)
        ended.set()

    transport = FlightTransport(site.flight.url, site.keys["admin mine"])
    try:
        first = transport.open_consume(options, lambda _: None, lambda _: ponged.set(), end)
        first.ping(Ping(1, 1, 0, 0))
        assert ponged.wait(PATIENCE_SECONDS)
        batch = pa.record_batch({"nonsense": [1]})
        refused = transport.open_write(WriteStream(MINE)).send(1, batch)
        assert isinstance(refused.exception(PATIENCE_SECONDS), ResourceExhausted)
        first.close()
        wrong: BaseException | None = None
        until_ms = SystemClock().now_ms() + PATIENCE_SECONDS * 1_000
        while not isinstance(wrong, BadRequest) and SystemClock().now_ms() < until_ms:
            wrong = (
                transport.open_write(WriteStream(MINE)).send(1, batch).exception(PATIENCE_SECONDS)
            )
        assert isinstance(wrong, BadRequest), "the next stream is let in, and its schema looked at"
    finally:
        transport.close()


def test_keys_of_a_queue_in_this_process_hold_once_it_is_served(tmp_path: Path) -> None:
    with dejaqueue.open(tmp_path) as queue:
        root = queue.create_key("root", ["admin:*"])["api_key"]
        queue.create_topic(MINE)
        assert [key["name"] for key in queue.api_keys()] == ["root"]
    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path))))
    broker.start()
    server = FlightServer(broker)
    server.start()
    try:
        with Client(server.url) as nobody, pytest.raises(Unauthenticated):
            nobody.connect()
        with Client(server.url, api_key=root) as client:
            assert [topic.name for topic in client.topics()] == [MINE]
    finally:
        server.stop()
        broker.stop()


# --- what is written down ------------------------------------------------------------------------


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.audit for record in caplog.records if record.name == "dejaqueue.audit"]  # type: ignore[attr-defined]


def test_administration_is_audited(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dejaqueue.audit")
    with client_of(site, "root") as root, client_of(site, "consume mine") as taker:
        root.create_topic("mine.new")
        root.alter_topic("mine.new", lease_ms=5_000)
        root.send("mine.new", b"not to be logged")
        root.cancel_where("mine.new", group="")
        root.delete_topic("mine.new")
        with pytest.raises(Forbidden):
            taker.delete_topic(MINE)
        with pytest.raises(Forbidden):
            taker.send(MINE, b"x")
    headers = {"Authorization": f"Bearer {site.keys['manage mine']}"}
    httpx.get(f"{site.http_url}/v1/keys", headers=headers, timeout=PATIENCE_SECONDS)
    httpx.get(f"{site.http_url}/v1/keys", timeout=PATIENCE_SECONDS)
    found = [
        (one["principal"], one["action"], one["topic"], one["outcome"]) for one in lines_of(caplog)
    ]
    assert found == [
        ("root", "create_topic", "mine.new", "done"),
        ("root", "alter_topic", "mine.new", "done"),
        ("root", "cancel_where", "mine.new", "done"),
        ("root", "delete_topic", "mine.new", "done"),
        ("consume.m", "delete_topic", MINE, "Forbidden"),
        ("consume.m", "enqueue", MINE, "Forbidden"),
        ("manage.m", "GET /v1/keys", "", "Forbidden"),
        ("unknown", "GET /v1/keys", "", "Unauthenticated"),
    ]
    peers = [one["peer"] for one in lines_of(caplog)]
    assert all("127.0.0.1:" in peer for peer in peers)
    assert "not to be logged" not in caplog.text


def test_no_caller_makes_a_line_of_its_own(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dejaqueue.audit")
    forged = 'x"\nprincipal="root" action="delete_topic"'
    with client_of(site, "consume mine") as taker, pytest.raises(Forbidden):
        taker._core.transport.action("describe_topic", {"name": forged}).result(PATIENCE_SECONDS)
    [record] = [one for one in caplog.records if one.name == "dejaqueue.audit"]
    assert "\n" not in record.getMessage()
    assert record.getMessage().count('principal="') == 1


def test_no_secret_is_written_anywhere(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """All that a run says: logs, errors, answers, texts of objects."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    secrets = {key.rpartition("_")[2] for key in site.keys.values() if key is not None}
    secrets -= {"0" * 64}
    for caller, key in site.keys.items():
        with Client(site.flight.url, api_key=key) as client:
            said += [repr(client), repr(client._core), repr(vars(client._core.transport).keys())]
            for name, body in (
                ("list_keys", {}), ("stats", {}), ("create_key", {"name": key, "grants": ["x"]}),
                ("revoke_key", {"key": f"{key}0"}), ("list_topics", {}),
            ):  # fmt: skip
                try:
                    said.append(
                        str(client._core.transport.action(name, body).result(PATIENCE_SECONDS))
                    )
                except DejaQError as error:
                    said.append(f"{error!r} {error} {error.fields()} {error.__cause__!r}")
            try:
                client.send(MINE, b"x")
            except DejaQError as error:
                said.append(f"{error!r} {error}")
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=site.http_url, headers=headers, timeout=PATIENCE_SECONDS) as web:
            for path in ("/stats", "/v1/keys", "/openapi.json", f"/v1/nothing/{caller}"):
                answer = web.get(path)
                said.append(f"{answer.text} {answer.headers}")
            said.append(web.delete(f"/v1/keys/{key}x").text if caller == "root" else "")
    said += [repr(site.broker.keys.all()), repr(site.broker.keys), repr(site.broker.settings)]
    digests = {key.digest.hex() for key in site.broker.keys.all()}
    # What httpx itself logs is the caller's own address line, not ours.
    logged = [one.getMessage() for one in caplog.records if one.name.startswith("dejaqueue")]
    everything = "\n".join([*said, *logged])
    assert len(everything) > 10_000
    places = [everything.index(one) for one in secrets | digests if one in everything]
    assert [everything[max(0, place - 200) : place + 20] for place in places] == []


def test_refused_calls_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with running() as site:
        site.broker.keys.create("root", ["admin:*"])
        caplog.set_level(logging.INFO, "dejaqueue.audit")
        with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
            seconds = 1
            first = SystemClock().now_ms() // 1_000
            for _ in range(4 * audit.LINES_PER_SECOND_MAX):
                with pytest.raises(flight.FlightUnauthenticatedError):
                    list(client.do_action(flight.Action("clock", b"{}")))
            seconds += SystemClock().now_ms() // 1_000 - first
    written = [one for one in caplog.records if "do_action" in one.getMessage()]
    assert len(written) <= audit.LINES_PER_SECOND_MAX * (seconds + 1)


def test_a_header_that_is_no_key_is_refused(site: Site) -> None:
    root = str(site.keys["root"]).encode()
    for headers in (
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Basic " + root)],
        [(b"authorization", b"Bearer " + root), (b"authorization", b"Bearer " + root)],
        [(b"authorization-bin", b"\xff\x00")],
        [(b"authorization", b"Bearer " + b"x" * 4_000)],
    ):
        options = flight.FlightCallOptions(timeout=PATIENCE_SECONDS, headers=headers)
        with (
            flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client,
            pytest.raises(flight.FlightUnauthenticatedError) as caught,
        ):
            list(client.do_action(flight.Action("clock", b"{}"), options))
        assert type(error_of(caught.value)) is Unauthenticated
