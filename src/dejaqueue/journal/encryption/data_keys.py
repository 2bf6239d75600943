"""Data keys: what a store's content is encrypted with; made here, stored wrapped by a master key.

Each life of a broker makes one, at random, and stores it before it is used. So whoever takes over
a journal on a server finds the key beside it, and two brokers never seal with the same one.

Room: journal. Knows keys and names.
Holds: a data key is durable before anything is sealed with it; one that is stored is never
replaced by another, only wrapped again; there is one cipher for each name in a process, so its
counts never begin again.
See: cipher.py, master_keys.py; docs/adr/0044-encryption-at-rest.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import struct
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from dejaqueue.errors import EncryptionKeyMissing, JournalDamaged, Unavailable
from dejaqueue.journal.encryption.cipher import AeadKey, Cipher
from dejaqueue.journal.encryption.master_keys import KEY_BYTES, MasterKey, new_aead

log = logging.getLogger(__name__)

_FACTS: Final = struct.Struct("<QQ")
_REFUSES_PLAIN: Final = 1
"""Flag of a key: the store was empty when its first one was made."""


class KeyStore(Protocol):
    """Where wrapped data keys are stored: a journal store."""

    def data_key_numbers(self) -> list[int]:
        """Numbers of those that are stored."""
        ...

    def load_data_key(self, number: int) -> str | None:
        """What was stored of a number."""
        ...

    def store_data_key(self, number: int, text: str) -> None:
        """Store it durably."""
        ...


class _WrappedKey(NamedTuple):
    master: str
    content: bytes

    @staticmethod
    def decode(number: int, text: str) -> _WrappedKey:
        try:
            facts = json.loads(text)
            return _WrappedKey(str(facts["master"]), base64.b64decode(facts["wrapped"]))
        except (ValueError, KeyError, TypeError) as wrong:
            raise JournalDamaged(f"data key {number:016x}: not what was written") from wrong

    def encode(self) -> str:
        return json.dumps(
            {"master": self.master, "wrapped": base64.b64encode(self.content).decode()}
        )


class DataKeys:
    """The data keys of a store.

    Args:
        masters: the one to wrap with first.
        is_new: nothing was ever stored in the store: what is not sealed will be refused in it.

    Raises:
        EncryptionKeyMissing: a data key is wrapped with a master key that was not given.
        JournalDamaged: a stored one is not what was written. ResourceExhausted, Unavailable.
    """

    def __init__(self, shelf: KeyStore, masters: Sequence[MasterKey], *, is_new: bool) -> None:
        self._shelf, self._masters = shelf, masters
        self._guard = threading.Lock()
        self._keys: dict[int, bytes] = {}
        self._ciphers: dict[str, Cipher] = {}
        numbers = shelf.data_key_numbers()
        self.refuses_plain = is_new and not numbers
        """See KeySource.refuses_plain."""
        self._wrap_again(numbers)
        self._current = self._make()

    def _wrap_again(self, numbers: Sequence[int]) -> None:
        """What former master keys have wrapped, the first one wraps: then they may go."""
        former = 0
        for number in numbers:
            wrapped = self._wrapped(number)
            if wrapped.master == self._masters[0].name:
                continue
            self._shelf.store_data_key(number, self._wrap(self._unwrap(number, wrapped)))
            former += 1
        if former:
            name = self._masters[0].name
            log.info("%d data keys are wrapped with master key %s now", former, name)
        if numbers:  # the newest facts, in what nobody can change without a master key
            self._learn(numbers[0])

    def _wrapped(self, number: int) -> _WrappedKey:
        text = self._shelf.load_data_key(number)
        if text is None:
            raise EncryptionKeyMissing(
                f"data key {number:016x} is missing: what it encrypted cannot be read"
            )
        return _WrappedKey.decode(number, text)

    def _wrap(self, content: bytes) -> str:
        master = self._masters[0]
        return _WrappedKey(master.name, master.wrap(content)).encode()

    def _unwrap(self, number: int, wrapped: _WrappedKey) -> bytes:
        named = {master.name: master for master in self._masters}
        master = named.get(wrapped.master)
        if master is None:
            raise EncryptionKeyMissing(
                f"data key {number:016x} is wrapped with master key {wrapped.master}, "
                f"which was not given; given: {', '.join(named)}"
            )
        try:
            content = master.unwrap(wrapped.content)
        except Unavailable:  # a key service: it may answer later
            raise
        except Exception as wrong:
            raise EncryptionKeyMissing(
                f"master key {master.name} does not unwrap data key {number:016x}: {wrong!r}"
            ) from wrong
        is_whole = len(content) == KEY_BYTES + _FACTS.size
        if not is_whole or _FACTS.unpack(content[KEY_BYTES:])[0] != number:
            raise JournalDamaged(f"data key {number:016x}: another one is in its place")
        return content

    def _learn(self, number: int) -> bytes:
        """The bytes of a stored key; other brokers may have made it since the start."""
        content = self._unwrap(number, self._wrapped(number))
        flags = _FACTS.unpack(content[KEY_BYTES:])[1]
        if flags & _REFUSES_PLAIN:
            self.refuses_plain = True
        self._keys[number] = content[:KEY_BYTES]
        return self._keys[number]

    def _make(self) -> int:
        number = int.from_bytes(os.urandom(8), "little") or 1
        key = os.urandom(KEY_BYTES)
        flags = _REFUSES_PLAIN if self.refuses_plain else 0
        self._shelf.store_data_key(number, self._wrap(key + _FACTS.pack(number, flags)))
        self._keys[number] = key
        return number

    def current(self, after: int) -> int:
        """See KeySource.current."""
        with self._guard:
            if self._current == after:
                self._current = self._make()
            return self._current

    def derived(self, number: int, name: str) -> AeadKey:
        """See KeySource.derived."""
        with self._guard:
            key = self._keys.get(number)
            if key is None:
                key = self._learn(number)
        # HKDF of RFC 5869 with SHA-256, one block; the data key is random, so no salt is needed.
        extracted = hmac.digest(bytes(32), key, hashlib.sha256)
        return new_aead(hmac.digest(extracted, name.encode() + b"\x01", hashlib.sha256))

    def cipher(self, name: str) -> Cipher:
        """The cipher of a log or journal; always the same one."""
        cipher = self._ciphers.get(name)
        if cipher is None:
            # Two threads that ask at once get the same one: the second is thrown away unused.
            cipher = self._ciphers.setdefault(name, Cipher(self, name))
        return cipher
