"""How a client knows a broker at https, and what it shows it: files for TLS, and the API key.

Room: client. Reads files; opens nothing.
Holds: neither a key nor a private key is in any `repr`, text or error.
See: docs/guides/security.md.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import httpx

from dejaqueue_client import limits
from dejaqueue_client.errors import BadRequest

_KEY = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Tls:
    """Files for an `https://` connection; what is left out is the system's or not used.

    Attributes:
        ca: PEM file with the certificates that may sign the broker's; None = the system's,
            and those that httpx brings, as not every system has some.
        certificate: PEM file with the client's own certificate, for brokers that want one.
        key: PEM file with its private key.
        server_name: the name that the broker's certificate is for, if it is not the URL's.
    """

    ca: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """What the connection is made with. Raises BadRequest: a file is no good."""
        if (self.certificate is None) != (self.key is None):
            raise BadRequest("tls", "certificate and key together, or neither", "one of them")
        paths = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        files = {
            name: None if path is None else Path(fspath(path)).expanduser()
            for name, path in paths.items()
        }
        try:
            if files["ca"] is None:
                context = httpx.create_ssl_context(trust_env=False)
                context.load_default_certs()
            else:
                context = ssl.create_default_context(cafile=files["ca"])
            if files["certificate"] is not None:
                context.load_cert_chain(files["certificate"], files["key"])
        except (OSError, ValueError) as wrong:
            shown = ", ".join(str(path) for path in files.values() if path is not None)
            raise BadRequest("tls", f"PEM files that can be read ({wrong})", shown) from None
        return context


def key_headers(api_key: object) -> dict[str, str]:
    """The headers of every request that show the API key. Raises BadRequest, without the key."""
    if api_key is None:
        return {}
    if not isinstance(api_key, str) or not _KEY.fullmatch(api_key):
        raise BadRequest("api_key", "a text without spaces, as `dejaq key create` prints", "***")
    if len(api_key) > limits.OIDC_TOKEN_BYTES_MAX:
        raise BadRequest("api_key", f"at most {limits.OIDC_TOKEN_BYTES_MAX} characters", "***")
    return {"authorization": f"Bearer {api_key}"}
