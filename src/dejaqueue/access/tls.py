"""TLS of the servers, and towards other brokers: files that are read again when they change.

Room: access. For both ports the same certificate.
Holds: a wrong pair is refused with the name of its setting, and changes nothing while the broker
runs; a private key is in no text of ours; connections that are open keep what they agreed on.
See: connections/tls.py; watching.py for when; docs/guides/security.md.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dejaqueue.connections.tls import LiveContext
from dejaqueue.errors import BadRequest
from dejaqueue.settings import ClusterSettings, ServerSettings


class ServerTls:
    """What a server shows and asks for.

    Args:
        settings: name the files.

    Attributes:
        context: for the HTTP server; its handshakes are made with the newest files.
        on_change: called after the files were taken up anew, by the thread that did it.

    Raises:
        BadRequest: a file cannot be read or used; names the setting.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.on_change: list[Callable[[], None]] = []
        paths = (settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        self.context = LiveContext(partial(_context, settings), paths)

    @property
    def certificate(self) -> bytes:
        """Chain of the server, PEM."""
        return self.context.seen[0]

    @property
    def key(self) -> bytes:
        """Its private key, PEM, not encrypted."""
        return self.context.seen[1]

    @property
    def client_ca(self) -> bytes | None:
        """Who signs clients' certificates, PEM; None = clients need none."""
        return self.context.seen[2] if len(self.context.seen) > 2 else None

    def reload(self) -> bool:
        """Take the files up anew if they have changed; True if they had.

        Raises:
            BadRequest: they cannot be used; those of before stay.
        """
        if not self.context.refresh():
            return False
        for tell in list(self.on_change):
            tell()
        return True

    def __repr__(self) -> str:
        return f"ServerTls(mutual={self.client_ca is not None})"


_KINDS = frozenset({"DNS", "email", "URI", "IP Address"})


def certificate_name(shown: Mapping[str, Any] | None) -> str:
    """The name of a client's certificate: the first alternative name, else the common name.

    As gRPC chooses it, so that both ports know a caller by the same name.

    Args:
        shown: as `SSLObject.getpeercert` has it; only what was verified is there.

    >>> certificate_name({"subject": ((("commonName", "shop"),),)})
    'shop'
    """
    if not shown:
        return ""
    for kind, name in shown.get("subjectAltName", ()):
        if kind in _KINDS:
            return str(name)
    for part in shown.get("subject", ()):
        for kind, name in part:
            if kind == "commonName":
                return str(name)
    return ""


def load_tls(settings: ServerSettings) -> ServerTls | None:
    """The TLS that the settings ask for; None = none.

    Raises:
        BadRequest: a file cannot be read or used; names the setting.
    """
    return ServerTls(settings) if settings.tls_certificate else None


class BrokerPapers:
    """What this broker shows other brokers, and how it knows them.

    Attributes:
        ca: path of the authority that signs other brokers' certificates, PEM; "" = the system's.
        certificate, key: paths of its own; "" = none is shown.
        context: the same, for HTTP and servers beneath.
        on_change: called after the files were taken up anew, by the thread that did it.

    Raises:
        BadRequest: a file cannot be read or used; names the setting.
    """

    def __init__(self, server: ServerSettings, cluster: ClusterSettings) -> None:
        self.ca = _path(cluster.tls_ca)
        self.certificate = _path(cluster.tls_certificate or server.tls_certificate)
        self.key = _path(cluster.tls_key or server.tls_key)
        self.on_change: list[Callable[[], None]] = []
        self.context = LiveContext(self._build, (self.ca, self.certificate, self.key))

    def reload(self) -> bool:
        """Take the files up anew if they have changed; True if they had. Raises BadRequest."""
        if not self.context.refresh():
            return False
        for tell in list(self.on_change):
            tell()
        return True

    def _build(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (ssl.SSLError, ValueError, OSError) as error:
            limit = f"certificates as PEM ({getattr(error, 'reason', None) or error})"
            raise BadRequest("cluster.tls_ca", limit, self.ca) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (_Encrypted, ssl.SSLError, ValueError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            limit = f"a certificate with its key, as PEM ({reason})"
            raise BadRequest("cluster.tls_certificate", limit, self.certificate) from None
        return context


def load_papers(server: ServerSettings, cluster: ClusterSettings) -> BrokerPapers:
    """What the settings say of TLS towards other brokers. Raises BadRequest."""
    return BrokerPapers(server, cluster)


def _path(text: str) -> str:
    return str(Path(text).expanduser()) if text else ""


def _check_readable(name: str, path: str) -> None:
    try:
        Path(path).expanduser().read_bytes()
    except OSError as error:
        raise BadRequest(name, f"a PEM file that can be read ({error.strerror})", path) from None


def _context(settings: ServerSettings) -> ssl.SSLContext:
    for name in ("tls_certificate", "tls_key", "tls_client_ca"):
        if path := getattr(settings, name):
            _check_readable(f"server.{name}", path)
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
