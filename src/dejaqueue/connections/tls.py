"""TLS from files that may change: each handshake is made with what they hold then.

Room: connections. For clients of servers, and, through access/tls.py, for our own servers.
Holds: files that are wrong change nothing: the last good ones stay; a private key is in no text.
See: docs/guides/security.md; tests/unit/connections/test_tls.py.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dejaqueue.errors import BadRequest, DejaQError

log = logging.getLogger("dejaqueue.tls")

FILES = ("ca", "certificate", "key")
OPTIONS = ("tls", *FILES)
"""Parameters of URLs: `tls=true`, or one of the files, switches TLS on."""


class LiveContext(ssl.SSLContext):
    """A context that hands each new handshake to the newest context of its files.

    An SSLContext never forgets an authority that it has learned, and resumes sessions which it
    agreed on before. So changed files make a new context; connections that are open keep theirs.

    Args:
        build: makes a context of the files as they are now.
        files: their paths; "" = none.
        eager: looks at the files before each handshake; else `refresh` is called by somebody.

    Attributes:
        seen: what the files held when the newest context was made, in their order.
    """

    seen: list[bytes]
    _build: Callable[[], ssl.SSLContext]
    _current: ssl.SSLContext
    _files: list[Path]
    _eager: bool
    _alpn: list[str] | None

    def __new__(
        cls, build: Callable[[], ssl.SSLContext], files: Sequence[str] = (), *, eager: bool = False
    ) -> LiveContext:
        """Build the first one. Raises what `build` raises."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        self._build, self._files, self._eager = build, [Path(one) for one in files if one], eager
        self._alpn = None
        self.seen = contents(self._files)
        self._current = build()
        return self

    def __init__(self, *_: object, **__: object) -> None:
        """Everything is done by `__new__`, as in the class below."""

    def refresh(self) -> bool:
        """Take the files up if they have changed; True if they had.

        Raises:
            BadRequest: they are wrong; the last good ones stay.
        """
        found = contents(self._files)
        if found == self.seen:
            return False
        fresh = self._build()
        if contents(self._files) != found:
            raise BadRequest("tls files", "files that do not change while they are read", "changed")
        if self._alpn is not None:
            fresh.set_alpn_protocols(self._alpn)
        self._current, self.seen = fresh, found
        return True

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """For this context and those that come after it."""
        self._alpn = list(alpn_protocols)
        self._current.set_alpn_protocols(self._alpn)

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """A handshake in memory, as event loops make it."""
        return self._newest().wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """A handshake on a socket."""
        return self._newest().wrap_socket(*arguments, **named)

    def _newest(self) -> ssl.SSLContext:
        if self._eager:
            try:
                self.refresh()
            except DejaQError as wrong:
                log.warning("the TLS files of before stay in use: %s", wrong)
        return self._current


def contents(files: Sequence[Path]) -> list[bytes]:
    """What the files hold; a file that cannot be read holds nothing."""
    texts = []
    for file in files:
        try:
            texts.append(file.expanduser().read_bytes())
        except OSError:
            texts.append(b"")
    return texts


def client_context(options: Mapping[str, str], field: str) -> LiveContext | None:
    """The TLS that a URL's parameters ask for; None = in plain text.

    Args:
        options: of these, OPTIONS; the file of the certificate may hold its key, too.
        field: what an error names.

    Raises:
        BadRequest: the parameters contradict each other, or a file cannot be used.
    """
    has_files = any(options.get(name) for name in FILES)
    given = options.get("tls", "true" if has_files else "false")
    if given not in {"true", "false", "1", "0"}:
        raise BadRequest("tls", "true or false", given)
    if given in {"false", "0"}:
        if has_files:
            raise BadRequest("tls", "true, with ca, certificate or key", given)
        return None
    ca, certificate, key = (options.get(name, "") for name in FILES)
    if key and not certificate:
        raise BadRequest("certificate", "a file, with key", "none")

    def build() -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=ca or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if certificate:
                context.load_cert_chain(certificate, key or None)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise BadRequest(
                field, f"ca, certificate, key: PEM files ({error})", "others"
            ) from None
        return context

    return LiveContext(build, (ca, certificate, key), eager=True)
