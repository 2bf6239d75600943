"""What a client shows: headers and files, and what it never shows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dejaqueue.client import Client, Tls
from dejaqueue.client.credentials import headers_of
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import BadRequest

NEAR, FAR = "dejaq://localhost", "dejaq://queue.example"


def test_a_key_goes_as_a_bearer() -> None:
    assert headers_of(None, NEAR) == []
    assert headers_of("dq_1_2", NEAR) == [(b"authorization", b"Bearer dq_1_2")]


@pytest.mark.parametrize("key", ["", "a b", "a\n", "é", "x" * 7_169, 5])
def test_what_is_no_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(BadRequest, match="api_key") as caught:
        headers_of(key, NEAR)
    assert "got: '***'" in str(caught.value)


def test_a_key_in_plain_text_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dejaqueue.client")
    for url in (NEAR, "dejaq://127.0.0.1:5", "dejaq://[::1]:5", "dejaqs://queue.example"):
        headers_of("dq_1_secret", url)
    assert caplog.records == []
    headers_of(None, FAR)
    headers_of("dq_1_secret", FAR)
    [record] = caplog.records
    assert "queue.example" in record.getMessage()
    assert "secret" not in caplog.text


def test_files_are_read_and_named_when_they_cannot_be(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    found = Tls(ca=pem, certificate=pem, key=str(pem), server_name="x").arguments()
    assert set(found) == {"tls_root_certs", "cert_chain", "private_key", "override_hostname"}
    assert Tls().arguments() == {}
    with pytest.raises(BadRequest, match="tls: certificate and key together"):
        Tls(certificate=pem).arguments()
    with pytest.raises(BadRequest, match=r"tls\.ca: a PEM file that can be read"):
        Tls(ca=tmp_path / "none").arguments()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadRequest, match=r"tls\.key: a PEM file, got"):
        Tls(certificate=pem, key=tmp_path / "text").arguments()


def test_tls_files_belong_to_dejaqs() -> None:
    with pytest.raises(BadRequest, match="dejaqs://"):
        FlightTransport(NEAR, None, Tls())


def test_a_client_does_not_show_its_key() -> None:
    with Client(NEAR, api_key="dq_1_secret") as client:
        assert "secret" not in f"{client!r}{client._core!r}{client._core.transport!r}"
