"""API keys: how one looks, what is kept of it, and who it makes its bearer.

    dq_<id>_<secret>    id: 12 hexadecimal digits, no secret; secret: 64 of them, 256 random bits

Room: access. Pure values, but for the randomness of a new key.
Holds: the secret is returned once, by `new_key`; what is kept and shown is a digest and the id.

A digest without salt and without stretching is right here: those protect secrets that people think
up, which can be guessed. Nobody guesses 256 random bits, however fast the digest is; and a check
that costs a microsecond can be made on every call.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Any

from dejaqueue import limits
from dejaqueue.access.roles import DENY, OWNABLE, Grant, Principal, Role
from dejaqueue.errors import BadRequest

PREFIX = "dq"
ID_BYTES = 6
SECRET_BYTES = 32

CERTIFICATE = "cert:"
"""Prefix of names that stand for bearers of a certificate of the name after it; without a text."""
TOKEN = "oidc:"
"""Prefix of names that stand for bearers of the issuer's role after it."""
WITHOUT_TEXT = (CERTIFICATE, TOKEN)

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,255}")
_NAME_ELSEWHERE = re.compile(r"[A-Za-z0-9._@:/-]{1,250}")
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,255}")
_SECRET = re.compile(r"(dq_[0-9a-f]+_)[0-9a-f]+")
_OWN = "own:"
_RESERVED = frozenset({"anonymous"})


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key.

    Attributes:
        id: names it in lists, in the audit log, and when it is revoked.
        name: of whoever has it.
        grants: what they may do.
        created_ms: when it was made, UTC milliseconds.
        ends_ms: from then on it is refused, UTC milliseconds; None = never.
        digest: of the whole key, 32 bytes.
        signing: what verifies requests that are signed with the key (signatures.py), 32 bytes;
            None = it was not kept.
    """

    id: str
    name: str
    grants: tuple[Grant, ...]
    created_ms: int
    ends_ms: int | None
    digest: bytes
    signing: bytes | None = None

    def __repr__(self) -> str:
        return f"ApiKey(id={self.id!r}, name={self.name!r})"

    @property
    def principal(self) -> Principal:
        """Who its bearer is."""
        return Principal(self.name, self.grants, self.id)

    def has_ended(self, now_ms: int) -> bool:
        """True if its time is over."""
        return self.ends_ms is not None and now_ms >= self.ends_ms

    def to_dict(self) -> dict[str, Any]:
        """What everybody who may list keys sees of it."""
        return {
            "id": self.id,
            "name": self.name,
            "grants": [str(grant) for grant in self.grants],
            "created_ms": self.created_ms,
            "ends_ms": self.ends_ms,
        }

    def to_stored(self) -> dict[str, Any]:
        """What is stored of it."""
        signing = {} if self.signing is None else {"signing": self.signing.hex()}
        return self.to_dict() | {"digest": self.digest.hex()} | signing

    @classmethod
    def from_stored(cls, values: dict[str, Any]) -> ApiKey:
        """What `to_stored` made. Raises KeyError, TypeError, ValueError, BadRequest."""
        digest = bytes.fromhex(values["digest"])
        if len(digest) != 32:
            raise ValueError("a digest has 32 bytes")
        ends_ms = values["ends_ms"]
        return cls(
            str(values["id"]),
            str(values["name"]),
            grants_of(values["grants"]),
            int(values["created_ms"]),
            None if ends_ms is None else int(ends_ms),
            digest,
            None if values.get("signing") is None else _signing(values["signing"]),
        )


def new_key(
    name: str,
    grants: tuple[Grant, ...],
    created_ms: int,
    ends_ms: int | None,
    *,
    signs: bool = False,
) -> tuple[ApiKey, str]:
    """A new key, and its text, which is nowhere else from now on.

    Args:
        signs: keep what verifies requests that are signed with it.
    """
    key_id = secrets.token_hex(ID_BYTES)
    text = f"{PREFIX}_{key_id}_{secrets.token_hex(SECRET_BYTES)}"
    signing = signing_of(text) if signs else None
    return ApiKey(key_id, name, grants, created_ms, ends_ms, digest_of(text), signing), text


def signing_of(text: str) -> bytes:
    """What verifies requests that are signed with a key by Signature Version 4.

    That signs with HMAC-SHA-256 keyed with `AWS4` and the secret. A key's text makes this longer
    than a block of SHA-256, and of such a key HMAC takes the digest: this one. So whoever has it
    can sign, and verify, and has not the key.
    """
    return hashlib.sha256(f"AWS4{text}".encode()).digest()


def _signing(text: str) -> bytes:
    signing = bytes.fromhex(text)
    if len(signing) != 32:
        raise ValueError("what verifies signatures has 32 bytes")
    return signing


def digest_of(text: str) -> bytes:
    """What is compared. Any text has one, so that a wrong one costs as much as a right one."""
    content = text.encode("utf-8", "surrogatepass")[: limits.API_KEY_BYTES_MAX]
    return hashlib.blake2b(content, digest_size=32, person=b"dejaq-api-key").digest()


def id_of(text: str) -> str:
    """The id in a key's text; "" if it has none. It is no secret."""
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else ""


