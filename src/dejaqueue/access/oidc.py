"""Bearer tokens of an OpenID Connect issuer: who calls, by what the issuer signed.

Room: access. PyJWT checks the signature; the issuer's keys come from issuer_keys.py, beside the
calls. Asked from any thread.
Holds: no call waits for the issuer; only algorithms that the operator named are believed, none of
them symmetric; a token counts from `nbf` to `exp`, and no longer on streams that are open; what a
token says beyond issuer, audience, name and roles is not looked at.
See: docs/guides/security.md; docs/adr/0019-tokens-of-an-issuer.md; tests/integration/test_oidc.py.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from dejaqueue import limits
from dejaqueue.access.api_keys import TOKEN, ApiKey
from dejaqueue.access.issuer_keys import IssuerKeys
from dejaqueue.access.key_ring import KeyRing
from dejaqueue.access.roles import TokenPrincipal
from dejaqueue.errors import Unauthenticated, Unavailable
from dejaqueue.setting_groups import OidcSettings

REFUSAL = "this token is not valid here: {}"
FETCHING_MS = 1_000

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._@:/|-]{1,200}")


@dataclass(slots=True)
class _Known:
    """A token that was verified, and who it made its bearer while the keys were these."""

    name: str
    roles: tuple[str, ...]
    ends_ms: int
    keys: Mapping[str, ApiKey]
    principal: TokenPrincipal


class Tokens:
    """Tells who calls by their tokens; remembers those that were good.

    Args:
        settings: issuer, audience, claims, algorithms.
        keys: the broker's; those named `oidc:ROLE` say what a role may do.
        issuer: its keys.
    """

    def __init__(self, settings: OidcSettings, keys: KeyRing, issuer: IssuerKeys) -> None:
        self.issuer = issuer
        self._settings = settings
        self._keys = keys
        self._algorithms = frozenset(settings.algorithms.split(","))
        self._mutex = threading.Lock()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    @staticmethod
    def is_token(text: str) -> bool:
        """True for what looks like a signed token, and like no API key.

        >>> [Tokens.is_token(text) for text in ("eyJhbGciOi.eyJpc3Mi.c2ln", "dq_1_2")]
        [True, False]
        """
        return text.startswith("ey") and text.count(".") == 2

    def principal(self, text: str) -> TokenPrincipal:
        """The bearer of this token. Costs a digest and a lookup if it was seen before.

        Raises:
            Unauthenticated: it is not valid; says why, and nothing of what is in it. Unavailable:
                its key is being asked for.
        """
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        now_ms = self._keys.clock.utc_ms()
        known = self._known.get(digest)
        if known is None:
            known = self._verified(text, now_ms)
            with self._mutex:
                self._known[digest] = known
                if len(self._known) > limits.OIDC_TOKENS_MAX:
                    self._known.popitem(last=False)
        if now_ms >= known.ends_ms:
            raise Unauthenticated(REFUSAL.format("it has ended"))
        if known.keys is not self._keys.snapshot:
            self._give_roles(known)
        return known.principal

    def is_live(self, principal: TokenPrincipal) -> bool:
        """True if the token has not ended and what gave it roles is still there."""
        return self._keys.clock.utc_ms() < principal.ends_ms and all(
            self._keys.is_live(role_id) for role_id in principal.role_ids
        )

    def ends_ms(self, principal: TokenPrincipal) -> int:
        """When it is over, as far as that is known now."""
        ends = [self._keys.ends_ms(role_id) for role_id in principal.role_ids]
        return min([principal.ends_ms, *(end_ms for end_ms in ends if end_ms is not None)])

    # --- one that was not seen before ------------------------------------------------------------

    def _verified(self, text: str, now_ms: int) -> _Known:
        if len(text) > limits.OIDC_TOKEN_BYTES_MAX:
            raise Unauthenticated(REFUSAL.format("it is too long"))
        claims = self._claims(text)
        leeway_ms = self._settings.leeway_ms
        ends_ms = _instant_ms(claims, "exp") + leeway_ms
        if now_ms >= ends_ms:
            raise Unauthenticated(REFUSAL.format("it has ended"))
        if "nbf" in claims and now_ms < _instant_ms(claims, "nbf") - leeway_ms:
            raise Unauthenticated(REFUSAL.format("its time has not begun"))
        name = _name_of(claims.get(self._settings.name_claim))
        roles = _roles_of(claims, self._settings.roles_claim)
        known = _Known(name, roles, ends_ms, {}, TokenPrincipal(name, (), ends_ms=ends_ms))
        self._give_roles(known)
        return known

    def _claims(self, text: str) -> dict[str, Any]:
        """What the issuer signed. Times are not looked at: the clock is ours."""
        try:
            header = jwt.get_unverified_header(text)
            algorithm = header.get("alg")
            if algorithm not in self._algorithms:
                raise Unauthenticated(REFUSAL.format("its algorithm is not one of those allowed"))
            key = self.issuer.key(header.get("kid"), algorithm)
            if key is None:
                if self.issuer.ask_again():
                    raise Unavailable("the issuer is asked for its new keys", FETCHING_MS)
                raise Unauthenticated(REFUSAL.format("the issuer has no such key"))
            claims: dict[str, Any] = jwt.decode(
                text,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={
                    "enforce_minimum_key_length": True,
                    "require": ["exp", "iss", "aud", self._settings.name_claim],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidAudienceError:
            raise Unauthenticated(REFUSAL.format("it is for somebody else")) from None
        except jwt.InvalidIssuerError:
            raise Unauthenticated(REFUSAL.format("somebody else issued it")) from None
        except jwt.MissingRequiredClaimError as missing:
            raise Unauthenticated(REFUSAL.format(f"it has no claim {missing.claim}")) from None
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            raise Unauthenticated(REFUSAL.format("its form or its signature is wrong")) from None
        return claims

    def _give_roles(self, known: _Known) -> None:
        """Make its bearer who the keys of now say it is."""
        keys = self._keys.snapshot
        named = [self._keys.named(f"{TOKEN}{role}") for role in known.roles]
        found = [key for key in named if key is not None]
        known.principal = TokenPrincipal(
            known.name,
            tuple(grant for key in found for grant in key.grants),
            ends_ms=known.ends_ms,
            role_ids=tuple(key.id for key in found),
        )
        known.keys = keys


def _instant_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise Unauthenticated(REFUSAL.format(f"its claim {name} is no instant"))
    return int(value * 1_000)


def _name_of(value: object) -> str:
    """The caller's name: as the issuer says it, or a digest where a log could not have that."""
    text = str(value)
    if _PLAIN_NAME.fullmatch(text) is None:
        text = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{TOKEN}{text}"


def _roles_of(claims: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """The values of a claim: a list of texts, or one text with spaces between, as `scope` is.

    >>> _roles_of({"realm_access": {"roles": ["a", "b"]}}, "realm_access.roles")
    ('a', 'b')
    >>> _roles_of({"scope": "a b"}, "scope"), _roles_of({}, "roles")
    (('a', 'b'), ())
    """
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, str):
        found = found.split()
    if not isinstance(found, list):
        return ()
    roles = [role for role in found if isinstance(role, str)]
    return tuple(dict.fromkeys(roles))[: limits.OIDC_ROLES_MAX]
