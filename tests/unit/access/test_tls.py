"""Certificates of the servers: which files are refused by whose name, and what a change takes up.

Not covered: handshakes on both ports (tests/integration/test_tls.py, test_rotation.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from dejaqueue.access.tls import (
    BrokerPapers,
    ServerTls,
    certificate_name,
    load_papers,
    load_tls,
)
from dejaqueue.errors import BadRequest
from dejaqueue.settings import ClusterSettings, ServerSettings


class Papers:
    """Two pairs of one authority, in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = self.write("ca.pem", self.authority.cert_pem.bytes())
        self.certificate, self.key = self.pair("a")
        self.other_certificate, self.other_key = self.pair("b")
        self.nonsense = self.write("nonsense.pem", b"no PEM")

    def write(self, name: str, content: bytes) -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def pair(self, name: str) -> tuple[str, str]:
        issued = self.authority.issue_cert("localhost")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return (
            self.write(f"{name}.pem", chain),
            self.write(f"{name}.key", issued.private_key_pem.bytes()),
        )

    def settings(self, **changed: str) -> ServerSettings:
        usual = {"tls_certificate": self.certificate, "tls_key": self.key}
        return ServerSettings(**(usual | changed))  # type: ignore[arg-type]

    def encrypted(self) -> str:
        key = serialization.load_pem_private_key(Path(self.key).read_bytes(), None)
        content = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
        return self.write("encrypted.key", content)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def test_nothing_is_loaded_where_no_certificate_is_named() -> None:
    assert load_tls(ServerSettings()) is None


def test_a_pair_is_loaded_with_who_may_sign_clients(made: Papers) -> None:
    tls = load_tls(made.settings())
    assert tls is not None
    assert (tls.certificate, tls.key) == (
        Path(made.certificate).read_bytes(),
        Path(made.key).read_bytes(),
    )
    assert tls.client_ca is None
    mutual = load_tls(made.settings(tls_client_ca=made.ca))
    assert mutual is not None
    assert mutual.client_ca == Path(made.ca).read_bytes()


def test_a_key_is_in_no_text_of_ours(made: Papers) -> None:
    assert repr(ServerTls(made.settings(tls_client_ca=made.ca))) == "ServerTls(mutual=True)"


@pytest.mark.parametrize(
    ("setting", "file", "text"),
    [
        ("tls_certificate", "none.pem", "server.tls_certificate: a PEM file that can be read"),
        ("tls_key", "none.key", "server.tls_key: a PEM file that can be read"),
        ("tls_client_ca", "none.pem", "server.tls_client_ca: a PEM file that can be read"),
        ("tls_certificate", "nonsense", "server.tls_certificate: a certificate as PEM"),
        ("tls_key", "nonsense", "server.tls_key: the private key of server.tls_certificate"),
        ("tls_client_ca", "nonsense", "server.tls_client_ca: certificates as PEM"),
        ("tls_key", "other_key", "server.tls_key: the private key of server.tls_certificate"),
        ("tls_key", "encrypted", "server.tls_key: a private key that is not encrypted"),
    ],
)
def test_a_file_that_is_no_good_is_refused_by_the_name_of_its_setting(
    made: Papers, setting: str, file: str, text: str
) -> None:
    path = getattr(made, file, str(made.folder / file))
    path = path() if callable(path) else path
    with pytest.raises(BadRequest) as refused:
        load_tls(made.settings(**{setting: path}))
    assert text in str(refused.value)
    assert repr(path) in str(refused.value)


@pytest.mark.parametrize("kind", ["server", "papers"])
def test_files_that_changed_are_taken_up_and_told__wrong_ones_change_nothing(
    tmp_path: Path, kind: str
) -> None:
    papers = Papers(tmp_path)
    tls: Any
    if kind == "server":
        tls = ServerTls(papers.settings())
    else:
        tls = load_papers(papers.settings(), ClusterSettings(tls_ca=papers.ca))
    told: list[int] = []
    tls.on_change.append(lambda: told.append(1))
    assert not tls.reload()
    assert told == []
    before = tls.context.seen
    key = Path(papers.key).read_bytes()
    Path(papers.key).write_bytes(Path(papers.other_key).read_bytes())
    with pytest.raises(BadRequest):
        tls.reload()
    assert (tls.context.seen, told) == (before, [])
    Path(papers.key).write_bytes(key)
    for mine, other in (("a.pem", "b.pem"), ("a.key", "b.key")):
        (tmp_path / mine).write_bytes((tmp_path / other).read_bytes())
    assert tls.reload()
    assert told == [1]
    assert Path(papers.other_key).read_bytes() in tls.context.seen


# --- towards other brokers ----------------------------------------------------------------------


def test_a_broker_shows_others_its_own_pair_or_that_of_the_server(made: Papers) -> None:
    shown = load_papers(made.settings(), ClusterSettings())
    assert (shown.certificate, shown.key, shown.ca) == (made.certificate, made.key, "")
    cluster = ClusterSettings(
        tls_certificate=made.other_certificate, tls_key=made.other_key, tls_ca=made.ca
    )
    shown = load_papers(made.settings(), cluster)
    assert (shown.certificate, shown.key) == (made.other_certificate, made.other_key)
    assert shown.ca == made.ca
    nothing = load_papers(ServerSettings(), ClusterSettings())
    assert (nothing.certificate, nothing.key, nothing.ca) == ("", "", "")


@pytest.mark.parametrize(
    ("setting", "file", "text"),
    [
        ("tls_ca", "nonsense", "cluster.tls_ca: certificates as PEM"),
        ("tls_certificate", "nonsense", "cluster.tls_certificate: a certificate with its key"),
        ("tls_key", "other_key", "cluster.tls_certificate: a certificate with its key"),
        ("tls_key", "encrypted", "cluster.tls_certificate: a certificate with its key"),
    ],
)
def test_papers_that_are_no_good_are_refused_by_the_name_of_their_setting(
    made: Papers, setting: str, file: str, text: str
) -> None:
    path = getattr(made, file)
    path = path() if callable(path) else path
    pair = {"tls_certificate": made.certificate, "tls_key": made.key}
    cluster: Any = ClusterSettings(**({} if setting == "tls_ca" else pair) | {setting: path})
    with pytest.raises(BadRequest) as refused:
        BrokerPapers(ServerSettings(), cluster)
    assert text in str(refused.value)


# --- names --------------------------------------------------------------------------------------

COMMON = ((("countryName", "SE"),), (("commonName", "shop"),))


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (None, ""),
        ({}, ""),
        ({"subject": COMMON}, "shop"),
        ({"subject": COMMON, "subjectAltName": (("DNS", "a.example"), ("DNS", "b"))}, "a.example"),
        (
            {"subject": COMMON, "subjectAltName": (("DirName", "x"), ("URI", "spiffe://s"))},
            "spiffe://s",
        ),
        ({"subject": COMMON, "subjectAltName": (("Registered ID", "1.2"),)}, "shop"),
        ({"subject": COMMON, "subjectAltName": (("IP Address", "10.0.0.1"),)}, "10.0.0.1"),
        ({"subject": ((("countryName", "SE"),),)}, ""),
    ],
)
def test_a_caller_is_known_by_the_first_name_that_counts(shown: Any, name: str) -> None:
    assert certificate_name(shown) == name
