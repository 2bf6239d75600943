"""The seal of vouchers: what makes one genuine, and its key readable for brokers alone.

    sealed:  16 nonce · key of 32 bytes, masked · HMAC-SHA-256 of all else ·
             1 if there is a key · name

Room: payloads. Pure but for random bytes; any thread.
Holds: what `opened` gives was made with this secret, and is what it was made of.
See: schema/vouchers.py, what anybody reads of one; docs/adr/0076.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

from dejaqueue.errors import BadRequest
from dejaqueue.schema.references import Reference
from dejaqueue.schema.vouchers import LIMIT, VOUCHER, parse_voucher, voucher_head

_NONCE_BYTES, _KEY_BYTES, _TAG_BYTES = 16, 32, 32
_NO_DIGEST: Final = bytes(32)


class VoucherSeal:
    """Makes vouchers, and knows its own again.

    Args:
        secret: of all brokers that take each other's.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def _mask(self, nonce: bytes) -> bytes:
        return hmac.digest(self._secret, b"key" + nonce, hashlib.sha256)

    def _tag(self, head: bytes, nonce: bytes, key: bytes, name: bytes) -> bytes:
        return hmac.digest(self._secret, b"tag" + head + nonce + key + name, hashlib.sha256)

    def voucher(self, reference: Reference, topic: str, kind: int = VOUCHER) -> bytes:
        """A voucher for what a reference is of.

        Args:
            reference: without a digest for an upload.
            topic: who may consume it may read the payload.
        """
        nonce = os.urandom(_NONCE_BYTES)
        head = voucher_head(kind, reference.byte_count, reference.digest or _NO_DIGEST, topic)
        key = _masked(reference.key, self._mask(nonce)) if reference.key else bytes(_KEY_BYTES)
        name = bytes([bool(reference.key)]) + reference.name.encode()
        return head + nonce + key + self._tag(head, nonce, key, name) + name

    def opened(self, content: bytes, kind: int = VOUCHER, field: str = "voucher") -> Reference:
        """What a voucher is for. Raises BadRequest: it is none, or other brokers'."""
        sealed = parse_voucher(content, kind, field).sealed
        head = content[: len(content) - len(sealed)]
        key_at, tag_at = _NONCE_BYTES, _NONCE_BYTES + _KEY_BYTES
        name_at = tag_at + _TAG_BYTES
        nonce, key = sealed[:key_at], sealed[key_at:tag_at]
        tag, name = sealed[tag_at:name_at], sealed[name_at:]
        if not hmac.compare_digest(tag, self._tag(head, nonce, key, name)):
            raise BadRequest(field, f"{LIMIT}, by this broker or its cluster", content[:32])
        parsed = parse_voucher(content, kind, field)
        own = _masked(key, self._mask(nonce)) if name[0] else b""
        return Reference(name[1:].decode(), parsed.byte_count, parsed.digest, own)


def _masked(key: bytes, mask: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(key, mask, strict=True))
