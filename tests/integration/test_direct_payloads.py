"""Covers: streamed payloads that go between the Python client and an object store directly, by URLs
that the broker signs: with the Versity gateway, Azurite and moto; and what goes through the broker
then: where the client does not reach the store, is told not to use it, meets another server at its
address, or a signature that has ended.

Not covered: how fast it is (bench/streamed_payloads.py); the requests themselves
(tests/unit/client/test_direct_transfer.py).
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from dejaqueue import Client, limits
from dejaqueue.access.quotas import Account
from dejaqueue.client.direct_transfer import AT_ONCE
from dejaqueue.client.streamed import DIRECT_FROM
from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.setting_groups import PayloadSettings
from dev.services import missing, start
from dev.services.azurite import Azurite
from dev.services.versitygw import Versitygw
from tests.integration.access_fixture import Site, running
from tests.integration.test_streamed_payloads import read_one
from tests.object_store import S3Server, changed_environment, s3_server
from tests.patience import PATIENCE_SECONDS, until

PARTS = DIRECT_FROM + 6
CONTENT = os.urandom((PARTS - 1) * limits.PART_BYTES) + b"the end"
LARGE = 64 << 20
IDLE_MS = PATIENCE_SECONDS * 1_000
HERE = "127.0.0.1"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture(scope="module", params=["versitygw", "azurite", "moto"])
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    if request.param == "moto":
        yield Bucket(request.getfixturevalue("s3").new_bucket())
        return
    lacking = missing(request.param)
    if lacking is not None:
        pytest.skip(f"{lacking} is not installed")
    with start(request.param) as store:
        assert isinstance(store, Versitygw | Azurite)
        yield Bucket(store.new_bucket("direct"), store.environment)


class Bucket(NamedTuple):
    """A bucket, and what has to be in the environment of whoever opens it."""

    url: str
    environment: Mapping[str, str] = {}


class Watched:
    """A broker whose payload store is watched, and a client of it.

    Attributes:
        stored, read: names of parts that the broker itself stored and read.
        changed: what becomes of each signed URL.
    """

    def __init__(self, site: Site, client: Client) -> None:
        self.site, self.client = site, client
        self.stored: list[str] = []
        self.read: list[str] = []
        self.changed: Callable[[str], str] = lambda url: url
        store: Any = site.broker.payloads.store
        self.store: Any = store
        put, get, sign = store.put_ahead, store.get_object, store.sign

        def put_ahead(name: str, content: bytes | memoryview) -> None:
            self.stored.append(name)
            put(name, content)

        def get_object(name: str) -> bytes | None:
            if name.rpartition("/")[2].isdigit():
                self.read.append(name)
            found: bytes | None = get(name)
            return found

        def signed(method: str, names: Sequence[str], length_ms: int) -> list[str]:
            return [self.changed(url) for url in sign(method, names, length_ms)]

        self.store.put_ahead, self.store.get_object = put_ahead, get_object
        self.store.sign = signed

    def new_topic(self, name: str) -> str:
        self.client.create_topic(name, max_payload_bytes=LARGE)
        return name

    def at(self, port: int) -> None:
        """Have signed URLs lead to another port of this machine."""

        def changed(url: str) -> str:
            return url.replace(urlsplit(url).netloc, f"{HERE}:{port}", 1)

        self.changed = changed


@contextmanager
def watched(bucket: Bucket, **settings: Any) -> Iterator[Watched]:
    payloads = PayloadSettings(url=f"{bucket.url}/payloads", **settings)
    with ExitStack() as stack:
        with changed_environment(bucket.environment):
            site = stack.enter_context(running(payloads=payloads))
        client = stack.enter_context(Client(f"dejaq://{HERE}:{site.flight.port}"))
        yield Watched(site, client)


@pytest.fixture
def here(bucket: Bucket) -> Iterator[Watched]:
    with watched(bucket) as made:
        yield made


@pytest.fixture
def gateway(s3: S3Server) -> Iterator[Watched]:
    """The same with moto's server alone: what is tested is not the store's."""
    with watched(Bucket(s3.new_bucket())) as made:
        yield made


@contextmanager
def answering(status: int, body: bytes = b"") -> Iterator[int]:
    """The port of a server that answers all it is asked in the same way."""

    class Same(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _answer  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer((HERE, 0), Same)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as bound:
        bound.bind((HERE, 0))
        return int(bound.getsockname()[1])


# --- directly -------------------------------------------------------------------------------------


def test_parts_go_past_the_broker_both_ways(here: Watched) -> None:
    topic = here.new_topic("direct")
    here.client.send(topic, io.BytesIO(CONTENT))
    assert len(here.stored) == DIRECT_FROM  # the first few, of which nobody knows how many follow
    assert read_one(here.client, topic) == CONTENT
    assert here.read == []


def test_a_small_payload_goes_through_the_broker(gateway: Watched) -> None:
    topic, small = gateway.new_topic("small"), CONTENT[: 2 * limits.PART_BYTES]
    gateway.client.send(topic, io.BytesIO(small))
    assert read_one(gateway.client, topic) == small
    assert (len(gateway.stored), len(gateway.read)) == (2, 2)


def test_what_is_sent_in_one_message_is_not_copied(here: Watched) -> None:
    topic = here.new_topic("once")
    here.client.send(topic, io.BytesIO(CONTENT))
    names = [one.name for one in here.store.objects(f"{here.site.broker.payloads.id}/")]
    assert len({name.rpartition("/")[0] for name in names}) == 1
    assert len(names) == PARTS + 2  # the list, and what says that a message has it
    voucher = here.client.upload(topic, io.BytesIO(CONTENT), once=True)
    here.client.send(topic, voucher)
    here.client.send(topic, voucher)
    for _ in range(3):
        assert read_one(here.client, topic) == CONTENT
        here.site.broker._payload_collector.delete_doomed(0)


def test_a_download_that_breaks_off_ends_its_requests(gateway: Watched) -> None:
    topic = gateway.new_topic("broken")
    gateway.client.send(topic, io.BytesIO(CONTENT))
    with gateway.client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            with message.open() as payload:
                assert payload.read(10) == CONTENT[:10]
            with message.open() as payload:
                assert b"".join(payload) == CONTENT
            message.ack()


def test_what_goes_past_the_broker_counts_as_sent(
    gateway: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    take = Account.take_sent

    def take_sent(self: Account, rows: int, byte_count: int, *, wait: bool = True) -> None:
        counted.append(byte_count)
        take(self, rows, byte_count, wait=wait)

    monkeypatch.setattr(Account, "take_sent", take_sent)
    topic = gateway.new_topic("counted")
    gateway.client.upload(topic, io.BytesIO(CONTENT))
    # The URLs are asked for while the last of the others are on their way.
    assert sorted(counted) == [limits.PART_BYTES] * DIRECT_FROM + [AT_ONCE * limits.PART_BYTES]


# --- through the broker instead -------------------------------------------------------------------


def test_a_store_that_the_client_does_not_reach_is_reached_by_the_broker(gateway: Watched) -> None:
    topic = gateway.new_topic("far")
    gateway.at(closed_port())
    gateway.client.send(topic, io.BytesIO(CONTENT))
    assert len(gateway.stored) == PARTS
    assert read_one(gateway.client, topic) == CONTENT
    assert len(gateway.read) == PARTS
    gateway.changed = lambda _url: pytest.fail("it is left alone for a minute")
    gateway.client.send(topic, io.BytesIO(CONTENT))


def test_the_setting_has_all_go_through_the_broker(s3: S3Server) -> None:
    with watched(Bucket(s3.new_bucket()), direct=False) as here:
        topic = here.new_topic("through")
        here.changed = lambda _url: pytest.fail("no URL is signed")
        here.client.send(topic, io.BytesIO(CONTENT))
        assert read_one(here.client, topic) == CONTENT
        assert (len(here.stored), len(here.read)) == (PARTS, PARTS)


@pytest.mark.parametrize(("status", "body"), [(403, b"no"), (200, b"short")])
def test_another_server_at_that_address_is_left(gateway: Watched, status: int, body: bytes) -> None:
    topic = gateway.new_topic(f"other-{status}")
    gateway.client.send(topic, io.BytesIO(CONTENT))
    with answering(status, body) as port:
        gateway.at(port)
        assert read_one(gateway.client, topic) == CONTENT
    assert len(gateway.read) == PARTS


def test_bytes_of_somebody_else_are_no_part(gateway: Watched) -> None:
    topic = gateway.new_topic("lies")
    gateway.client.send(topic, io.BytesIO(CONTENT))
    with answering(200, bytes(limits.PART_BYTES)) as port:
        gateway.at(port)
        assert read_one(gateway.client, topic) == CONTENT
    assert len(gateway.read) == PARTS


def test_a_part_that_a_server_took_and_did_not_store_ends_the_upload(gateway: Watched) -> None:
    topic = gateway.new_topic("lost")
    with answering(200) as port:
        gateway.at(port)
        with pytest.raises(BadRequest, match=f"part {DIRECT_FROM}: stored with"):
            gateway.client.send(topic, io.BytesIO(CONTENT))


def test_a_wrong_part_is_refused_when_it_is_read(gateway: Watched) -> None:
    topic = gateway.new_topic("wrong")
    gateway.client.send(topic, io.BytesIO(CONTENT))
    own = gateway.site.broker.payloads.id
    [name] = [one.name for one in gateway.store.objects(f"{own}/") if one.name.endswith("00009")]
    gateway.store.put_object(name, bytes(limits.PART_BYTES))
    with gateway.client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            read = 0
            with message.open() as payload, pytest.raises(JournalDamaged, match="part 9"):
                while piece := payload.read(limits.PART_BYTES):
                    read += len(piece)
            assert read == 9 * limits.PART_BYTES
            message.nack(dead=True)


class Cutting:
    """Leads to a server, and cuts each of its first connections after so many bytes."""

    def __init__(self, port: int, cuts: int, byte_count: int) -> None:
        self._port, self._byte_count = port, byte_count
        self._mutex = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.cuts_left = cuts
        self._listener = socket.create_server((HERE, 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((HERE, self._port))
            self._sockets += [near, far]
            with self._mutex:
                cut = self.cuts_left > 0
                self.cuts_left -= cut
            for source, target in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(source, target, cut))
                thread.start()
                self._threads.append(thread)

    def _pass_on(self, source: socket.socket, target: socket.socket, cut: bool) -> None:
        left = self._byte_count if cut else 1 << 62
        try:
            while left > 0 and (piece := source.recv(min(left, 1 << 16))):
                target.sendall(piece)
                left -= len(piece)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        for one in self._sockets:
            one.close()


def test_what_is_cut_on_its_way_goes_on_through_the_broker(gateway: Watched, s3: S3Server) -> None:
    topic = gateway.new_topic("cut")
    port = urlsplit(s3.endpoint).port
    assert port is not None
    for way in ("up", "down"):
        cutting = Cutting(port, cuts=3, byte_count=300_000)
        gateway.at(cutting.port)
        gateway.client._core.part_calls._direct_from_us = 0  # the minute is over
        try:
            if way == "up":
                gateway.client.send(topic, io.BytesIO(CONTENT))
                assert PARTS >= len(gateway.stored) > DIRECT_FROM
            else:
                read = read_one(gateway.client, topic)
                assert hashlib.sha256(read).digest() == hashlib.sha256(CONTENT).digest()
                assert gateway.read
        finally:
            cutting.close()
        assert cutting.cuts_left < 3


def test_a_signature_that_has_ended_has_the_part_go_through_the_broker() -> None:
    """The gateway keeps to the time; moto does not."""
    lacking = missing("versitygw")
    if lacking is not None:
        pytest.skip(f"{lacking} is not installed")
    with start("versitygw") as store:
        assert isinstance(store, Versitygw)
        with watched(Bucket(store.new_bucket("ended"), store.environment)) as here:
            topic = here.new_topic("ended")
            here.client.send(topic, io.BytesIO(CONTENT))
            sign = here.store._bucket.sign
            here.store.sign = lambda method, names, _length_ms: sign(method, names, 1_000)
            with here.client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
                for message in messages:
                    with message.open() as payload:
                        first = payload.read(limits.PART_BYTES)
                        transfer: Any = payload._download._direct  # type: ignore[union-attr]
                        last = transfer._signed.urls[-1]
                        until(partial(_has_ended, last), "the URL has ended")
                        rest = b"".join(payload)
                    message.ack()
            assert first + rest == CONTENT
            assert here.read


def _has_ended(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=PATIENCE_SECONDS).close()
    except urllib.error.HTTPError as wrong:
        with wrong:
            return wrong.code == 403
    return False
