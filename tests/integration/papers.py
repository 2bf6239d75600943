"""Certificates in files, for brokers and clients: right ones, and such as are no good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from dejaqueue.access.tls import ServerTls, load_tls
from dejaqueue.clock import SystemClock
from dejaqueue.settings import ServerSettings

HOST = "localhost"
NOW = datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC)


class Papers:
    """Certificates in files."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ours, self.theirs = trustme.CA(), trustme.CA()
        self.ca = self._write("ca.pem", self.ours.cert_pem)
        self.other_ca = self._write("other-ca.pem", self.theirs.cert_pem)
        self.broker = self._pair("broker", self.ours.issue_cert(HOST, "127.0.0.1"))
        self.elsewhere = self._pair("elsewhere", self.ours.issue_cert("queue.example"))
        self.expired = self._pair(
            "expired",
            self.ours.issue_cert(
                HOST,
                "127.0.0.1",
                not_before=NOW - timedelta(days=9),
                not_after=NOW - timedelta(days=1),
            ),
        )
        self.client = self._pair("client", self.ours.issue_cert("shop@queue.example"))
        self.stranger = self._pair("stranger", self.theirs.issue_cert("shop@queue.example"))

    def issue(self, name: str, *names: str, common_name: str | None = None) -> tuple[str, str]:
        """A pair of files that our authority signed."""
        return self._pair(name, self.ours.issue_cert(*names, common_name=common_name))

    def _write(self, name: str, blob: trustme.Blob) -> str:
        path = self.place / name
        blob.write_to_path(str(path))
        return str(path)

    def _pair(self, name: str, issued: trustme.LeafCert) -> tuple[str, str]:
        chain = self.place / f"{name}.pem"
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(chain), append=True)
        return str(chain), self._write(f"{name}.key", issued.private_key_pem)


def server_tls(pair: tuple[str, str], client_ca: str = "") -> ServerTls:
    settings = ServerSettings(tls_certificate=pair[0], tls_key=pair[1], tls_client_ca=client_ca)
    found = load_tls(settings)
    assert found is not None
    return found
