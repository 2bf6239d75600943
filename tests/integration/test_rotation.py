"""Certificates, keys and authorities that change while a broker runs: both ports, real handshakes.

Covered: new connections see the new files, streams that were open go on, wrong files change
nothing, an authority that was taken out lets nobody in any more. Not here: SIGHUP and the files
watched by a process (tests/cli/test_serve_secured.py).
"""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dejaqueue.access.tls import ServerTls, load_tls
from dejaqueue.client import Client, Tls
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.http.health import HealthServer
from dejaqueue.settings import ServerSettings
from tests.integration.access_fixture import Site, running
from tests.integration.papers import HOST, Papers
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


class Place:
    """The files that a broker was given, to be changed."""

    def __init__(self, papers: Papers, pair: tuple[str, str], client_ca: str = "") -> None:
        self.papers = papers
        self.certificate = str(papers.place / "live.pem")
        self.key = str(papers.place / "live.key")
        self.client_ca = str(papers.place / "live-ca.pem") if client_ca else ""
        self.put(pair, client_ca)

    def put(self, pair: tuple[str, str], client_ca: str = "") -> None:
        shutil.copy(pair[0], self.certificate)
        shutil.copy(pair[1], self.key)
        if client_ca:
            shutil.copy(client_ca, self.client_ca)

    def tls(self) -> ServerTls:
        names = {"certificate": self.certificate, "key": self.key, "client_ca": self.client_ca}
        given: dict[str, Any] = {f"tls_{name}": path for name, path in names.items()}
        found = load_tls(ServerSettings(**given))
        assert found is not None
        return found


def second(papers: Papers) -> tuple[str, str]:
    pair = str(papers.place / "second.pem"), str(papers.place / "second.key")
    if not Path(pair[0]).exists():
        papers.issue("second", HOST, "127.0.0.1", "second.example")
    return pair


