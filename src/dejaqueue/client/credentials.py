"""What a client shows a broker, and how it knows the broker: API key and TLS.

Room: client. Reads files; opens nothing.
Holds: neither a key nor a private key is in any `repr`, text or error.
See: docs/guides/security.md.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dejaqueue import limits
from dejaqueue.addresses import is_loopback
from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("dejaqueue.client")

_KEY = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for a `dejaqs://` connection; what is left out is the system's or not used.

    Attributes:
        ca: PEM file with the certificates that may sign the broker's; None = the system's.
        certificate: PEM file with the client's own certificate, for brokers that want one.
        key: PEM file with its private key.
        server_name: the name that the broker's certificate is for, if it is not the URL's.
    """

    ca: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    server_name: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of a Flight client. Raises BadRequest: a file cannot be read."""
        if (self.certificate is None) != (self.key is None):
            raise BadRequest("tls", "certificate and key together, or neither", "one of them")
        options: dict[str, Any] = {}
        for argument, name, path in (
            ("tls_root_certs", "tls.ca", self.ca),
            ("cert_chain", "tls.certificate", self.certificate),
            ("private_key", "tls.key", self.key),
        ):
            if path is not None:
                options[argument] = _read(name, fspath(path))
        if self.server_name is not None:
            options["override_hostname"] = self.server_name
        return options

    def context(self) -> ssl.SSLContext:
        """The same for Python's own sockets. Raises OSError, ValueError: a file is wrong."""
        import ssl  # here: 5 ms of each start, and few programs on one machine use TLS

        ca, certificate, key = (
            None if path is None else Path(fspath(path)).expanduser()
            for path in (self.ca, self.certificate, self.key)
        )
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


def _read(name: str, path: str) -> bytes:
    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise BadRequest(name, f"a PEM file that can be read ({error.strerror})", path) from None
    if b"-----BEGIN " not in content:
        raise BadRequest(name, "a PEM file", path)
    return content


def headers_of(api_key: str | None, url: str) -> list[tuple[bytes, bytes]]:
    """The headers of every call. Warns of a key that would travel in plain text.

    Raises:
        BadRequest: it cannot be a key; does not show it.
    """
    if api_key is None:
        return []
    if not isinstance(api_key, str) or not _KEY.fullmatch(api_key):
        raise BadRequest("api_key", "a text without spaces, as `dejaq key create` prints", "***")
    if len(api_key) > limits.OIDC_TOKEN_BYTES_MAX:
        raise BadRequest("api_key", f"at most {limits.OIDC_TOKEN_BYTES_MAX} characters", "***")
    parts = urlsplit(url)
    if parts.scheme == "dejaq" and not is_loopback(parts.hostname or ""):
        log.warning("the API key travels to %s in plain text: use dejaqs://", parts.hostname)
    return [(b"authorization", b"Bearer " + api_key.encode())]
