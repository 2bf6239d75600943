"""All API keys of a broker: made, found, revoked, and kept with its topics.

Room: access. Asked from any thread; readers take no lock.
Holds: a change is durable before it counts; a key that was revoked is never found again; once a
broker has had a key it never becomes open again by itself, whatever is revoked or ends.
See: api_keys.py for what a key is; the guide docs/guides/security.md.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from typing import Protocol

from dejaqueue import limits
from dejaqueue.access.api_keys import ApiKey, check_name, digest_of, grants_of, id_of, new_key
from dejaqueue.access.roles import Role
from dejaqueue.clock import Clock
from dejaqueue.errors import (
    BadRequest,
    JournalDamaged,
    Refused,
    Unauthenticated,
    Unavailable,
)

DOCUMENT = "keys"
FORMAT_VERSION = 1
REFUSAL = "this API key is not known, was revoked or has ended"
"""The same words for each, so that the answer says nothing about which keys there are."""


class Documents(Protocol):
    """Where the keys are kept; a JournalStore is one."""

    def load_document(self, name: str) -> str | None:
        """What was stored, None at first."""
        ...

    def store_document(self, name: str, text: str) -> None:
        """Store it durably, whole or not at all."""
        ...


class InMemory:
    """Documents that end with the process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def load_document(self, name: str) -> str | None:
        """What was stored, None at first."""
        return self._texts.get(name)

    def store_document(self, name: str, text: str) -> None:
        """Keep it."""
        self._texts[name] = text


