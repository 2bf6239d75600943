"""The payload store: payloads by reference, in a bucket as backups are kept in.

Each payload that is encrypted has a key of its own, which is in its reference and nowhere else. The
reference is in the journal, which is encrypted itself; so whoever has the message can read the
payload, also where the message was restored to, and when the last copy of the reference is gone
nobody can.

Room: payloads. Any thread; every call may take as long as the bucket does.
Holds: a payload is durable when `put` returns; what `get` returns has the reference's SHA-256; a
store that is away is not asked by everybody again and again: after a failure the next second's
calls fail at once.
See: connections/bucket.py, the port beneath; docs/guides/large-payloads.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from dejaqueue.connections.bucket import Bucket, StoredObject
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import JournalDamaged, Refused, ResourceExhausted, Unavailable
from dejaqueue.journal.encryption.master_keys import new_aead
from dejaqueue.schema.references import Reference

KEY_BYTES: Final = 32
_NONCE: Final = bytes(12)
"""One key seals one payload, so that it needs no other nonce."""
AWAY_US: Final = 1_000_000
"""So long after a failure nobody asks."""
PATIENCE_SECONDS: Final = 10
"""So long an object store is asked again; then the caller is told."""


class PayloadStore:
    """Payloads by reference.

    Args:
        bucket: where they are.
        now_us: elapsed time, by which it is known how long ago the store failed.
    """

    def __init__(self, bucket: Bucket, now_us: Callable[[], int]) -> None:
        self._bucket, self._now_us = bucket, now_us
        self._away_until_us = 0
        self._failure = ""

    @property
    def url(self) -> str:
        """Where it is, without what could be secret."""
        return self._bucket.url

    @property
    def signs(self) -> bool:
        """Whether it signs URLs."""
        return self._bucket.signs

    @contextmanager
    def _asked(self) -> Iterator[None]:
        if self._now_us() < self._away_until_us:
            raise Unavailable(f"the payload store is away ({self._failure})", 1_000)
        try:
            yield
        except (Unavailable, ResourceExhausted) as failure:
            self._failure = str(failure)
            self._away_until_us = self._now_us() + AWAY_US
            raise

    def put(self, name: str, payload: bytes | memoryview, key: bytes = b"") -> Reference:
        """Store a payload durably under a name of its own.

        Args:
            key: to encrypt it with, of KEY_BYTES, which nothing else is; b"" = it is not.

        Raises:
            ResourceExhausted: there is no room. Unavailable: whether it is there is not known.
        """
        digest = hashlib.sha256(payload).digest()
        content = payload
        if key:
            content = new_aead(key).encrypt(_NONCE, payload, name.encode())
        with self._asked():
            self._bucket.put(name, content)
        return Reference(name, len(payload), digest, key)

    def get(self, reference: Reference) -> bytes:
        """The payload that a reference is of; of a cold one its object is read as a whole.

        Raises:
            JournalDamaged: it is not there, or is another one. Unavailable: it is not known.
        """
        if reference.is_cold:
            return slice_of(reference, self.get(reference.whole))
        return _opened(reference, self._content(reference))

    def get_checked(self, reference: Reference) -> bytes:
        """The object of a payload that is not streamed, as it is stored; it is what the reference
        says. Raises as `get`."""
        content = self._content(reference)
        _opened(reference.whole, content)
        return content

    def _content(self, reference: Reference) -> bytes:
        with self._asked():
            content = self._bucket.get(reference.name)
        if content is None:
            raise JournalDamaged(f"{_named(reference)} is missing from the payload store")
        return content

    def mark(self, name: str) -> None:
        """Store an object without content. Raises as `put`."""
        self.put_object(name, b"")

    # --- objects as they are --------------------------------------------------------------------

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """Store an object that no reference is of. Raises as `put`."""
        with self._asked():
            self._bucket.put(name, content)

    def put_ahead(self, name: str, content: bytes | memoryview) -> None:
        """See Bucket.put_ahead. Raises as `put`."""
        with self._asked():
            self._bucket.put_ahead(name, content)

    def claim(self, name: str) -> bool:
        """Whether this caller is the first who wants an object of this name, and has it now.

        False where that is not certain: after a failure, and of a store that knows no condition.
        """
        try:
            # A store that ignores the condition says twice that there was none.
            return self._bucket.put_new(name, b"") and not self._bucket.put_new(name, b"")
        except (Unavailable, ResourceExhausted):
            return False  # who is told does it another way, and hears there of what is wrong

    def get_object(self, name: str) -> bytes | None:
        """Its content; None if there is none. Raises Unavailable."""
        with self._asked():
            return self._bucket.get(name)

    def sign(self, method: str, names: Sequence[str], length_ms: int) -> list[str]:
        """See Bucket.sign. Raises Refused: this store signs none."""
        urls = self._bucket.sign(method, names, length_ms)
        if urls is None:
            raise Refused("the payload store is a directory: payloads go through the broker")
        return urls

    def signed_headers(self, method: str) -> dict[str, str]:
        """See Bucket.signed_headers."""
        return self._bucket.signed_headers(method)

    def copy(self, names: Iterable[tuple[str, str]]) -> list[str]:
        """See Bucket.copy."""
        with self._asked():
            return self._bucket.copy(names)

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """What is stored under names that begin with a prefix, which ends in a slash. Raises
        Unavailable."""
        with self._asked():
            yield from self._bucket.objects(prefix)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that is not there is fine. Raises Unavailable."""
        with self._asked():
            self._bucket.delete(names)


def _named(reference: Reference) -> str:
    return f"payload {reference.name} of {reference.byte_count:,} bytes"


def _opened(reference: Reference, content: bytes) -> bytes:
    """The payload of an object's content. Raises JournalDamaged: it is another one."""
    if reference.key:
        try:
            content = new_aead(reference.key).decrypt(_NONCE, content, reference.name.encode())
        except Exception as wrong:
            # The library has an error of its own, which is known where it is loaded alone.
            raise JournalDamaged(f"{_named(reference)} is not what was stored") from wrong
    if hashlib.sha256(content).digest() != reference.digest:
        raise JournalDamaged(f"{_named(reference)} is not what was stored")
    return content


def slice_of(reference: Reference, content: bytes) -> bytes:
    """A cold payload, of what its object has. Raises JournalDamaged."""
    end = reference.offset + reference.byte_count
    if end > len(content):
        raise JournalDamaged(f"payload {reference.name} does not reach to {end:,} bytes")
    return content[reference.offset : end]


def open_payload_store(url: str, now_us: Callable[[], int]) -> PayloadStore:
    """The store of a URL. Raises BadRequest: it has another form, or its extra is missing."""
    bucket = open_bucket(url, setting="payloads.url", patience_seconds=PATIENCE_SECONDS)
    return PayloadStore(bucket, now_us)
