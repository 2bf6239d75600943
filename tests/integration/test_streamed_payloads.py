"""Covers: payloads that are streamed, through every door that has them: Python in both forms, HTTP,
the command; sent on by their voucher, broken off, encrypted in S3 with a broker that is killed.

Not covered: what becomes of them when messages end (tests/rules/test_rule_22_streamed.py); clusters
(tests/cluster/test_payloads.py); how fast and with what memory (bench/streamed_payloads.py).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue import AsyncClient, Client, limits
from dejaqueue.errors import BadRequest, JournalDamaged, Refused
from dejaqueue.payloads.payload_store import open_payload_store
from dejaqueue.schema.vouchers import is_voucher
from dejaqueue.setting_groups import PayloadSettings
from tests.crash.broker_process import BrokerProcess
from tests.integration.access_fixture import Site, running
from tests.object_store import S3Server, s3_server
from tests.patience import PATIENCE_SECONDS, until

MARKER = b"MARKER-that-nobody-may-find"
CONTENT = MARKER + os.urandom(2 * limits.PART_BYTES) + b"the end"
IDLE_MS = int(PATIENCE_SECONDS * 1_000)
LARGE = 64 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    url = str(tmp_path_factory.mktemp("payloads"))
    with running(payloads=PayloadSettings(url=url, inline_bytes_max=1_024)) as served:
        yield served


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with Client(f"dejaq://127.0.0.1:{site.flight.port}") as made:
        yield made


def in_pieces(content: bytes, size: int = 300_001) -> Iterator[bytes]:
    for first in range(0, len(content), size):
        yield content[first : first + size]


def read_one(client: Client, topic: str, size: int = 1 << 20) -> bytes:
    """The payload of the next message, read bit by bit; it is acked."""
    with client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            with message.open() as payload:
                assert payload.byte_count == message.payload_bytes
                read = b"".join(iter(lambda: payload.read(size), b""))
            message.ack()
            return read
    raise AssertionError("nothing came")


def test_a_file_is_sent_and_read_in_pieces(client: Client, tmp_path: Path) -> None:
    client.create_topic("file", max_payload_bytes=LARGE)
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    told: list[int] = []
    with path.open("rb") as file:
        voucher = client.upload("file", file, on_progress=told.append)
    assert is_voucher(voucher)
    assert sum(told) == len(CONTENT)
    client.send("file", voucher, key="one")
    assert read_one(client, "file") == CONTENT


def test_an_iterator_is_sent__what_is_small_travels_in_its_message(client: Client) -> None:
    client.create_topic("iterator", max_payload_bytes=LARGE)
    client.send("iterator", in_pieces(CONTENT))
    client.send("iterator", io.BytesIO(b"small"))
    assert read_one(client, "iterator", 77_777) == CONTENT
    with client.consume("iterator", max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            assert (message.payload, message.is_streamed) == (b"small", False)
            message.ack()


def test_a_voucher_that_was_delivered_is_sent_on_and_outlives_the_first_message(
    site: Site, client: Client
) -> None:
    for name in ("first", "second"):
        client.create_topic(name, max_payload_bytes=LARGE)
    client.send("first", io.BytesIO(CONTENT))
    with client.consume("first", max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            assert message.is_streamed
            client.send("second", message.payload)
            message.ack(wait=True)
    collector = site.broker._payload_collector
    collector.delete_doomed(0)
    assert read_one(client, "second") == CONTENT


def test_the_asynchronous_client_streams_both_ways(site: Site) -> None:
    async def both_ways() -> bytes:
        async with AsyncClient(f"dejaq://127.0.0.1:{site.flight.port}") as client:
            await client.create_topic("async", max_payload_bytes=LARGE)
            await client.send("async", io.BytesIO(CONTENT))
            async with client.consume("async", max_messages=1, idle_ms=IDLE_MS) as messages:
                async for message in messages:
                    async with await message.open() as payload:
                        head = await payload.read(10)
                        read = [piece async for piece in payload]
                    await message.ack()
                    return head + b"".join(read)
        raise AssertionError("nothing came")

    assert asyncio.run(both_ways()) == CONTENT


def test_a_topic_takes_no_more_than_it_says(client: Client) -> None:
    client.create_topic("modest")
    with pytest.raises(BadRequest, match="payload: at most 1048576 bytes"):
        client.send("modest", io.BytesIO(bytes(1_048_577)))


def test_a_voucher_of_others_and_one_without_payload_are_refused(
    site: Site, client: Client, tmp_path: Path
) -> None:
    client.create_topic("strict", max_payload_bytes=LARGE)
    with (
        running(payloads=PayloadSettings(url=str(tmp_path / "other"))) as other,
        Client(f"dejaq://127.0.0.1:{other.flight.port}") as elsewhere,
    ):
        elsewhere.create_topic("strict", max_payload_bytes=LARGE)
        foreign = elsewhere.upload("strict", io.BytesIO(CONTENT))
    with pytest.raises(BadRequest, match="payload: a voucher"):
        client.send("strict", foreign)
    voucher = client.upload("strict", io.BytesIO(CONTENT))
    reference = site.broker.payloads.seal.opened(voucher)  # type: ignore[union-attr]
    site.broker.payloads.doom([reference.name])
    site.broker._payload_collector.delete_doomed(0)
    with pytest.raises(BadRequest, match="still there"):
        client.send("strict", voucher)


def test_a_broker_without_a_store_says_so() -> None:
    with running() as plain, Client(f"dejaq://127.0.0.1:{plain.flight.port}") as client:
        client.create_topic("plain", max_payload_bytes=LARGE)
        with pytest.raises(Refused, match="payloads.url"):
            client.send("plain", io.BytesIO(CONTENT))


def test_the_json_before_a_part_is_bounded(site: Site, client: Client) -> None:
    client.create_topic("bounded")
    call = client._core.transport.action
    body = {"topic": "bounded", "upload": "", "digest": "", "index": 0, "content": b"x"}
    room = limits.CONTENT_HEAD_BYTES_MAX - len(json.dumps(body | {"content": ""}))
    for size, text in ((room - 100, "upload: base64"), (room + 100, "action.body: a JSON")):
        with pytest.raises(BadRequest, match=text):
            call("put_payload_part", body | {"upload": "!" * size}).result(PATIENCE_SECONDS)


def test_a_part_in_the_place_of_another_is_found_by_the_client(site: Site, client: Client) -> None:
    client.create_topic("swapped", max_payload_bytes=LARGE)
    client.send("swapped", io.BytesIO(CONTENT))
    store = site.broker.payloads.store
    assert store is not None
    with client.consume("swapped", max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            reference = site.broker.payloads.seal.opened(message.payload)  # type: ignore[union-attr]
            store.put_object(
                f"{reference.name}00001", store.get_object(f"{reference.name}00000") or b""
            )
            with message.open() as payload, pytest.raises(JournalDamaged, match="part 1"):
                while payload.read(1 << 20):
                    pass
            message.nack(dead=True)


def test_http_streams_both_ways_and_gives_ranges(site: Site, client: Client) -> None:
    client.create_topic("http", max_payload_bytes=LARGE)
    topic = "/v1/topics/http"
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as http:
        put = http.put(f"{topic}/payload", content=in_pieces(CONTENT))
        assert put.status_code == 201
        uploaded = put.json()
        assert uploaded["payload_bytes"] == len(CONTENT)
        message = {"payload_base64": uploaded["payload_base64"], "key": "one"}
        http.post(f"{topic}/messages", json=message).raise_for_status()
        leased = http.post(f"{topic}/lease", json={"max": 1, "wait_ms": 5_000}).json()
        [got] = leased["messages"]
        assert got["payload_bytes"] == len(CONTENT)
        asked = {"voucher": got["payload_base64"]}
        whole = http.get(f"{topic}/payload", params=asked)
        assert (whole.status_code, whole.content) == (200, CONTENT)
        first, last = limits.PART_BYTES - 5, limits.PART_BYTES + 4
        for header, expected in (
            (f"bytes={first}-{last}", CONTENT[first : last + 1]),
            ("bytes=-7", b"the end"),
            (f"bytes={len(CONTENT) - 3}-", b"end"),
        ):
            part = http.get(f"{topic}/payload", params=asked, headers={"range": header})
            assert (part.status_code, part.content) == (206, expected)
        none = http.get(
            f"{topic}/payload", params=asked, headers={"range": f"bytes={len(CONTENT)}-"}
        )
        assert none.status_code == 416
        assert none.headers["content-range"] == f"bytes */{len(CONTENT)}"
        broken = http.get(f"{topic}/payload", params={"voucher": "AAAA"})
        assert broken.status_code == 400


def test_what_breaks_off_is_collected_when_it_is_old(site: Site, client: Client) -> None:
    client.create_topic("broken", max_payload_bytes=LARGE)

    def broken() -> Iterator[bytes]:
        yield CONTENT[: limits.PART_BYTES + 10]
        yield b""
        raise ConnectionError("the program ends")

    payloads, collector = site.broker.payloads, site.broker._payload_collector
    store = payloads.store
    assert store is not None

    def stored() -> set[str]:
        return {one.name for one in store.objects(f"{payloads.id}/uploads/")}

    before = stored()
    with pytest.raises(ConnectionError, match="the program ends"):
        client.upload("broken", broken())
    until(lambda: len(stored() - before) == 1, "the part that was on its way is there")
    collector.collect()
    collector.delete_doomed(0)
    assert len(stored() - before) == 1
    collector.collect(orphan_ms=-86_400_000)
    collector.delete_doomed(0)
    assert stored() == set()


def test_parts_go_to_the_object_store_and_back_by_signed_urls(s3: S3Server) -> None:
    url = f"{s3.new_bucket()}/payloads"
    with (
        running(payloads=PayloadSettings(url=url)) as signing,
        httpx.Client(base_url=signing.http_url, timeout=PATIENCE_SECONDS) as http,
    ):
        http.post("/v1/topics", json={"name": "s", "max_payload_bytes": LARGE}).raise_for_status()
        topic = "/v1/topics/s"
        begun = http.post(f"{topic}/payload/uploads", json={"bytes": len(CONTENT)}).json()
        parts = list(in_pieces(CONTENT, begun["part_bytes"]))
        for part, place in zip(parts, begun["urls"], strict=True):
            httpx.put(place, content=part, timeout=PATIENCE_SECONDS).raise_for_status()
        hashes = [hashlib.sha256(part).digest() for part in parts]
        digests = base64.b64encode(b"".join(hashes)).decode()
        end = {"upload": begun["upload"], "bytes": len(CONTENT), "digests": digests}
        ended = http.post(f"{topic}/payload/end", json=end).raise_for_status().json()
        message = {"payload_base64": ended["voucher"]}
        http.post(f"{topic}/messages", json=message).raise_for_status()
        with Client(f"dejaq://127.0.0.1:{signing.flight.port}") as client:
            [voucher] = client.peek("s").column("payload").to_pylist()
            shown = {"voucher": base64.b64encode(voucher).decode()}
            found = http.post(f"{topic}/payload/urls", json=shown).raise_for_status().json()
            assert found["digests"] == digests
            got = [httpx.get(place, timeout=PATIENCE_SECONDS).content for place in found["urls"]]
            assert got == parts
            assert read_one(client, "s") == CONTENT


def test_a_directory_signs_nothing(site: Site, client: Client) -> None:
    client.create_topic("unsigned", max_payload_bytes=LARGE)
    unsigned = f"{site.http_url}/v1/topics/unsigned/payload/uploads"
    answer = httpx.post(unsigned, json={"bytes": 5}, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 409
    assert "go through the broker" in answer.json()["detail"]


def test_a_broker_that_is_killed_between_parts_goes_on__in_s3_encrypted(
    s3: S3Server, tmp_path: Path
) -> None:
    key = tmp_path / "master.key"
    key.touch(mode=0o600)
    key.write_text(base64.b64encode(bytes([1]) * 32).decode())
    url = f"{s3.new_bucket()}/payloads"
    broker = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        encryption__master_key=f"file:{key}",
        payloads__url=url,
    )

    def killing() -> Iterator[bytes]:
        yield CONTENT[: limits.PART_BYTES]
        broker.kill()
        broker.start()
        yield CONTENT[limits.PART_BYTES :]

    broker.start()
    try:
        with Client(broker.url) as client:
            client.create_topic("large", max_payload_bytes=LARGE)
            client.send("large", killing())
        store = open_payload_store(url, lambda: 0)
        contents = [store.get_object(one.name) or b"" for one in store.objects("")]
        assert len(contents) >= 4
        contents += [path.read_bytes() for path in tmp_path.rglob("data/**/*") if path.is_file()]
        assert all(MARKER not in content for content in contents)
        with Client(broker.url) as client:
            read = read_one(client, "large")
        assert hashlib.sha256(read).digest() == hashlib.sha256(CONTENT).digest()
    finally:
        broker.kill()