class KeyRing:
    """The API keys of one broker.

    Args:
        clock: says whether a key has ended.
        documents: where they are kept; None = `open` says it later, until then nobody is let in.

    Attributes:
        on_change: called with no lock held after keys were made or revoked.
        peers_key: what brokers of the cluster show to one another; None = there are no others, or
            it was not read yet.
    """

    def __init__(self, clock: Clock, documents: Documents | None = None) -> None:
        self.clock = clock
        self.on_change: list[Callable[[], None]] = []
        self.peers_key: str | None = None
        self._documents: Documents | None = None
        self._mutex = threading.Lock()
        self._keys: dict[str, ApiKey] = {}
        self._required = False
        # Compared with when an id is not known, so that this takes as long as a wrong secret.
        self._nobody = secrets.token_bytes(32)
        if documents is not None:
            self.open(documents)

    def open(self, documents: Documents) -> None:
        """Read the keys. Raises JournalDamaged: the broker must not start without them."""
        text = documents.load_document(DOCUMENT)
        keys = {} if text is None else {key.id: key for key in _parse(text)}
        with self._mutex:
            self._keys, self._required, self._documents = keys, text is not None, documents

    def close(self) -> None:
        """Let nobody in until the next `open`."""
        with self._mutex:
            self._documents = None

    @property
    def required(self) -> bool:
        """True if calls need a key. Raises Unavailable while the keys are not read."""
        if self._documents is None:
            raise Unavailable("the broker is not running", 1_000)
        return self._required

    def find(self, text: str) -> ApiKey:
        """The key of this text. Takes as long for an unknown id as for a wrong secret.

        Raises:
            Unauthenticated: not known, revoked or ended; says not which.
        """
        key = self._keys.get(id_of(text))
        kept = self._nobody if key is None else key.digest
        same = hmac.compare_digest(digest_of(text), kept)
        if key is None or not same or key.has_ended(self.clock.now_ms()):
            raise Unauthenticated(REFUSAL)
        return key

    def is_peer(self, text: str) -> bool:
        """True if this is what brokers of the cluster show to one another."""
        known = self.peers_key
        return known is not None and hmac.compare_digest(known.encode(), text.encode())

    def is_live(self, key_id: str) -> bool:
        """True if a key of this id is there and has not ended; "" = no key: while none is needed.

        What open streams ask over and over: a lookup, no digest.
        """
        if not key_id:
            return not self._required
        key = self._keys.get(key_id)
        return key is not None and not key.has_ended(self.clock.now_ms())

    def ends_ms(self, key_id: str) -> int | None:
        """When a key ends; None = never, or there is none of this id."""
        key = self._keys.get(key_id)
        return None if key is None else key.ends_ms

    def all(self) -> list[ApiKey]:
        """Every key that was not revoked, oldest first."""
        return list(self._keys.values())

    def create(self, name: object, grants: object, ends_ms: object = None) -> tuple[ApiKey, str]:
        """Make a key. Its text is returned here and never again.

        Args:
            name: who will have it; no two keys have the same.
            grants: texts like `produce:orders.*`.
            ends_ms: when it ends, UTC milliseconds; None = never.

        Raises:
            BadRequest: a value is wrong. Refused: the name is taken, there are too many keys, or
                it is the first key and could not make others.
        """
        checked = check_name(name), grants_of(grants)
        with self._mutex:
            now_ms = self.clock.now_ms()
            end_ms = _check_end(ends_ms, now_ms)
            if any(key.name == name for key in self._keys.values()):
                raise Refused(f"there is a key of the name {name}; revoke it first")
            if len(self._keys) >= limits.API_KEYS_MAX:
                raise Refused(f"this broker has {limits.API_KEYS_MAX} API keys, the limit")
            key, text = new_key(*checked, now_ms, end_ms)
            if not self._required and not _is_lasting_admin(key):
                raise Refused(
                    "from the first key on every call needs one, so the first must be able to make "
                    "others: grant it admin:*, without an end"
                )
            self._store(self._keys | {key.id: key})
        self._changed()
        return key, text

    def revoke(self, key_id: object, *, force: bool = False) -> ApiKey:
        """Have a key refused from now on.

        Args:
            key_id: its id, its name, or the whole key where that is all one has.
            force: also if it is the last that can make others; a new one is then made where the
                broker's data is (`dejaq key create --data`).

        Raises:
            BadRequest: there is no such key. Refused: it is the last admin key.
        """
        with self._mutex:
            key = self._named(key_id)
            left = {known: other for known, other in self._keys.items() if known != key.id}
            last = not any(_is_lasting_admin(other) for other in left.values())
            if last and _is_lasting_admin(key) and not force:
                raise Refused(f"{key.name} is the last admin key; make another first, or force it")
            self._store(left)
        self._changed()
        return key

    def _named(self, text: object) -> ApiKey:
        """The key of this id or name; of a whole key nothing but its id is looked at or shown."""
        shown = str(text)
        shown = id_of(shown) or shown
        by_name = [key for key in self._keys.values() if key.name == shown]
        key = self._keys.get(shown) or next(iter(by_name), None)
        if key is None:
            raise BadRequest("key", "the id or the name of a key", shown)
        return key

    def _store(self, keys: dict[str, ApiKey]) -> None:
        if self._documents is None:
            raise Unavailable("the broker is not running", 1_000)
        stored = [key.to_stored() for key in keys.values()]
        text = json.dumps({"version": FORMAT_VERSION, "keys": stored})
        self._documents.store_document(DOCUMENT, text)
        self._keys, self._required = keys, True

    def _changed(self) -> None:
        for tell in list(self.on_change):
            tell()


def _is_lasting_admin(key: ApiKey) -> bool:
    """True if it can make keys, for ever."""
    return key.ends_ms is None and key.principal.may(Role.ADMIN, "")


def _check_end(ends_ms: object, now_ms: int) -> int | None:
    if ends_ms is None:
        return None
    if not isinstance(ends_ms, int) or isinstance(ends_ms, bool):
        raise BadRequest("ends_ms", "UTC milliseconds since 1970, a whole number", ends_ms)
    if not now_ms < ends_ms <= limits.INSTANT_MS_MAX:
        raise BadRequest("ends_ms", f"after now, up to {limits.INSTANT_MS_MAX}", ends_ms)
    return ends_ms


def _parse(text: str) -> list[ApiKey]:
    try:
        values = json.loads(text)
        if values["version"] != FORMAT_VERSION:
            raise Refused(f"the API keys have version {values['version']}, this is 1")
        return [ApiKey.from_stored(stored) for stored in values["keys"]]
    except (ValueError, KeyError, TypeError, BadRequest) as wrong:
        # Not the text of what is wrong: it could show a digest.
        raise JournalDamaged(f"the API keys cannot be read ({type(wrong).__name__})") from None
