"""Sessions: who looks at the console, by a cookie that no script can read, and what they may do.

Room: console.
Holds: a change is made only with a token that a page of this console has shown to the same browser;
without API keys nobody looks but from this machine; a cookie is never sent for another site's page.
See: access/gate.py, which knows the key; docs/guides/security.md.

The token is an HMAC of the key under a word that the browser keeps in a second cookie: no state in
the broker, and the same at every broker of a cluster.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.types import Scope

from dejaqueue.access.gate import Gate
from dejaqueue.access.pages import Pages
from dejaqueue.access.roles import EVERYBODY, Principal, Role
from dejaqueue.addresses import is_loopback
from dejaqueue.errors import Forbidden, Unauthenticated

TOKEN_FIELD = "csrf"
TOKEN_HEADER = "x-csrf-token"
_KEY_CHARS_MAX = 4_096
_WORD_CHARS = 43
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What may be a bearer token (RFC 6750); nothing of it ends a cookie or begins an attribute."""
_OWN_SITES = frozenset({"", "same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Session:
    """One viewer.

    Attributes:
        key: their API key; None = none is needed, or they have not logged in.
        word: what their browser keeps; "" = nothing yet.
        principal: who they are; None = they have to log in.
        suffix: of the cookies' names: browsers do not tell the ports of a host apart.
        is_secure: they came over TLS.
        path: what they look at, to come back to after logging in.
    """

    key: str | None
    word: str
    principal: Principal | None
    suffix: str
    is_secure: bool
    path: str

    @property
    def token(self) -> str:
        """What a form of theirs has to bring."""
        return hmac.new(self.word.encode(), (self.key or "").encode(), hashlib.sha256).hexdigest()

    def may(self, role: str, topic: str) -> bool:
        """True if they have the role for a topic; "" = for the broker."""
        return self.principal is not None and self.principal.may(Role(role), topic)

    def may_look(self, topic: str) -> bool:
        """True if they may see numbers and messages of a topic; "" = of the broker."""
        return self.may("observe", topic) or self.may("manage", topic)

    def may_browse(self, topic: str) -> bool:
        """True if they may see messages of a topic, if only their own."""
        return self.principal is not None and any(
            self.principal.may(role, topic, own=True) for role in (Role.OBSERVE, Role.MANAGE)
        )

    @property
    def may_look_anywhere(self) -> bool:
        """True if there may be a topic whose numbers they may see."""
        roles = (Role.OBSERVE, Role.MANAGE, Role.ADMIN)
        return self.principal is not None and any(
            grant.role in roles and not grant.denies for grant in self.principal.grants
        )

    @property
    def name(self) -> str:
        """As the audit log calls them."""
        return self.principal.name if self.principal is not None else ""

    @property
    def has_logged_in(self) -> bool:
        """True if there is a key that they can forget."""
        return self.key is not None and self.principal is not EVERYBODY


def open_session(scope: Scope, gate: Gate, pages: Pages, *, is_file: bool = False) -> Session:
    """Who makes this request.

    Args:
        is_file: it is for a script or a style, which a browser asks for as part of a page.

    Raises:
        Forbidden: it is another site's page that asks, or there are no API keys and somebody asks
            from elsewhere. Unavailable: whether the key still holds cannot be told.
    """
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    suffix = _suffix(headers.get("host", ""))
    cookies = _cookies(headers.get("cookie", ""))
    key = cookies.get(f"dejaq_key{suffix}") or None
    word = cookies.get(f"dejaq_console{suffix}", "")
    if len(word) != _WORD_CHARS:
        word = ""
    principal: Principal | None = None
    try:
        principal = gate.principal(key, scope.get("dejaq.certificate", ""))
    except Unauthenticated:
        key = None
    if principal is EVERYBODY:
        key = None
        _check_alone(scope, pages, headers, is_file=is_file)
    path = scope["path"]
    if scope.get("query_string"):
        path += "?" + scope["query_string"].decode("latin-1")
    return Session(key, word, principal, suffix, scope["scheme"] == "https", path)


def _check_alone(scope: Scope, pages: Pages, headers: dict[str, str], *, is_file: bool) -> None:
    """Raise Forbidden unless it is this machine's own browser, for the console itself."""
    address = (scope.get("client") or ("", 0))[0]
    if not is_loopback(address):
        raise Forbidden("the console of a broker without API keys: this machine alone")
    looked_at = dict(headers)
    if is_file:
        looked_at.pop("sec-fetch-dest", None)
    pages.check(looked_at, is_secure=scope["scheme"] == "https", takes=False)


def check_change(session: Session, headers: dict[str, str], token: str) -> None:
    """Raise Forbidden unless a page of this console has asked for a change.

    Args:
        headers: of the request; names in lower case.
        token: that of the form.
    """
    if headers.get("sec-fetch-site", "") not in _OWN_SITES:
        raise Forbidden("a change from a page of another site")
    origin = headers.get("origin", "")
    if origin and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise Forbidden("a change from a page of another origin")
    if not session.word or not hmac.compare_digest(token.encode(), session.token.encode()):
        raise Forbidden("a form that this console did not show: load the page again")


def login(gate: Gate, key: str, scope: Scope) -> Principal:
    """Who has this key. Raises Unauthenticated, Unavailable."""
    if len(key) > _KEY_CHARS_MAX or not _BEARER.fullmatch(key):
        raise Unauthenticated("an API key, as `dq_…`")
    return gate.principal(key, scope.get("dejaq.certificate", ""))


def new_word() -> str:
    """What a browser keeps, to tell its own forms by."""
    return secrets.token_urlsafe(32)


def cookie(name: str, value: str, session: Session, *, ends: bool = False) -> str:
    """A Set-Cookie header for the console alone; `ends` forgets it."""
    secure = "; Secure" if session.is_secure else ""
    age = "; Max-Age=0" if ends else ""
    return f"{name}{session.suffix}={value}; Path=/console; HttpOnly; SameSite=Strict{secure}{age}"


def _suffix(host: str) -> str:
    _, _, port = host.rpartition(":")
    return f"_{port}" if port.isascii() and port.isdigit() else ""


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}


__all__ = [
    "TOKEN_FIELD",
    "TOKEN_HEADER",
    "Session",
    "check_change",
    "cookie",
    "login",
    "new_word",
    "open_session",
]
