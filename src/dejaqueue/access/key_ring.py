"""All API keys of a broker: made, found, revoked, and kept with its topics.

Room: access. Asked from any thread; readers take no lock.
Holds: a change is durable before it counts; a key that was revoked is never found again; once a
broker has had a key it never becomes open again by itself, whatever is revoked or ends.
See: api_keys.py for what a key is; the guide docs/guides/security.md.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from dejaqueue import limits
from dejaqueue.access.api_keys import ApiKey, check_name, digest_of, grants_of, id_of, new_key
from dejaqueue.access.key_set import KeySet, key_set_of, unsealed_key_set_of
from dejaqueue.access.key_uses import KeyUses
from dejaqueue.access.roles import Role
from dejaqueue.access.seal import Seal
from dejaqueue.clock import Clock
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    JournalDamaged,
    Refused,
    Unauthenticated,
    Unavailable,
)

DOCUMENT = "keys"
REFUSAL = "this API key is not known, was revoked or has ended"
"""The same words for each, so that the answer says nothing about which keys there are."""

SIGNATURE_REFUSAL = (
    "the signature is not that of a key that is known here: the access key is an API key's id, the "
    "secret the whole key, made while sqs.enabled was on"
)

PUT_BACK_AGAIN_MS = 1_000
"""Two brokers that do not believe each other must not store in turn as fast as they can."""

log = logging.getLogger("dejaqueue.access")

Change = Callable[[str | None], str | None]
"""From what is stored to what shall be stored; None = leave it."""


class Documents(Protocol):
    """Where the keys are kept: a JournalStore, or what the brokers of a cluster share."""

    def load_document(self, name: str) -> str | None:
        """What was stored, None at first."""
        ...

    def change_document(self, name: str, change: Change) -> None:
        """Store durably, whole or not at all, what `change` makes of what is stored at that moment.

        `change` is called again where somebody else was quicker; what it raises is passed on.
        """
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

    def change_document(self, name: str, change: Change) -> None:
        """Keep what `change` makes of it."""
        text = change(self._texts.get(name))
        if text is not None:
            self._texts[name] = text


def _always() -> bool:
    return True


class KeyRing:
    """The API keys of one broker.

    Args:
        clock: says whether a key has ended.
        documents: where they are kept; None = `open` says it later, until then nobody is let in.
        apart: runs what may wait, on a thread of its own, so that no call writes; None = uses of
            keys are stored by `keep_uses` alone.

    Attributes:
        on_change: called with no lock held after keys were made or revoked.
        refused_count: documents that were found and refused since this was made.
        start_token: what makes the first key takes; None = the caller's address is looked at.
        keeps_signing: new keys can sign requests (signatures.py).
        must_confirm: False = `check_confirmed` need not be called: nobody else changes the keys.
        peers_key: what brokers of the cluster show to one another; None = there are no others, or
            it was not read yet.
    """

    def __init__(
        self,
        clock: Clock,
        documents: Documents | None = None,
        *,
        keeps_signing: bool = False,
        apart: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.clock = clock
        self.on_change: list[Callable[[], None]] = []
        self._uses, self._apart = KeyUses(clock), apart
        self.refused_count = 0
        self.start_token: str | None = None
        self.keeps_signing = keeps_signing
        self.must_confirm = False
        self.peers_key: str | None = None
        self._documents: Documents | None = None
        self._copy: Documents | None = None
        self._seal: Seal | None = None
        self._is_confirmed = _always
        self._mutex = threading.Lock()
        self._known: KeySet | None = None
        """None = there never was a key."""
        self._keys: Mapping[str, ApiKey] = {}
        self._names: tuple[Mapping[str, ApiKey], dict[str, ApiKey]] = ({}, {})
        self._merged_text: str | None = None
        """The document that was merged last, so that the same one is not read again."""
        self._refused_text: str | None = None
        self._is_owing = False
        """Something that is known here was not stored when this last looked."""
        self._put_back_ms = 0
        # Compared with when an id is not known, so that this takes as long as a wrong secret.
        self._nobody = secrets.token_bytes(32)
        if documents is not None:
            self.open(documents)

    def open(
        self,
        documents: Documents,
        seal: Seal | None = None,
        *,
        reseals: bool = False,
        copy: Documents | None = None,
        is_confirmed: Callable[[], bool] = _always,
    ) -> None:
        """Read the keys.

        Args:
            seal: that the document must have; None = none.
            reseals: take it over this once whatever its seal is, and seal it.
            copy: a place of this broker's own, where what is known is kept as well; where the
                document is lost or cannot be believed, that is what it starts with.
            is_confirmed: False while what is known here may be too old to go by.

        Raises:
            JournalDamaged, Refused: the broker must not start without them. Unavailable.
        """
        if reseals:
            documents.change_document(DOCUMENT, lambda text: _resealed(text, seal))
        text = documents.load_document(DOCUMENT)
        own = self._own_copy(copy, seal, reseals=reseals)
        try:
            stored = None if text is None else key_set_of(text, seal)
        except JournalDamaged:
            if own is None:
                raise
            stored = None
        with self._mutex:
            self._documents, self._seal, self._is_confirmed = documents, seal, is_confirmed
            self._copy = copy
            self.must_confirm = is_confirmed is not _always
            self._merged_text, self._refused_text = None, None
            self._use(self._together(stored, own) if stored or own else None)

    def _own_copy(
        self, copy: Documents | None, seal: Seal | None, *, reseals: bool
    ) -> KeySet | None:
        """What this broker knew in an earlier life, if that can be believed."""
        text = None if copy is None else copy.load_document(DOCUMENT)
        if text is None:
            return None
        try:
            return unsealed_key_set_of(text) if reseals else key_set_of(text, seal)
        except Refused as wrong:
            log.error("this broker's own copy of the API keys is left aside: %s", wrong)
            return None

    def close(self) -> None:
        """Let nobody in until the next `open`."""
        with self._mutex:
            self._documents = None

    @property
    def required(self) -> bool:
        """True if calls need a key. Raises Unavailable while the keys are not read."""
        self._opened()
        return self._known is not None

    def is_confirmed(self) -> bool:
        """False while a key could be known here that was revoked elsewhere long ago."""
        return self._is_confirmed()

    def check_confirmed(self) -> None:
        """Raise Unavailable while a key could be known here that was revoked elsewhere long ago."""
        if not self._is_confirmed():
            raise Unavailable(
                "API keys cannot be confirmed: no coordinator within the lease", 1_000
            )

    def find(self, text: str) -> ApiKey:
        """The key of this text. Takes as long for an unknown id as for a wrong secret.

        Raises:
            Unauthenticated: not known, revoked or ended; says not which. Unavailable: this cannot
                be told at the moment.
        """
        self.check_confirmed()
        key = self._keys.get(id_of(text))
        kept = self._nobody if key is None else key.digest
        same = hmac.compare_digest(digest_of(text), kept)
        if key is None or not same or not self._is_used(key):
            raise Unauthenticated(REFUSAL)
        return key

    def find_signed(self, key_id: str, fits: Callable[[bytes], bool]) -> ApiKey:
        """The key that a request was signed with. Takes as long for an unknown id.

        Args:
            fits: says whether the request has the signature that this makes (ApiKey.signing).

        Raises:
            Unauthenticated: not known, revoked, ended, without what verifies signatures, or the
                signature is another; says not which. Unavailable.
        """
        self.check_confirmed()
        key = self._keys.get(key_id)
        signing = None if key is None else key.signing
        same = fits(self._nobody if signing is None else signing)
        if key is None or signing is None or not same or not self._is_used(key):
            raise Unauthenticated(SIGNATURE_REFUSAL)
        return key

    @property
    def snapshot(self) -> Mapping[str, ApiKey]:
        """The keys as they are now; another object after each change."""
        return self._keys

    def named(self, name: str) -> ApiKey | None:
        """The key of this name, which is used so, unless it has ended; None = there is none.

        Costs a lookup.
        """
        keys, names = self._names
        if keys is not self._keys:
            keys = self._keys
            names = {key.name: key for key in keys.values()}
            self._names = keys, names
        key = names.get(name)
        return key if key is not None and self._is_used(key) else None

    def is_peer(self, text: str) -> bool:
        """True if this is what brokers of the cluster show to one another."""
        known = self.peers_key
        return known is not None and hmac.compare_digest(known.encode(), text.encode())

    def is_live(self, key_id: str) -> bool:
        """True if a key of this id is there and has not ended; "" = no key: while none is needed.

        What open streams ask over and over: a lookup, no digest.
        """
        if not key_id:
            return self._known is None
        key = self._keys.get(key_id)
        return key is not None and self._is_used(key)

    def uses(self) -> tuple[int, dict[str, int]]:
        """Since when uses are known, and by the id of each key that was used when that was last, to
        the minute below, UTC milliseconds; of other brokers as they stored it, a few minutes late.

        A stream that is open uses its key again and again. Costs a look at what is stored.
        """
        return self._uses.told(self._documents)

    def copied(self) -> str | None:
        """What is known of them, as a document without a seal; None = there never was a key."""
        known = self._known
        return None if known is None else known.to_text(None)

    def keep_uses(self) -> None:
        """Store when keys were used here, if that is not stored yet. May wait; raises nothing."""
        documents = self._documents
        if documents is not None:
            self._uses.keep(documents, self._keys)

    def _is_used(self, key: ApiKey) -> bool:
        """True unless it has ended; then this is a use of it."""
        now_ms = self.clock.utc_ms()
        if key.has_ended(now_ms):
            return False
        if self._uses.note(key.id, now_ms) and self._apart is not None:
            self._apart(self.keep_uses)
        return True

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
                it is the first key and could not make others. Unavailable: it may have been made
                nevertheless; then its name is taken, and nobody has its text.
        """
        checked = check_name(name), grants_of(grants)
        now_ms = self.clock.utc_ms()
        ends = _check_end(ends_ms, now_ms)
        key, text = new_key(*checked, now_ms, ends, signs=self.keeps_signing)

        def with_it(known: KeySet | None) -> KeySet:
            if known is None and not _is_lasting_admin(key):
                raise Refused(
                    "from the first key on every call needs one, so the first must be able to make "
                    "others: grant it admin:*, without an end"
                )
            known = known or KeySet()
            if any(other.name == name for other in known.keys.values()):
                raise Refused(f"there is a key of the name {name}; revoke it first")
            return known.with_key(key)

        self._change(with_it)
        return key, text

    def revoke(self, key_id: object, *, force: bool = False) -> ApiKey:
        """Have a key refused from now on.

        Args:
            key_id: its id, its name, or the whole key where that is all one has.
            force: also if it is the last that can make others; a new one is then made where the
                broker's data is (`dejaq key create --data`).

        Raises:
            BadRequest: there is no such key. Refused: it is the last admin key. Unavailable: it may
                have been revoked nevertheless.
        """
        revoked: list[ApiKey] = []

        def without_it(known: KeySet | None) -> KeySet:
            known = known or KeySet()
            key = _named(known, key_id)
            left = known.without(key)
            last = not any(_is_lasting_admin(other) for other in left.keys.values())
            if last and _is_lasting_admin(key) and not force:
                raise Refused(f"{key.name} is the last admin key; make another first, or force it")
            revoked.append(key)
            return left

        self._change(without_it)
        return revoked[-1]

    # --- what is stored ------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take over what others have changed; put back what is lost. Raises Unavailable.

        A document that is gone, or that is refused, changes nothing here: what was known stays in
        force, and is stored again.
        """
        documents = self._opened()
        text = documents.load_document(DOCUMENT)
        if text is not None and text == self._merged_text and not self._is_owing:
            return
        try:
            stored = self._read(text)
        except Refused:  # of a later version, which others may need
            return
        if stored is not None and text != self._merged_text:
            self._merge(stored, text)
        self._is_owing = self._is_lacking(stored)
        now_ms = self.clock.utc_ms()
        if not self._is_owing or now_ms < self._put_back_ms:
            return
        self._put_back_ms = now_ms + PUT_BACK_AGAIN_MS
        try:
            documents.change_document(DOCUMENT, self._put_back)
            self._refused_text = None
        except DejaQError as error:
            log.warning("the API keys known here could not be stored again: %s", error)

    def _opened(self) -> Documents:
        if self._documents is None:
            raise Unavailable("the broker is not running", 1_000)
        return self._documents

    def _is_lacking(self, stored: KeySet | None) -> bool:
        """True if something that is known here is not stored."""
        known = self._known or KeySet()
        return not (stored or KeySet()).has_all_of(known, self.clock.utc_ms())

    def _put_back(self, text: str | None) -> str | None:
        """What is stored with what is known here; None = it has all of that."""
        stored = self._read(text)
        if not self._is_lacking(stored):
            return None
        return self._together(stored, self._known).to_text(self._seal)

    def _change(self, step: Callable[[KeySet | None], KeySet]) -> None:
        """Make a change upon what is stored at that moment; it counts when it is durable."""
        documents = self._opened()
        made: list[tuple[KeySet, str]] = []

        def change(text: str | None) -> str:
            stored, known = self._read(text), self._known
            changed = step(known if stored is None else self._together(stored, known))
            made.append((changed, changed.to_text(self._seal)))
            return made[-1][1]

        documents.change_document(DOCUMENT, change)
        self._merge(*made[-1])

    def _together(self, stored: KeySet | None, known: KeySet | None) -> KeySet:
        both = (stored or KeySet()).merged(known or KeySet())
        return both.without_forgotten(self.clock.utc_ms())

    def _read(self, text: str | None) -> KeySet | None:
        """What is stored; None = nothing to be believed. Raises Refused: a later version."""
        try:
            if text is not None:
                return key_set_of(text, self._seal)
            if self._known is not None:
                self._note_refused("", "the API keys are gone from where they are kept")
        except Refused as wrong:
            self._note_refused(text or "", str(wrong))
            if not isinstance(wrong, JournalDamaged):
                raise
        return None

    def _note_refused(self, text: str, why: str) -> None:
        """Say it once for each document. Where no key was known, nobody is let in from now on."""
        with self._mutex:
            if self._known is None:
                self._use(KeySet())
        if text != self._refused_text:
            self._refused_text = text
            self.refused_count += 1
            log.error("%s; the %d keys known here stay in force", why, len(self._keys))

    def _merge(self, stored: KeySet, text: str | None) -> None:
        with self._mutex:
            self._merged_text, self._refused_text = text, None
            self._use(known := self._together(stored, self._known))
            try:
                if self._copy is not None:
                    kept = known.to_text(self._seal)
                    self._copy.change_document(DOCUMENT, lambda _: kept)
            except DejaQError as error:
                log.warning("the API keys are not kept in this broker's own copy: %s", error)
        for tell in list(self.on_change):
            tell()

    def _use(self, known: KeySet | None) -> None:
        self._known, self._keys = known, {} if known is None else known.keys
        self._uses.forget(self._keys)


def _resealed(text: str | None, seal: Seal | None) -> str | None:
    return None if text is None else unsealed_key_set_of(text).to_text(seal)


def _named(known: KeySet, text: object) -> ApiKey:
    """The key of this id or name; of a whole key nothing but its id is looked at or shown."""
    shown = str(text)
    shown = id_of(shown) or shown
    by_name = [key for key in known.keys.values() if key.name == shown]
    key = known.keys.get(shown) or next(iter(by_name), None)
    if key is None:
        raise BadRequest("key", "the id or the name of a key", shown)
    return key


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
