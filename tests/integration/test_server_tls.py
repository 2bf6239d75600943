"""Servers of journals and coordinators under TLS: files in the URL, and none but the right ones."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream import find_program
from dejaqueue.connections.cassandra import CassandraSession
from dejaqueue.connections.nats.monitor import HttpMonitor
from dejaqueue.connections.redis import RedisConnection
from dejaqueue.connections.tls import client_context
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.testing.record_conformance import patiently
from dev.services import registry
from dev.services.service import Service
from tests.integration.papers import Papers
from tests.patience import PATIENCE_SECONDS
from tests.record_servers import RedisServer, redis_program, wait_for_port


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def test_redis_is_known_by_its_certificate_and_wants_ours(papers: Papers, tmp_path: Path) -> None:
    pytest.importorskip("redis")
    port = free_port()
    server = RedisServer(
        redis_program(),
        tmp_path,
        *("--tls-port", str(port), "--tls-auth-clients", "yes"),
        *("--tls-cert-file", papers.broker[0], "--tls-key-file", papers.broker[1]),
        *("--tls-ca-cert-file", papers.ca),
    )
    try:
        ours = {"certificate": papers.client[0], "key": papers.client[1]}
        right = {"ca": papers.ca} | ours
        url = f"rediss://localhost:{port}?"
        facts = open_coordinator(url + urlencode(right))
        assert facts.put("k", b"v", 0) > 0
        facts.close()
        for wrong in ({"ca": papers.ca}, {"ca": papers.other_ca} | ours, ours):
            with pytest.raises(Unavailable):
                RedisConnection(url + urlencode(wrong)).close()
    finally:
        server.kill()


@pytest.fixture
def public(papers: Papers) -> Iterator[Path]:
    """The broker's papers where a server of another user's can read them."""
    place = Path(tempfile.mkdtemp(prefix="dejaq-papers-"))
    place.chmod(0o755)
    for path in (papers.ca, *papers.broker):
        shutil.copy(path, place)
        (place / Path(path).name).chmod(0o644)
    yield place
    shutil.rmtree(place)


def started(name: str, **settings: str) -> Service:
    lacking = registry.missing(name)
    if lacking and not os.environ.get("REQUIRE_ALL"):
        pytest.skip(lacking)
    return registry.start(name, **settings)


@pytest.fixture
def mariadb(public: Path) -> Iterator[Service]:
    files = {"ssl-ca": "ca.pem", "ssl-cert": "broker.pem", "ssl-key": "broker.key"}
    with started("mariadb", **{name: str(public / file) for name, file in files.items()}) as one:
        yield one


def test_mariadb_is_known_by_its_certificate(papers: Papers, mariadb: Service) -> None:
    address = urlsplit(mariadb.url)
    login = address.netloc.rpartition("@")[0]
    url = f"mysql://{login}@127.0.0.1:{mariadb.port}{address.path}?ssl_ca="
    facts = open_coordinator(url + papers.ca)
    assert facts.put("k", b"v", 0) > 0
    facts.close()
    with pytest.raises(DejaQError):
        open_coordinator(url + papers.other_ca).get("k")


@pytest.fixture
def postgresql(public: Path) -> Iterator[Service]:
    if os.getuid() == 0:
        shutil.chown(public / "broker.key", "postgres")
    (public / "broker.key").chmod(0o600)
    files = {"ssl_cert_file": "broker.pem", "ssl_key_file": "broker.key"}
    settings = {name: str(public / file) for name, file in files.items()}
    with started("postgresql", ssl="on", **settings) as one:
        yield one


def test_postgresql_is_known_by_its_certificate(papers: Papers, postgresql: Service) -> None:
    url = (
        f"postgresql://dejaq@localhost:{postgresql.port}/postgres?sslmode=verify-full&sslrootcert="
    )
    facts = open_coordinator(url + papers.ca)
    assert facts.put("k", b"v", 0) > 0
    facts.close()
    with pytest.raises(DejaQError):
        open_coordinator(url + papers.other_ca).get("k")


@pytest.fixture
def nats(papers: Papers, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """JetStream with TLS on both its ports, which lets in nobody without a certificate."""
    port, monitor = free_port(), free_port()
    certificate, key = papers.broker
    (tmp_path / "conf").write_text(
        f'https: "127.0.0.1:{monitor}"\n'
        f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{papers.ca}", '
        "verify: true }\n"
        f'jetstream {{ store_dir: "{tmp_path / "store"}", sync_interval: always }}\n'
    )
    words = ["-a", "127.0.0.1", "-p", str(port), "-c", str(tmp_path / "conf")]
    with (tmp_path / "log").open("wb") as file:
        process = subprocess.Popen([find_program(), *words], stderr=file)
    wait_for_port(port)
    yield port, monitor
    process.kill()
    process.wait()


def test_nats_and_its_monitoring_are_known_by_their_certificate(
    papers: Papers, nats: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("nats")
    port, monitor = nats
    ours = {"certificate": papers.client[0], "key": papers.client[1]}
    right = {"ca": papers.ca} | ours
    url = f"nats://localhost:{port}?monitor=https://127.0.0.1:{monitor}&"
    patiently(lambda: NatsRecordStore(url + urlencode(right))).close()
    assert "tell their settings" not in caplog.text
    [report] = HttpMonitor(
        [f"https://127.0.0.1:{monitor}"], tls=client_context(right, "")
    ).reports()
    assert report.sync_always
    strange = client_context({"ca": papers.other_ca} | ours, "")
    assert HttpMonitor([f"https://127.0.0.1:{monitor}"], tls=strange).reports() == []
    for wrong in ({"ca": papers.ca}, {"ca": papers.other_ca} | ours):
        with pytest.raises(Unavailable):
            NatsRecordStore(url + urlencode(wrong)).close()


def test_cassandra_for_another_name_hears_no_password(papers: Papers) -> None:
    """A node whose certificate is good, and somebody else's; conformance has a real one."""
    pytest.importorskip("cassandra")
    heard: list[bytes | str] = []

    def serve(listening: socket.socket, context: ssl.SSLContext) -> None:
        with suppress(OSError):  # the test closes it
            while True:
                came, _ = listening.accept()
                with came, suppress(OSError), context.wrap_socket(came, server_side=True) as one:
                    heard.append(one.recv(1_000))

    for pair, is_heard in ((papers.elsewhere, False), (papers.broker, True)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=serve, args=(listening, context), daemon=True)
            thread.start()
            port = listening.getsockname()[1]
            with pytest.raises(Unavailable):
                CassandraSession(f"cassandra://me:secret@localhost:{port}?ca={papers.ca}")
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_SECONDS)
        assert any(heard) == is_heard
