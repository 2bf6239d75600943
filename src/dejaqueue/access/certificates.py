"""Certificates: until when they are good, and whether others may read their keys.

Room: access. Reads the files that it is told; judges no chain.
See: tls.py, which the broker loads them with; cli/doctor/tls.py and broker/watching/findings.py,
which ask.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dejaqueue.findings import Finding, fine, hurts, look

if TYPE_CHECKING:
    from dejaqueue.settings import BrokerSettings

SOON = timedelta(days=30)
VERY_SOON = timedelta(days=7)
_END = "-----END CERTIFICATE-----"
_UTC_TIME, _GENERALIZED_TIME, _CONTEXT_0 = 0x17, 0x18, 0xA0


def check_papers(settings: BrokerSettings, now_ms: int) -> Iterator[Finding]:
    """What there is to say of every certificate and private key that the settings name.

    Raises:
        OSError, ValueError: one cannot be read, or is no certificate.
    """
    server, cluster = settings.server, settings.cluster
    for path in dict.fromkeys((server.tls_certificate, cluster.tls_certificate)):
        if path:
            yield check_end(path, now_ms)
    for path in dict.fromkeys((server.tls_key, cluster.tls_key)):
        if path:
            yield from check_key_file(path)


def check_end(path: str, now_ms: int) -> Finding:
    """Whether a certificate is good for some time to come. Raises OSError, ValueError."""
    end = certificate_end(Path(path).expanduser().read_text())
    left = end - datetime.fromtimestamp(now_ms / 1_000, UTC)
    shown = f"{path} ends on {end:%Y-%m-%d}"
    mend = "put a new one in its place: a running broker takes it up by itself"
    if left < timedelta(0):
        return hurts("certificates", f"{shown}: it is over", mend)
    if left < VERY_SOON:
        return hurts("certificates", f"{shown}, in {left.days} days", mend)
    if left < SOON:
        return look("certificates", f"{shown}, in {left.days} days", mend)
    return fine("certificates", f"{shown}, in {left.days} days")


def check_key_file(path: str) -> Iterator[Finding]:
    """Whether others may read a private key. Raises OSError."""
    if Path(path).expanduser().stat().st_mode & 0o077:
        text = f"others on this machine may read the private key {path}"
        yield hurts("private key", text, f"chmod 600 {path}")


def certificate_end(text: str) -> datetime:
    """When the first certificate of a PEM file ends; of the others an authority takes care.

    The standard library reads this of a connection alone, so it is read from the DER itself:
    Certificate { TBSCertificate { [0] version, serial, algorithm, issuer, Validity { from, to } …
    """
    der = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") : text.index(_END)] + _END)
    _, certificate = _element(der)[:2]
    _, rest = _element(certificate)[:2]
    if rest[0] == _CONTEXT_0:
        rest = _element(rest)[2]
    for _ in ("serial", "algorithm", "issuer"):
        rest = _element(rest)[2]
    validity = _element(rest)[1]
    kind, end, _ = _element(_element(validity)[2])
    digits = end.decode("ascii").rstrip("Z")
    if kind == _UTC_TIME:  # two digits of a year from 1950 to 2049
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    else:
        assert kind == _GENERALIZED_TIME
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element of DER, and what comes after it."""
    size, start = der[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[2:start], "big")
    return der[0], der[start : start + size], der[start + size :]
