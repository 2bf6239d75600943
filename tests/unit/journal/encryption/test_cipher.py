"""Covers: what is sealed and opened; that no key meets a count twice; objects.

Not covered: where keys come from (test_data_keys.py), entries (test_format.py).
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dejaqueue.errors import EncryptionKeyMissing, JournalDamaged
from dejaqueue.journal.encryption import cipher as cipher_module
from dejaqueue.journal.encryption.cipher import (
    TRAILER_BYTES,
    AeadKey,
    Cipher,
    open_object,
    seal_object,
)
from dejaqueue.journal.encryption.master_keys import new_aead


class Keys:
    """Keys by number, made on demand; the nonces that were used with each."""

    def __init__(self) -> None:
        self.newest, self.refuses_plain = 1, False
        self.nonces: list[tuple[int, str, bytes]] = []

    def current(self, after: int) -> int:
        if self.newest == after:
            self.newest += 1
        return self.newest

    def derived(self, number: int, name: str) -> AeadKey:
        keys, real = self, new_aead((f"{number}{name}" * 32).encode()[:32])

        class Noting:
            def encrypt(self, nonce: bytes, data: Any, associated_data: Any) -> bytes:
                keys.nonces.append((number, name, nonce))
                return real.encrypt(nonce, data, associated_data)

            def encrypt_into(
                self, nonce: bytes, data: Any, associated_data: Any, buf: memoryview
            ) -> int:
                buf[:] = self.encrypt(nonce, data, associated_data)
                return len(buf)

            def decrypt_into(
                self, nonce: bytes, data: Any, associated_data: Any, buf: memoryview
            ) -> int:
                return real.decrypt_into(nonce, data, associated_data, buf)

            def decrypt(self, nonce: bytes, data: Any, associated_data: Any) -> bytes:
                return real.decrypt(nonce, data, associated_data)

        return Noting()


def test_what_is_sealed_is_opened__and_every_bit_of_it_and_of_what_belongs_to_it_counts() -> None:
    cipher = Cipher(Keys(), "log")
    sealed = cipher.seal(b"clear text", b"place 7")
    assert len(sealed) == 10 + TRAILER_BYTES
    assert b"clear" not in sealed
    assert cipher.open(sealed, b"place 7") == b"clear text"
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(JournalDamaged):
            cipher.open(bytes(changed), b"place 7")
    for wrong in (b"place 8", b""):
        with pytest.raises(JournalDamaged, match="not what was encrypted at this place"):
            cipher.open(sealed, wrong)
    with pytest.raises(JournalDamaged, match="too short"):
        cipher.open(sealed[-TRAILER_BYTES + 1 :], b"place 7")


def test_what_is_sealed_for_one_name_is_nothing_under_another() -> None:
    keys = Keys()
    with pytest.raises(JournalDamaged):
        Cipher(keys, "b").open(Cipher(keys, "a").seal(b"x", b""), b"")


def test_no_key_meets_a_nonce_twice__threads_race_for_the_next_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cipher_module, "USES_MAX", 7)
    keys = Keys()
    cipher = Cipher(keys, "log")
    start = threading.Barrier(4)
    sealed: list[bytes] = []

    def work() -> None:
        start.wait()
        sealed.extend(cipher.seal(b"x", b"") for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys.nonces)) == len(keys.nonces) == 400
    assert keys.newest >= 400 // 7
    assert {cipher.open(one, b"") for one in sealed} == {b"x"}  # former keys open what they sealed


def test_an_object_is_sealed_for_its_name__plain_where_nothing_is_encrypted() -> None:
    keys = Keys()
    cipher = Cipher(keys, "snapshots")
    stored = seal_object(cipher, b"part", "7/part")
    assert open_object(cipher, stored, "7/part") == b"part"
    with pytest.raises(JournalDamaged, match="8/part"):
        open_object(cipher, stored, "8/part")
    with pytest.raises(
        EncryptionKeyMissing, match="7/part is encrypted, and encryption.master_key"
    ):
        open_object(None, stored, "7/part")
    plain = seal_object(None, b"part", "7/part")
    assert plain == open_object(None, plain, "7/part") == open_object(cipher, plain, "7/part")
    keys.refuses_plain = True
    with pytest.raises(JournalDamaged, match="is not encrypted, as everything here is"):
        open_object(cipher, plain, "7/part")