def without_secrets(text: str) -> str:
    """A text for a log, without the secrets of keys that stand in it by mistake.

    >>> without_secrets("topic dq_0a1b_2c3d is unknown")
    'topic dq_0a1b_*** is unknown'
    """
    return _SECRET.sub(r"\1***", text)


def check_name(name: object) -> str:
    """The name of a key, or BadRequest."""
    limit = "1 to 255 characters of A-Z a-z 0-9 . _ @ -"
    if isinstance(name, str) and name.startswith(WITHOUT_TEXT):
        if _NAME_ELSEWHERE.fullmatch(name.partition(":")[2]) is None:
            limit = "behind the first colon 1 to 250 characters of A-Z a-z 0-9 . _ @ : / -"
            raise BadRequest("name", limit, name)
        return name
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise BadRequest("name", limit, name)
    if id_of(name):
        raise BadRequest("name", "a name; this looks like a key", id_of(name))
    if name in _RESERVED:
        raise BadRequest("name", "a name that stands for no one else", name)
    return name


def grants_of(texts: object) -> tuple[Grant, ...]:
    """Grants written as `role:pattern`, `role:own:pattern` or `deny:role:pattern`.

    Raises:
        BadRequest: one is not written so, or none gives anything.

    >>> [grant.role.value for grant in grants_of(["produce:orders.*", "consume:orders.*"])]
    ['produce', 'consume']
    """
    most = limits.API_KEY_GRANTS_MAX
    if not isinstance(texts, list | tuple) or not 1 <= len(texts) <= most:
        raise BadRequest("grants", f"1 to {most} texts like produce:orders.*", texts)
    grants = tuple(_grant_of(text) for text in texts)
    if all(grant.denies for grant in grants):
        raise BadRequest("grants", "at least one that is not deny:", texts)
    return grants


def _grant_of(text: object) -> Grant:
    denies = isinstance(text, str) and text.startswith(DENY)
    plain = text.removeprefix(DENY) if isinstance(text, str) else ""
    role, colon, pattern = plain.partition(":")
    roles = [known.value for known in Role]
    if not colon or role not in roles:
        raise BadRequest("grants", f"[deny:]ROLE:PATTERN, with a role of {', '.join(roles)}", text)
    own = pattern.startswith(_OWN)
    pattern = pattern.removeprefix(_OWN)
    if own and (denies or role not in OWNABLE):
        raise BadRequest("grants", f"own: with {' or '.join(OWNABLE)}, and not denied", text)
    if _PATTERN.fullmatch(pattern) is None:
        limit = "a pattern of 1 to 255 characters of a topic's name, * and ?"
        raise BadRequest("grants", limit, text)
    return Grant(Role(role), pattern, denies=denies, own=own)
