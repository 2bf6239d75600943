"""What brokers pass on to one another under TLS: a private CA, and mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

import dejaqueue
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory
from dejaqueue.access.tls import BrokerPapers, load_papers
from dejaqueue.broker.broker import Broker
from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import BadRequest, Elsewhere, Unavailable
from dejaqueue.flight.forwarding import Forwarding
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings, ServerSettings
from tests.integration.access_fixture import Site, running
from tests.integration.papers import HOST, Papers, server_tls
from tests.integration.test_forwarding import THERE, AllElsewhere
from tests.patience import PATIENCE_SECONDS


class Near(AllElsewhere):
    """As the base; over HTTP, too."""

    http_url = ""

    def elsewhere(self, topic: str) -> Elsewhere:
        return Elsewhere(f"topic {topic} is served by b", 50, "b", self.url, self.http_url)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def broker_papers(papers: Papers, pair: tuple[str, str] | None, ca: str) -> BrokerPapers:
    """As `dejaq serve` reads them."""
    server = ServerSettings(tls_certificate=pair[0], tls_key=pair[1]) if pair else ServerSettings()
    return load_papers(server, ClusterSettings(tls_ca=ca))


@contextmanager
def two(papers: Papers, shown: BrokerPapers) -> Iterator[Site]:
    """A broker that serves the topic and wants certificates; before it one that passes on."""
    with ExitStack() as stack:
        far = stack.enter_context(running(server_tls(papers.broker, papers.ca)))
        far.broker.create_topic(dejaqueue.Topic(THERE))
        shared = Near(InMemory(), f"dejaqs://{HOST}:{far.flight.port}")
        shared.http_url = f"https://{HOST}:{far.http.port}"
        broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), shared=shared)
        broker.start()
        stack.callback(broker.stop)
        gate = Gate(broker.keys)
        tls = Tls(shown.ca or None, shown.certificate or None, shown.key or None)
        flight = FlightServer(broker, gate=gate, forwarding=Forwarding(tls))
        flight.start()
        stack.callback(flight.stop)
        service = Service(broker, gate, lambda: True, forwards=True, tls=shown.context)
        http = HttpServer(service, "127.0.0.1", 0)
        http.start()
        stack.callback(http.stop)
        yield Site(broker, flight, http)


def send_by_flight(site: Site) -> int:
    client = dejaqueue.Client(transport=FlightTransport(site.flight.url), retry_ms_max=0)
    with client:
        return client.send(THERE, b"by flight")


def send_by_http(site: Site) -> httpx.Response:
    url = f"{site.http_url}/v1/topics/{THERE}/messages"
    return httpx.post(url, json={"payload": "by http"}, timeout=PATIENCE_SECONDS)


def test_a_broker_shows_its_certificate_to_another_that_wants_one(papers: Papers) -> None:
    with two(papers, broker_papers(papers, papers.broker, papers.ca)) as site:
        assert send_by_flight(site) >= 0
        assert send_by_http(site).status_code == 201


@pytest.mark.parametrize("wrong", ["no certificate", "a stranger's", "another authority"])
def test_without_the_right_papers_nothing_is_passed_on(papers: Papers, wrong: str) -> None:
    pair = {"no certificate": None, "a stranger's": papers.stranger}.get(wrong, papers.broker)
    ca = papers.other_ca if wrong == "another authority" else papers.ca
    with two(papers, broker_papers(papers, pair, ca)) as site:
        with pytest.raises(Unavailable):
            send_by_flight(site)
        assert send_by_http(site).status_code == 503


def test_files_that_cannot_be_used_are_named(papers: Papers, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"cluster\.tls_ca"):
        broker_papers(papers, papers.broker, str(tmp_path / "none"))
    with pytest.raises(BadRequest, match=r"cluster\.tls_certificate"):
        broker_papers(papers, (papers.ca, papers.ca), papers.ca)
