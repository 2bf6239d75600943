"""What seals and opens the bytes that one log, or one journal, stores: AES-256-GCM.

    sealed content                     a sealed object: a part of a snapshot
     …  encrypted, as long as it was    0  8 magic "DEJAQENC"
     …  16 tag                          8  … sealed content
     …   8 key u64    which data key
     …   8 count u64  of its uses here

Each cipher has a key of its own, made of the data key and the name of what it is for (HKDF), so
content of one log means nothing in another. The nonce is `count`, from 1.

Room: journal. Knows bytes.
Holds: no two contents are sealed with the same key and count: the data key is made at random for
one life of one process, and a count that was taken is never given back, whatever became of it.
See: data_keys.py, which keeps one cipher for each name; journal/format.py, docs/adr/0044.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from dejaqueue.errors import EncryptionKeyMissing, JournalDamaged

Content: TypeAlias = bytes | memoryview

USES_MAX: Final = 1 << 30
"""Contents that one key seals before the next data key is made."""
TRAILER_BYTES: Final = 32
MAGIC: Final = b"DEJAQENC"

_NOT_HERE: Final = "it is not what was encrypted at this place"
_TAG_BYTES: Final = 16
_NONCE: Final = struct.Struct("<4xQ")
_USE: Final = struct.Struct("<QQ")

assert _TAG_BYTES + _USE.size == TRAILER_BYTES


class AeadKey(Protocol):
    """Authenticated encryption with a key: AESGCM of `cryptography`, or what stands for it."""

    def encrypt(self, nonce: bytes, content: Content, belonging: Content, /) -> bytes:
        """Content encrypted, and its tag."""
        ...

    def decrypt(self, nonce: bytes, content: Content, belonging: Content, /) -> bytes:
        """Content that was encrypted. Raises an error if it, or what belongs to it, is another."""
        ...

    def encrypt_into(
        self, nonce: bytes, content: Content, belonging: Content, target: memoryview, /
    ) -> int:
        """The same as `encrypt`, into memory of just that size."""
        ...

    def decrypt_into(
        self, nonce: bytes, content: Content, belonging: Content, target: memoryview, /
    ) -> int:
        """The same as `decrypt`, into memory of just that size."""
        ...


class KeySource(Protocol):
    """Where ciphers have their keys from: data_keys.py."""

    @property
    def refuses_plain(self) -> bool:
        """Whether everything in the store is sealed, so that what is not was put there."""
        ...

    def current(self, after: int) -> int:
        """Number of the data key to seal with; a newer one than `after`, 0 = any."""
        ...

    def derived(self, number: int, name: str) -> AeadKey:
        """The key of a cipher. Raises EncryptionKeyMissing."""
        ...


class Cipher:
    """Seals and opens what belongs to one name.

    Args:
        name: what it is for: a log, a journal. Content sealed for one cannot be opened for another.
    """

    def __init__(self, keys: KeySource, name: str) -> None:
        self._keys, self._name = keys, name
        self._opening: dict[int, AeadKey] = {}
        self._turning = threading.Lock()
        self._sealing = self._begin(0)

    def _begin(self, after: int) -> tuple[int, AeadKey, Callable[[], int]]:
        number = self._keys.current(after)
        counts = itertools.count(1)  # one step of the interpreter: no two threads get the same
        return number, self._key(number), counts.__next__

    def _key(self, number: int) -> AeadKey:
        key = self._opening.get(number)
        if key is None:
            key = self._opening[number] = self._keys.derived(number, self._name)
        return key

    @property
    def refuses_plain(self) -> bool:
        """Whether content that is not sealed is not ours."""
        return self._keys.refuses_plain

    def _next(self) -> tuple[int, AeadKey, int]:
        """A key, and a count that nobody had or will have with it. Any thread."""
        number, key, count_up = self._sealing
        count = count_up()
        while count > USES_MAX:
            with self._turning:  # one count for a key, whoever comes first
                if self._sealing[0] == number:
                    self._sealing = self._begin(number)
            number, key, count_up = self._sealing
            count = count_up()
        return number, key, count

    def seal(self, clear: Content, belonging: Content) -> bytes:
        """Content sealed, TRAILER_BYTES longer. Any thread.

        Args:
            belonging: is not encrypted, but has to be the same when the content is opened.
        """
        number, key, count = self._next()
        return key.encrypt(_NONCE.pack(count), clear, belonging) + _USE.pack(number, count)

    def seal_into(self, clear: Content, belonging: Content, target: memoryview) -> None:
        """As `seal`, into memory TRAILER_BYTES larger than the content."""
        number, key, count = self._next()
        use_at = len(target) - _USE.size
        key.encrypt_into(_NONCE.pack(count), clear, belonging, target[:use_at])
        _USE.pack_into(target, use_at, number, count)

    def open(self, sealed: Content, belonging: Content) -> bytes:
        """What was sealed. Any thread.

        Raises:
            JournalDamaged: it is not what was sealed, or not at this place.
            EncryptionKeyMissing: its data key is not there.
        """
        key, nonce, content = self._use_of(sealed)
        try:
            return key.decrypt(nonce, content, belonging)
        except Exception as wrong:
            # The library has an error of its own, which is known where it is loaded alone.
            raise JournalDamaged(_NOT_HERE) from wrong

    def open_into(self, sealed: Content, belonging: Content, target: memoryview) -> None:
        """As `open`, into memory TRAILER_BYTES smaller; after an error it has anything."""
        key, nonce, content = self._use_of(sealed)
        try:
            key.decrypt_into(nonce, content, belonging, target)
        except Exception as wrong:
            raise JournalDamaged(_NOT_HERE) from wrong

    def _use_of(self, sealed: Content) -> tuple[AeadKey, bytes, memoryview]:
        if len(sealed) < TRAILER_BYTES:
            raise JournalDamaged("too short for what is encrypted")
        number, count = _USE.unpack_from(sealed, len(sealed) - _USE.size)
        return self._key(number), _NONCE.pack(count), memoryview(sealed)[: -_USE.size]


def seal_object(cipher: Cipher | None, content: Content, name: str) -> Content:
    """An object as it is stored: sealed for its name, or as it is if there is no cipher."""
    if cipher is None:
        return content
    return MAGIC + cipher.seal(content, name.encode())


def open_object(cipher: Cipher | None, stored: Content, name: str) -> Content:
    """What `seal_object` was given.

    Raises:
        JournalDamaged: it is not what was sealed for this name.
        EncryptionKeyMissing: there is no key to open it with.
    """
    if bytes(stored[: len(MAGIC)]) != MAGIC:
        if cipher is not None and cipher.refuses_plain:
            raise JournalDamaged(f"{name}: is not encrypted, as everything here is")
        return stored
    if cipher is None:
        raise no_master_key(name)
    try:
        return cipher.open(memoryview(stored)[len(MAGIC) :], name.encode())
    except JournalDamaged as damage:
        raise JournalDamaged(f"{name}: {damage}") from damage


def data_key_of(stored: Content) -> int:
    """The number of the data key that a stored object was sealed with; 0 = it is not sealed."""
    if bytes(stored[: len(MAGIC)]) != MAGIC or len(stored) < len(MAGIC) + TRAILER_BYTES:
        return 0
    return int(_USE.unpack_from(stored, len(stored) - _USE.size)[0])


def no_master_key(what: str) -> EncryptionKeyMissing:
    """The error of who reads what is sealed and was given no master key."""
    return EncryptionKeyMissing(f"{what} is encrypted, and encryption.master_key is not set")
