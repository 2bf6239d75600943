"""The public keys of an OpenID Connect issuer, fetched beside the calls that need them.

Room: access. A thread that reads a file or asks a URL; callers only look at what it has found.
Holds: the issuer is asked at most once in OIDC_REFETCH_MS, however many strange tokens come; keys
that it took back are forgotten at the next look; what cannot be fetched changes nothing; over plain
HTTP keys are taken from this machine alone, as whoever is on the way could make tokens.
See: oidc.py.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt

from dejaqueue import limits
from dejaqueue.clock import Clock, SteadyClock, Wake
from dejaqueue.connections.tls import LiveContext
from dejaqueue.errors import BadRequest
from dejaqueue.setting_groups import OidcSettings

log = logging.getLogger("dejaqueue.oidc")

DISCOVERY = "/.well-known/openid-configuration"
ANSWER_SECONDS = 5.0
FILE_LOOK_MS = 10_000
_SYMMETRIC = "oct"
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key, and what it is for.

    Attributes:
        key: as PyJWT takes it.
        kind: RSA, EC or OKP.
        curve: of EC and OKP; "" = none.
        algorithm: the only one it is for; "" = any of its kind.
    """

    key: Any
    kind: str
    curve: str
    algorithm: str

    def is_for(self, algorithm: str) -> bool:
        """True if it is of the kind that an algorithm wants, and for no other one."""
        if self.algorithm not in ("", algorithm) or self.kind != _KINDS.get(algorithm[:2]):
            return False
        return algorithm not in _CURVES or self.curve == _CURVES[algorithm]


class IssuerKeys:
    """Keys between `start` and `stop`.

    Args:
        settings: where they are.
        clock: how long ago the issuer was asked.
    """

    def __init__(self, settings: OidcSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SteadyClock()
        self._is_url = not settings.keys or "://" in settings.keys
        self._context = _context(settings)
        if self._is_url:
            _check_url("oidc.keys" if settings.keys else "oidc.issuer", self._first_url())
        self._keys: Mapping[str, IssuerKey] = {}
        self._mutex = threading.Lock()
        self._asked_ms: int | None = None
        self._is_asking = False
        self._said = ""
        self._stopping = False
        self._bell = Wake()
        self._thread = threading.Thread(target=self._run, name="dejaq-oidc", daemon=True)

    def start(self) -> None:
        """Ask now and then; the first time now, on the thread."""
        self._is_asking = True
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. Twice or before start is fine."""
        self._stopping = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join(2 * ANSWER_SECONDS)

    def key(self, key_id: object, algorithm: str) -> IssuerKey | None:
        """The key of this id for this algorithm; without an id, the only one there is."""
        keys = self._keys
        if key_id is None:
            found = next(iter(keys.values())) if len(keys) == 1 else None
        else:
            found = keys.get(key_id) if isinstance(key_id, str) else None
        if found is None or not found.is_for(algorithm):
            return None
        return found

    def ask_again(self) -> bool:
        """Have the issuer asked, unless that was done a moment ago; True if it is being asked."""
        with self._mutex:
            now_ms = self._clock.now_ms()
            lately = self._asked_ms is not None and (
                now_ms - self._asked_ms < limits.OIDC_REFETCH_MS
            )
            if not lately and not self._is_asking and self._thread.is_alive():
                self._is_asking = True
                self._bell.ring()
            return self._is_asking

    def refresh(self) -> None:
        """Take over the keys as they are now; what is wrong is logged, once."""
        with self._mutex:
            self._is_asking, self._asked_ms = True, self._clock.now_ms()
        try:
            keys = self._found()
            if keys.keys() != self._keys.keys():
                log.info("keys of %s: %s", self._settings.issuer, ", ".join(sorted(keys)))
            self._keys, self._said = keys, ""
        except (OSError, ValueError, jwt.PyJWTError, BadRequest) as wrong:
            if str(wrong) != self._said:
                self._said = str(wrong)
                log.error("keys of %s stay as they are: %s", self._settings.issuer, wrong)
        finally:
            with self._mutex:
                self._is_asking = False

    def _run(self) -> None:
        while not self._stopping:
            self.refresh()
            ms = limits.OIDC_REFRESH_MS if self._is_url else FILE_LOOK_MS
            if not self._keys:
                ms = limits.OIDC_REFETCH_MS
            self._clock.wait_until(self._clock.now_us() + ms * 1_000, self._bell)

    # --- where they come from --------------------------------------------------------------------

    def _first_url(self) -> str:
        return self._settings.keys or self._settings.issuer.rstrip("/") + DISCOVERY

    def _found(self) -> dict[str, IssuerKey]:
        if not self._is_url:
            return _parsed(Path(self._settings.keys).expanduser().read_bytes())
        content = self._fetched(self._first_url())
        if self._settings.keys:
            return _parsed(content)
        told = json.loads(content)
        if not isinstance(told, dict) or told.get("issuer") != self._settings.issuer:
            raise BadRequest("oidc.issuer", "as the issuer writes it", self._settings.issuer)
        url = _check_url("jwks_uri", str(told.get("jwks_uri")))
        return _parsed(self._fetched(url))

    def _fetched(self, url: str) -> bytes:
        opener = urllib.request.build_opener(
            _NoRedirects(), urllib.request.HTTPSHandler(context=self._context)
        )
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read(limits.OIDC_KEYS_BYTES_MAX + 1)
        if len(content) > limits.OIDC_KEYS_BYTES_MAX:
            raise BadRequest("oidc.keys", f"at most {limits.OIDC_KEYS_BYTES_MAX} bytes", "more")
        return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Where keys come from is what the operator said, or what the issuer said, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: urllib then reports the status."""


def _context(settings: OidcSettings) -> ssl.SSLContext:
    def build() -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=settings.ca or None)
        except (ssl.SSLError, ValueError, OSError) as error:
            said = f"certificates as PEM ({error})"
            raise BadRequest("oidc.ca", said, settings.ca) from None

    return LiveContext(build, [settings.ca], eager=True)


def _check_url(field: str, url: str) -> str:
    """A URL that keys may come from, or BadRequest."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return url
    raise BadRequest(field, "https://…, or http:// on this machine", url)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parsed(content: bytes) -> dict[str, IssuerKey]:
    """Keys for signatures by id; what is for something else, or not known, is left out."""
    told = json.loads(content)
    listed = told.get("keys") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        raise BadRequest("oidc.keys", 'a JSON Web Key Set, {"keys": [...]}', type(told).__name__)
    keys_by_id = {}
    for one in listed[: limits.OIDC_KEYS_MAX]:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig":
            continue
        if one.get("kty") == _SYMMETRIC:  # who can check could sign
            continue
        try:
            key = jwt.PyJWK.from_dict(one).key
            names = (str(one.get(name, "")) for name in ("kty", "crv", "alg"))
            keys_by_id[str(one.get("kid", ""))] = IssuerKey(key, *names)
        except jwt.PyJWTError as wrong:
            log.info("a key of the issuer is left out: %s", wrong)
    return keys_by_id
