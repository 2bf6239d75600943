"""Tokens of a real OpenID Connect issuer (oidc-provider), over Flight and HTTP.

Covered: roles by claim, keys that rotate, a token that ends in the middle of a stream, roles that
are taken away, no question for a token that was seen. Forged ones: tests/unit/access/test_oidc.py.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from dejaqueue import limits
from dejaqueue.access.gate import Gate
from dejaqueue.access.issuer_keys import IssuerKeys
from dejaqueue.access.oidc import Tokens
from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.errors import Forbidden, Unauthenticated, Unavailable
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import OidcSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.cli.test_serve import Start, start
from tests.patience import PATIENCE_SECONDS

__all__ = ["start"]

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".venv" / "oidc-issuer"
PROGRAM = Path(__file__).parent / "oidc_issuer" / "issuer.mjs"
AUDIENCE = "https://queue.example"
pytestmark = pytest.mark.skipif(
    not (INSTALLED / "node_modules").is_dir() or shutil.which("node") is None,
    reason="no issuer: scripts/install_issuer.sh",
)


@dataclass
class Issuer:
    """The issuer's process, which can be started again with other keys."""

    place: Path
    port: int
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, keys: str) -> None:
        """Sign with the first of these keys from now on."""
        self.stop()
        program = INSTALLED / PROGRAM.name
        shutil.copy(PROGRAM, program)
        self.process = subprocess.Popen(
            ["node", str(program), str(self.port), keys, str(self.place)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        while "listening" not in (line := self.process.stdout.readline()):
            assert line, "the issuer has ended"

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate(timeout=PATIENCE_SECONDS)
            self.process = None

    def token(self, client: str, audience: str = AUDIENCE) -> str:
        login = quote(client, safe=""), quote(f"{client}-secret", safe="")
        asked = {"grant_type": "client_credentials", "resource": audience}
        answer = httpx.post(f"{self.url}/token", data=asked, auth=login, timeout=PATIENCE_SECONDS)
        token: str = answer.raise_for_status().json()["access_token"]
        return token


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    issuer = Issuer(tmp_path, port)
    issuer.run("first")
    yield issuer
    issuer.stop()


def settings_of(issuer: Issuer) -> OidcSettings:
    return OidcSettings(
        issuer=issuer.url, audience=AUDIENCE, roles_claim="realm.roles", leeway_ms=0
    )


@dataclass
class Site:
    """A broker behind both ports that believes the issuer."""

    broker: Broker
    flight: FlightServer
    http: HttpServer
    issuer_keys: IssuerKeys
    fetched: list[str] = field(default_factory=list)

    def client(self, token: str | None) -> Client:
        return Client(f"dejaq://127.0.0.1:{self.flight.port}", api_key=token, retry_ms_max=5_000)

    def get(self, path: str, token: str) -> int:
        headers = {"authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.http.port}{path}"
        return httpx.get(url, headers=headers, timeout=PATIENCE_SECONDS).status_code


@pytest.fixture
def site(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(limits, "OIDC_REFETCH_MS", 200)
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    issuer_keys = IssuerKeys(settings_of(issuer))
    issuer_keys.refresh()
    issuer_keys.start()
    gate = Gate(broker.keys, tokens=Tokens(settings_of(issuer), broker.keys, issuer_keys))
    flight = FlightServer(broker, "127.0.0.1", 0, gate=gate)
    http = HttpServer(Service(broker, gate, lambda: True), "127.0.0.1", 0)
    flight.start()
    http.start()
    site = Site(broker, flight, http, issuer_keys)
    fetch = issuer_keys._fetched

    def noted(url: str) -> Any:
        site.fetched.append(url)
        return fetch(url)

    monkeypatch.setattr(issuer_keys, "_fetched", noted)
    make = broker.keys.create
    make("root", ["admin:*"])
    make("oidc:reader", ["observe:*", "consume:t"])
    make("oidc:writer", ["produce:*", "manage:t"])
    yield site
    issuer_keys.stop()
    flight.stop()
    broker.stop()
    http.stop()


def test_the_roles_of_a_token_are_those_of_its_claim(site: Site, issuer: Issuer) -> None:
    both, reader = issuer.token("reader+writer"), issuer.token("reader")
    with site.client(both) as client:
        client.create_topic("t")
        client.send("t", b"x")
    with site.client(reader) as client:
        assert next(iter(client.consume("t", idle_ms=20_000))).payload == b"x"
        with pytest.raises(Forbidden, match="oidc:reader: no role 'produce' for topic t"):
            client.send("t", b"x")
    assert site.get("/v1/stats", reader) == 200
    assert site.get("/v1/keys", reader) == 403
    nobody = issuer.token("nobody")
    assert site.get("/v1/stats", nobody) == 403, "known, and may do nothing"
    for wrong in (issuer.token("reader", "https://other.example"), reader[:-8] + "AAAAAAAA"):
        assert site.get("/v1/stats", wrong) == 401
        with site.client(wrong) as client, pytest.raises(Unauthenticated, match="this token"):
            client.stats()


def test_a_token_that_was_seen_costs_no_question(site: Site, issuer: Issuer) -> None:
    token = issuer.token("reader")
    before = len(site.fetched)
    for _ in range(50):
        assert site.get("/v1/stats", token) == 200
    issuer.stop()
    assert site.get("/v1/stats", token) == 200, "nor does it need the issuer to be there"
    assert len(site.fetched) == before


def test_new_keys_of_the_issuer_are_learned_and_old_ones_forgotten(
    site: Site, issuer: Issuer
) -> None:
    old = issuer.token("reader")
    issuer.run("second,first")
    new = issuer.token("reader")
    answer = 503
    while answer == 503:  # it is told to wait a moment
        answer = site.get("/v1/stats", new)
    assert answer == 200
    assert site.get("/v1/stats", old) == 200
    issuer.run("second")
    site.issuer_keys.refresh()
    unseen = issuer.token("reader")
    assert site.get("/v1/stats", unseen) == 200
    assert site.issuer_keys.key("first", "RS256") is None


def test_a_token_that_ends_ends_its_streams(site: Site, issuer: Issuer) -> None:
    with site.client(issuer.token("reader+writer")) as writer:
        writer.create_topic("t")
        writer.send("t", b"x")
    brief = issuer.token("brief-reader")
    with site.client(brief) as client:
        taken = iter(client.consume("t", idle_ms=60_000))
        assert next(taken).payload == b"x"
        with pytest.raises(Unauthenticated):
            next(taken)
    assert site.get("/v1/stats", brief) == 401


def test_a_role_that_is_revoked_ends_streams_and_is_gone(site: Site, issuer: Issuer) -> None:
    token = issuer.token("reader+writer")
    with site.client(token) as client:
        client.create_topic("t")
        client.send("t", b"x")
        taken = iter(client.consume("t", idle_ms=60_000))
        assert next(taken).payload == b"x"
        site.broker.keys.revoke("oidc:reader")
        with pytest.raises((Unauthenticated, Forbidden)):
            next(taken)
    with site.client(token) as client:
        client.send("t", b"y")  # the other role is as it was
    assert site.get("/v1/stats", token) == 403
    site.broker.keys.create("oidc:reader", ["observe:*"])
    assert site.get("/v1/stats", token) == 200


def test_strange_tokens_ask_the_issuer_at_a_bounded_rate(
    site: Site, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OIDC_REFETCH_MS", 3_600_000)
    site.issuer_keys.refresh()
    before = len(site.fetched)
    _, body, signature = issuer.token("reader").split(".")
    for number in range(30):
        header = json.dumps({"alg": "RS256", "kid": str(number)}).encode()
        head = base64.urlsafe_b64encode(header).rstrip(b"=").decode()
        assert site.get("/v1/stats", f"{head}.{body}.{signature}") == 401
    assert len(site.fetched) == before


def test_a_broker_with_an_issuer_asks_even_while_there_are_no_keys(
    start: Start, issuer: Issuer
) -> None:
    named = {
        "DEJAQ_OIDC__ISSUER": issuer.url,
        "DEJAQ_OIDC__AUDIENCE": AUDIENCE,
        "DEJAQ_OIDC__ROLES_CLAIM": "realm.roles",
    }
    serve = start("--data", "memory:", "--port", "0", "--json", **named)
    where = serve.where()
    with Client(where["url"], retry_ms_max=0) as client, pytest.raises(Unauthenticated):
        client.connect()
    token = issuer.token("reader")
    with Client(where["url"], api_key=token) as client:
        client.connect()
        with pytest.raises((Forbidden, Unavailable)):
            client.send("t", b"x")
