"""Servers of journals and coordinators under TLS: files in the URL, and none but the right ones."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from dejaqueue.connections.redis import RedisConnection
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import DejaQError, Unavailable
from dev.services import registry
from dev.services.service import Service
from tests.integration.papers import Papers
from tests.record_servers import RedisServer, free_port, redis_program


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
def mariadb(papers: Papers) -> Iterator[Service]:
    lacking = registry.missing("mariadb")
    if lacking and not os.environ.get("REQUIRE_ALL"):
        pytest.skip(lacking)
    place = Path(tempfile.mkdtemp(prefix="dejaq-papers-"))
    place.chmod(0o755)
    for path in (papers.ca, *papers.broker):  # the server is another user's
        shutil.copy(path, place)
        (place / Path(path).name).chmod(0o644)
    service = registry.start(
        "mariadb",
        **{"ssl-ca": str(place / "ca.pem"), "ssl-cert": str(place / "broker.pem")},
        **{"ssl-key": str(place / "broker.key")},
    )
    try:
        yield service
    finally:
        service.stop()
        shutil.rmtree(place)


def test_mariadb_is_known_by_its_certificate(papers: Papers, mariadb: Service) -> None:
    address = urlsplit(mariadb.url)
    login = address.netloc.rpartition("@")[0]
    url = f"mysql://{login}@127.0.0.1:{mariadb.port}{address.path}?ssl_ca="
    facts = open_coordinator(url + papers.ca)
    assert facts.put("k", b"v", 0) > 0
    facts.close()
    with pytest.raises(DejaQError):
        open_coordinator(url + papers.other_ca).get("k")
