"""Receipt handles: which delivery of which message a consumer has in its hand.

Room: http. Pure.
Holds: a handle of one queue is none of another; each delivery of a message has its own (rule 4).

A handle is no secret (docs/reference/semantics.md, "Senders"): id and attempt, as our own clients
send them, in a text without structure.
"""

from __future__ import annotations

import binascii
import hashlib
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache

from dejaqueue.http.sqs.refusals import SqsRefusal

_LAYOUT = struct.Struct(">8sqH")


@lru_cache(maxsize=4_096)
def _mark(queue_name: str) -> bytes:
    return hashlib.blake2b(queue_name.encode(), digest_size=8).digest()


def receipt_of(queue_name: str, message_id: int, attempts: int) -> str:
    """The handle of a delivery."""
    return urlsafe_b64encode(_LAYOUT.pack(_mark(queue_name), message_id, attempts)).decode()


def delivery_of(queue_name: str, receipt: object) -> tuple[int, int]:
    """Id and attempt of a handle. Raises SqsRefusal."""
    try:
        if isinstance(receipt, str):
            mark, message_id, attempts = _LAYOUT.unpack(urlsafe_b64decode(receipt.encode()))
            if mark == _mark(queue_name) and message_id >= 0:
                return message_id, attempts
    except (ValueError, binascii.Error, struct.error):
        pass
    text = f"ReceiptHandle: of a message of queue {queue_name}, got: {receipt!r:.100}"
    raise SqsRefusal("ReceiptHandleIsInvalid", text)
