"""TLS and mutual TLS on both ports, with real certificates: right ones work, all others do not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue.access.tls import load_tls
from dejaqueue.client import Client, Tls
from dejaqueue.configuration import load
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.settings import ServerSettings
from tests.integration.access_fixture import Site, running
from tests.integration.papers import HOST, Papers, server_tls
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def secured(papers: Papers) -> Iterator[Site]:
    with running(server_tls(papers.broker)) as site:
        yield site


@pytest.fixture
def mutual(papers: Papers) -> Iterator[Site]:
    with running(server_tls(papers.broker, papers.ca)) as site:
        yield site


def flight_call(site: Site, tls: Tls | None, *, scheme: str = "dejaqs") -> str:
    """Ask for the time; "" or why not."""
    url = f"{scheme}://{HOST}:{site.flight.port}"
    with Client(url, tls=tls, retry_ms_max=0) as client:
        try:
            client.connect()
        except Unavailable as error:
            return str(error)
    return ""


def http_call(
    site: Site, ca: str, pair: tuple[str, str] | None = None, *, scheme: str = "https"
) -> str:
    """Ask whether it lives; "" or why not."""
    context = ssl.create_default_context(cafile=ca)
    if pair is not None:
        context.load_cert_chain(*pair)
    try:
        with httpx.Client(verify=context, timeout=PATIENCE_SECONDS) as client:
            status = client.get(f"{scheme}://{HOST}:{site.http.port}/livez").status_code
    except httpx.TransportError as error:
        return f"{type(error).__name__}: {error}"
    return "" if status == 200 else str(status)


def test_both_ports_speak_tls(secured: Site, papers: Papers) -> None:
    assert secured.flight.url.startswith("dejaqs://")
    assert flight_call(secured, Tls(ca=papers.ca)) == ""
    assert http_call(secured, papers.ca) == ""
    with Client(f"dejaqs://{HOST}:{secured.flight.port}", tls=Tls(ca=papers.ca)) as client:
        client.create_topic("t")
        client.send("t", b"x")
        [message] = client.consume("t", max_messages=1, idle_ms=20_000)
        assert message.payload == b"x"


def test_a_broker_that_somebody_else_signed_is_not_believed(secured: Site, papers: Papers) -> None:
    assert "certificate verify failed" in flight_call(secured, Tls(ca=papers.other_ca))
    assert "CERTIFICATE_VERIFY_FAILED" in http_call(secured, papers.other_ca)
    assert flight_call(secured, None) != "", "the system's certificates do not sign it either"


@pytest.mark.parametrize("which", ["expired", "elsewhere"])
def test_an_expired_certificate_or_one_for_another_name_is_not_believed(
    papers: Papers, which: str
) -> None:
    with running(server_tls(getattr(papers, which))) as site:
        assert flight_call(site, Tls(ca=papers.ca)) != ""
        assert "CERTIFICATE_VERIFY_FAILED" in http_call(site, papers.ca)
        if which == "elsewhere":
            assert flight_call(site, Tls(ca=papers.ca, server_name="queue.example")) == ""


def test_clients_need_a_certificate_where_the_broker_wants_one(
    mutual: Site, papers: Papers
) -> None:
    shop, stranger = papers.client, papers.stranger
    assert flight_call(mutual, Tls(papers.ca, *shop)) == ""
    assert http_call(mutual, papers.ca, shop) == ""
    assert flight_call(mutual, Tls(ca=papers.ca)) != ""
    assert http_call(mutual, papers.ca) != ""
    assert flight_call(mutual, Tls(papers.ca, *stranger)) != ""
    assert http_call(mutual, papers.ca, stranger) != ""
    assert flight_call(mutual, Tls(papers.ca, *papers.expired)) != ""
    assert http_call(mutual, papers.ca, papers.expired) != ""
    assert flight_call(mutual, Tls(papers.ca, *shop)) == "", "it still serves"


def test_plain_text_gets_nothing_from_a_tls_port(secured: Site, papers: Papers) -> None:
    assert flight_call(secured, None, scheme="dejaq") != ""
    assert http_call(secured, papers.ca, scheme="http") != ""
    assert http_call(secured, papers.ca) == "", "it still serves"


def test_tls_gets_nothing_from_a_plain_port(papers: Papers) -> None:
    with running() as site:
        assert flight_call(site, Tls(ca=papers.ca)) != ""
        assert http_call(site, papers.ca) != ""
        assert flight_call(site, None, scheme="dejaq") == ""
        assert http_call(site, papers.ca, scheme="http") == ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(
    secured: Site, papers: Papers, version: ssl.TLSVersion
) -> None:
    for port in (secured.flight.port, secured.http.port):
        context = ssl.create_default_context(cafile=papers.ca)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection((HOST, port), 20) as plain,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            context.wrap_socket(plain, server_hostname=HOST)


def test_a_client_that_never_shakes_hands_holds_up_nobody(secured: Site, papers: Papers) -> None:
    silent = [socket.create_connection((HOST, secured.http.port), 20) for _ in range(20)]
    try:
        assert http_call(secured, papers.ca) == ""
        assert flight_call(secured, Tls(ca=papers.ca)) == ""
    finally:
        for one in silent:
            one.close()


# --- files that are wrong ------------------------------------------------------------------------


def encrypted(papers: Papers) -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(papers.broker[1]).read_bytes(), None)
    path = papers.place / "encrypted.key"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    return papers.broker[0], str(path)


def text_file(papers: Papers) -> str:
    path = papers.place / "text.pem"
    path.write_text("hello")
    return str(path)


WRONG: list[tuple[str, str, Callable[[Papers], tuple[str, str, str]]]] = [
    ("server.tls_key", "MISMATCH", lambda p: (p.broker[0], p.client[1], "")),
    ("server.tls_key", "not encrypted", lambda p: (*encrypted(p), "")),
    ("server.tls_key", "can be read", lambda p: (p.broker[0], "/nowhere/key.pem", "")),
    ("server.tls_key", "as PEM", lambda p: (p.broker[0], text_file(p), "")),
    ("server.tls_certificate", "can be read", lambda p: ("/nowhere/c.pem", p.broker[1], "")),
    ("server.tls_certificate", "as PEM", lambda p: (text_file(p), p.broker[1], "")),
    ("server.tls_client_ca", "can be read", lambda p: (*p.broker, "/nowhere/ca.pem")),
    ("server.tls_client_ca", "as PEM", lambda p: (*p.broker, text_file(p))),
]


@pytest.mark.parametrize(("setting", "text", "files"), WRONG)
def test_wrong_files_are_refused_at_start_by_their_setting(
    papers: Papers,
    setting: str,
    text: str,
    files: Callable[[Papers], tuple[str, str, str]],
) -> None:
    certificate, key, client_ca = files(papers)
    settings = ServerSettings(tls_certificate=certificate, tls_key=key, tls_client_ca=client_ca)
    with pytest.raises(BadRequest, match=text) as caught:
        load_tls(settings)
    assert caught.value.field == setting
    assert "PRIVATE KEY" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [{"tls_certificate": "a"}, {"tls_key": "a"}, {"tls_client_ca": "a"}],
    ids=lambda given: next(iter(given)),
)
def test_settings_that_belong_together_are_refused_alone(given: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match="tls_certificate"):
        load(None, {f"server.{name}": ("--set", value) for name, value in given.items()})


def test_no_settings_are_no_tls(papers: Papers) -> None:
    assert load_tls(ServerSettings()) is None
    shown = repr(server_tls(papers.broker, papers.ca))
    assert "PRIVATE" not in shown
    assert len(shown) < 100


def test_many_connect_at_once(mutual: Site, papers: Papers) -> None:
    found: list[str] = []
    tls = Tls(papers.ca, *papers.client)
    threads = [
        threading.Thread(target=lambda: found.append(flight_call(mutual, tls))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert found == [""] * 8