def names_shown(port: int, papers: Papers, own: tuple[str, str] | None = None) -> list[str]:
    """The DNS names in the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=papers.ca)
    if own is not None:
        context.load_cert_chain(*own)
    with (
        socket.create_connection((HOST, port), 20) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        shown = secured.getpeercert()
    assert shown is not None
    names: Any = shown["subjectAltName"]  # pairs, which the stubs do not know
    return [name for kind, name in names if kind == "DNS"]


@pytest.fixture
def rotating(papers: Papers) -> Iterator[tuple[Site, ServerTls, Place]]:
    place = Place(papers, papers.broker)
    tls = place.tls()
    with running(tls) as site:
        yield site, tls, place


def test_new_connections_see_the_new_certificate_and_streams_go_on(
    rotating: tuple[Site, ServerTls, Place], papers: Papers
) -> None:
    site, tls, place = rotating
    port = site.flight.port
    with Client(f"dejaqs://{HOST}:{port}", tls=Tls(ca=papers.ca)) as client:
        client.create_topic("t")
        # Batches of more rows than a lane has: they come on a stream of Flight.
        taken = iter(client.consume_batches("t", batch_rows=2_000, idle_ms=60_000))
        client.send("t", b"before")
        assert next(taken).batch["payload"].to_pylist() == [b"before"]
        web = httpx.Client(
            verify=ssl.create_default_context(cafile=papers.ca), timeout=PATIENCE_SECONDS
        )
        assert web.get(f"https://{HOST}:{site.http.port}/livez").status_code == 200
        assert names_shown(port, papers) == [HOST]
        place.put(second(papers))
        assert tls.reload()
        assert site.flight.port == port
        for _ in range(10):
            assert names_shown(port, papers) == [HOST, "second.example"]
            assert names_shown(site.http.port, papers) == [HOST, "second.example"]
        old_stream = site.flight._generations._ending[0][1]
        assert old_stream.is_alive(), "the consumer's stream is still the one of before"
        client.send("t", b"after")
        assert next(taken).batch["payload"].to_pylist() == [b"after"]
        assert old_stream.is_alive()
        # A connection of HTTP that was open is still the same one.
        assert web.get(f"https://{HOST}:{site.http.port}/livez").status_code == 200
        web.close()
        taken.close()
    old_stream.join(PATIENCE_SECONDS)
    assert not old_stream.is_alive(), "the old server ends with its last stream"
    assert not tls.reload(), "nothing has changed since"


def test_a_raw_stream_of_flight_is_not_cut(
    rotating: tuple[Site, ServerTls, Place], papers: Papers
) -> None:
    """A bare client, so that nothing of ours could connect anew without our seeing it."""
    import json

    import pyarrow.flight as flight

    from dejaqueue.schema.messages import SEND

    site, tls, place = rotating
    port, root = site.flight.port, Path(papers.ca).read_bytes()
    with Client(f"dejaqs://{HOST}:{port}", tls=Tls(ca=papers.ca)) as client:
        client.create_topic("t")
    bare = flight.FlightClient(f"grpc+tls://{HOST}:{port}", tls_root_certs=root)
    command = json.dumps({"op": "enqueue", "topic": "t"}).encode()
    writer, replies = bare.do_put(flight.FlightDescriptor.for_command(command), SEND)
    row = pa.RecordBatch.from_pylist(
        [{"payload": b"x", "due": 0, "priority": 0, "partition": 0}], schema=SEND
    )
    for number in range(3):
        if number == 1:
            place.put(second(papers))
            assert tls.reload()
        writer.write_with_metadata(row, number.to_bytes(4, "little"))
        assert replies.read() is not None
    writer.close()
    found = site.broker.call("stats")["topics"]["t"]
    assert found["scheduled"] == 3
    bare.close()


def test_wrong_files_change_nothing(
    rotating: tuple[Site, ServerTls, Place], papers: Papers
) -> None:
    site, tls, place = rotating
    shutil.copy(second(papers)[0], place.certificate)  # the key comes a moment later
    with pytest.raises(BadRequest, match="MISMATCH"):
        tls.reload()
    Path(place.key).unlink()
    with pytest.raises(BadRequest, match="can be read"):
        tls.reload()
    assert names_shown(site.flight.port, papers) == [HOST]
    assert names_shown(site.http.port, papers) == [HOST]
    place.put(second(papers))
    assert tls.reload()
    assert names_shown(site.flight.port, papers) == [HOST, "second.example"]


def test_an_authority_that_was_taken_out_lets_nobody_in(papers: Papers) -> None:
    place = Place(papers, papers.broker, papers.ca)
    tls = place.tls()
    with running(tls) as site:
        context = ssl.create_default_context(cafile=papers.ca)
        context.load_cert_chain(*papers.client)

        def call(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
            with (
                socket.create_connection((HOST, site.http.port), 20) as plain,
                context.wrap_socket(plain, server_hostname=HOST, session=session) as secured,
            ):
                secured.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
                answer = secured.recv(4_096)
                assert answer.startswith(b"HTTP/1.1 200"), answer
                return secured.session

        assert site.flight._generations.port
        session = call(None)
        flight_ok = Tls(papers.ca, *papers.client)
        with Client(f"dejaqs://{HOST}:{site.flight.port}", tls=flight_ok) as client:
            client.connect()
        place.put(papers.broker, papers.other_ca)
        assert tls.reload()
        # Not even by resuming what was agreed on before.
        for known in (session, None):
            with pytest.raises((OSError, AssertionError)):
                call(known)
        url = f"dejaqs://{HOST}:{site.flight.port}"
        with Client(url, tls=flight_ok, retry_ms_max=0) as client, pytest.raises(DejaQError):
            client.connect()
        with Client(url, tls=Tls(papers.ca, *papers.stranger)) as client:
            client.connect()


def test_senders_and_consumers_notice_nothing_of_many_rotations(papers: Papers) -> None:
    place = Place(papers, papers.broker)
    tls = place.tls()
    pairs = [papers.broker, second(papers)]
    with running(tls) as site:
        url = f"dejaqs://{HOST}:{site.flight.port}"
        with Client(url, tls=Tls(ca=papers.ca)) as client:
            client.create_topic("t")
        found: list[bytes] = []
        total = 200

        def take() -> None:
            with Client(url, tls=Tls(ca=papers.ca)) as client:
                taken = client.consume("t", max_messages=total, idle_ms=60_000)
                found.extend(message.payload for message in taken)

        taking = threading.Thread(target=take)
        taking.start()
        gaps = []
        with Client(url, tls=Tls(ca=papers.ca)) as client:
            for number in range(total):
                if number % 20 == 10:
                    place.put(pairs[(number // 20 + 1) % 2])
                    began = time.perf_counter()
                    assert tls.reload()
                    gaps.append(time.perf_counter() - began)
                client.send("t", str(number).encode())
        taking.join(PATIENCE_SECONDS)
        assert sorted(found) == sorted(str(number).encode() for number in range(total))
        assert max(gaps) < 10, f"nobody listened for so many seconds: {gaps}"


def test_the_health_server_shows_the_new_certificate(papers: Papers) -> None:
    place = Place(papers, papers.broker)
    tls = place.tls()
    server = HealthServer(HOST, 0, lambda: True, dict, None, tls)
    server.start()
    try:
        assert names_shown(server.port, papers) == [HOST]
        place.put(second(papers))
        tls.reload()
        assert names_shown(server.port, papers) == [HOST, "second.example"]
        with httpx.Client(
            verify=ssl.create_default_context(cafile=papers.ca), timeout=PATIENCE_SECONDS
        ) as web:
            assert web.get(f"https://{HOST}:{server.port}/livez").status_code == 200
    finally:
        server.stop()
