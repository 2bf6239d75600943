"""Where an issuer's keys come from, and what is not taken. Rotation: integration/test_oidc.py."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.access.issuer_keys import IssuerKeys
from dejaqueue.errors import BadRequest
from dejaqueue.setting_groups import OidcSettings
from tests.integration.papers import Papers
from tests.unit.access.test_oidc import EC, RSA, jwk


class Web:
    """A server on loopback: paths and what they answer."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, tuple[int, Any]] = {}
        web = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = web.pages.get(self.path, (404, ""))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", content)
                self.end_headers()
                if status == 200:
                    self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.server.shutdown()
    web.server.server_close()


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


@pytest.fixture
def secured(papers: Papers) -> Iterator[Web]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*papers.broker)
    web = Web(context)
    yield web
    web.server.shutdown()
    web.server.server_close()


def settings(issuer: str, **more: Any) -> OidcSettings:
    return OidcSettings(issuer=issuer, audience="queue", **more)


def test_keys_are_found_by_way_of_the_issuer(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    web.pages["/keys"] = 200, {"keys": [jwk(RSA, "r"), jwk(EC, "e")]}
    configuration = {"issuer": web.url, "jwks_uri": f"{web.url}/keys"}
    web.pages["/.well-known/openid-configuration"] = 200, configuration
    keys = IssuerKeys(settings(web.url))
    assert keys.key("r", "RS256") is None
    keys.refresh()
    assert keys.key("r", "RS256") is not None
    assert keys.key("r", "PS512") is not None
    assert keys.key("r", "ES256") is None
    assert keys.key("e", "ES256") is not None
    assert keys.key("e", "ES384") is None, "another curve"
    assert keys.key(None, "ES256") is None, "which of them is not said"
    web.pages["/keys"] = 200, {"keys": [jwk(EC, "e")]}
    keys.refresh()
    assert keys.key("r", "RS256") is None, "taken back"
    assert keys.key(None, "ES256") is not None
    refused: list[object] = [
        {"issuer": "https://other.example", "jwks_uri": f"{web.url}/keys"},
        {"issuer": web.url, "jwks_uri": "http://192.0.2.1/keys"},
        {"issuer": web.url, "jwks_uri": "file:///etc/passwd"},
        {"issuer": web.url},
        [],
    ]
    for wrong in refused:
        web.pages["/.well-known/openid-configuration"] = 200, wrong
        caplog.clear()
        keys.refresh()
        keys.refresh()
        assert len(caplog.records) == 1, "said once"
        assert keys.key("e", "ES256") is not None, "what was known stays"


def test_what_is_no_answer_changes_nothing(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.pages["/keys"] = 200, {"keys": [jwk(EC, "e")]}
    keys = IssuerKeys(settings(web.url, keys=f"{web.url}/keys"))
    keys.refresh()
    web.pages["/elsewhere"] = 200, {"keys": []}
    answers: list[tuple[int, Any]] = [(404, ""), (302, "/elsewhere"), (200, [])]
    for answer in [*answers, (200, {"keys": 5}), (200, "x")]:
        web.pages["/keys"] = answer
        keys.refresh()
        assert keys.key("e", "ES256") is not None
    monkeypatch.setattr(limits, "OIDC_KEYS_BYTES_MAX", 20)
    web.pages["/keys"] = 200, {"keys": [], "padding": "x" * 100}
    keys.refresh()
    assert keys.key("e", "ES256") is not None


def test_no_more_keys_are_taken_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OIDC_KEYS_MAX", 2)
    file = tmp_path / "keys"
    file.write_text(json.dumps({"keys": [jwk(EC, name) for name in "abc"]}))
    keys = IssuerKeys(settings("https://issuer.example", keys=str(file)))
    keys.refresh()
    assert [keys.key(name, "ES256") is not None for name in "abc"] == [True, True, False]


@pytest.mark.parametrize("url", ["http://issuer.example", "ftp://issuer.example", "issuer"])
def test_keys_are_not_taken_from_whoever_is_on_the_way(url: str) -> None:
    with pytest.raises(BadRequest, match="oidc.issuer: https://"):
        IssuerKeys(settings(url))


def test_an_issuer_is_known_by_its_certificate_and_a_new_authority_is_taken_up(
    secured: Web, papers: Papers, tmp_path: Path
) -> None:
    secured.pages["/keys"] = 200, {"keys": [jwk(EC, "e")]}
    file = tmp_path / "authority.pem"
    file.write_bytes(Path(papers.other_ca).read_bytes())
    keys = IssuerKeys(settings("https://issuer.example", keys=f"{secured.url}/keys", ca=str(file)))
    keys.refresh()
    assert keys.key("e", "ES256") is None
    file.write_bytes(Path(papers.ca).read_bytes())
    keys.refresh()
    assert keys.key("e", "ES256") is not None


def test_a_wrong_file_of_authorities_is_named() -> None:
    with pytest.raises(BadRequest, match="oidc.ca"):
        IssuerKeys(settings("https://issuer.example", ca="/nowhere"))


def test_the_issuer_is_asked_again_but_not_too_often(web: Web) -> None:
    web.pages["/keys"] = 200, {"keys": [jwk(EC, "e")]}
    keys = IssuerKeys(settings(web.url, keys=f"{web.url}/keys"))
    assert not keys.ask_again(), "before it was started nobody would do it"
    keys.start()
    while keys.key("e", "ES256") is None:
        pass
    while keys._is_asking:
        pass
    assert not keys.ask_again(), "a moment ago"
    keys.stop()
    keys.stop()
