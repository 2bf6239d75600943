"""TLS of the servers, and towards other brokers: files read and checked once, at the start.

Room: access. For both ports the same certificate.
Holds: a wrong pair is refused with the name of its setting; a private key is in no text of ours.
See: docs/guides/security.md.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from dejaqueue.errors import BadRequest
from dejaqueue.settings import ClusterSettings, ServerSettings


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a server shows and asks for.

    Attributes:
        certificate: chain of the server, PEM.
        key: its private key, PEM, not encrypted.
        client_ca: who signs clients' certificates, PEM; None = clients need none.
        context: the same, for the HTTP server.
    """

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    client_ca: bytes | None = field(repr=False)
    context: ssl.SSLContext = field(repr=False)


def load_tls(settings: ServerSettings) -> ServerTls | None:
    """The TLS that the settings ask for; None = none.

    Raises:
        BadRequest: a file cannot be read or used; names the setting.
    """
    if not settings.tls_certificate:
        return None
    certificate = _read("server.tls_certificate", settings.tls_certificate)
    key = _read("server.tls_key", settings.tls_key)
    client_ca = None
    if settings.tls_client_ca:
        client_ca = _read("server.tls_client_ca", settings.tls_client_ca)
    return ServerTls(certificate, key, client_ca, _context(settings))


@dataclass(frozen=True, slots=True)
class BrokerPapers:
    """What this broker shows other brokers, and how it knows them: paths of PEM files.

    Attributes:
        ca: who signs other brokers' certificates; "" = the system's.
        certificate, key: its own; "" = none is shown.
        context: the same, for HTTP and servers beneath.
    """

    ca: str
    certificate: str
    key: str
    context: ssl.SSLContext = field(repr=False)


def load_papers(server: ServerSettings, cluster: ClusterSettings) -> BrokerPapers:
    """What the settings say of TLS towards other brokers.

    Raises:
        BadRequest: a file cannot be read or used; names the setting.
    """
    ca = _path(cluster.tls_ca)
    certificate = _path(cluster.tls_certificate or server.tls_certificate)
    key = _path(cluster.tls_key or server.tls_key)
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca:
            context = ssl.create_default_context(cafile=ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
    except (ssl.SSLError, ValueError, OSError) as error:
        limit = f"certificates as PEM ({getattr(error, 'reason', None) or error})"
        raise BadRequest("cluster.tls_ca", limit, cluster.tls_ca) from None
    try:
        if certificate:
            context.load_cert_chain(certificate, key, password=_no_password)
    except (_Encrypted, ssl.SSLError, ValueError, OSError) as error:
        limit = f"a certificate with its key, as PEM ({getattr(error, 'reason', None) or error})"
        raise BadRequest("cluster.tls_certificate", limit, certificate) from None
    return BrokerPapers(ca, certificate, key, context)


def _path(text: str) -> str:
    return str(Path(text).expanduser()) if text else ""


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise BadRequest(name, f"a PEM file that can be read ({error.strerror})", path) from None


def _context(settings: ServerSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    certificate = str(Path(settings.tls_certificate).expanduser())
    key = str(Path(settings.tls_key).expanduser())
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        raise BadRequest(
            "server.tls_key", "a private key that is not encrypted", settings.tls_key
        ) from None
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        mismatch = "MISMATCH" in reason
        limit = f"the private key of server.tls_certificate, as PEM ({reason})"
        if not mismatch and not _has_certificate(certificate):
            raise BadRequest(
                "server.tls_certificate",
                f"a certificate as PEM ({reason})",
                settings.tls_certificate,
            ) from None
        raise BadRequest("server.tls_key", limit, settings.tls_key) from None
    if settings.tls_client_ca:
        try:
            context.load_verify_locations(str(Path(settings.tls_client_ca).expanduser()))
        except (ssl.SSLError, ValueError, OSError) as error:
            reason = getattr(error, "reason", None) or "not PEM"
            raise BadRequest(
                "server.tls_client_ca", f"certificates as PEM ({reason})", settings.tls_client_ca
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Encrypted(Exception):
    """OpenSSL asked for a password; it would ask on the terminal if we did not say no."""


def _no_password() -> str:
    raise _Encrypted


def _has_certificate(path: str) -> bool:
    try:
        ssl.create_default_context(cafile=path)
    except (ssl.SSLError, ValueError, OSError):
        return False
    return True
