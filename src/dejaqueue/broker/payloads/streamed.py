"""Streamed payloads: uploads part by part, vouchers for them, and parts read again.

Nothing is kept here between two calls: what an upload is, and the key of its parts, is in the
voucher that its client shows with each. So any broker of a cluster takes any part, in any order and
more than once, and one that is started again goes on.

Room: broker. Any thread; what asks the store waits for one of the threads that may.
Holds: a voucher is given for a payload whose parts are all durable, and for no other; whose
voucher a message carries has its own copy before it is acknowledged; no more than a part is held
on its way in, and AHEAD more on its way out.
See: payloads.py; uploads.py, which takes vouchers in; payloads/streamed_store.py; docs/adr/0076.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dejaqueue import limits
from dejaqueue.broker.payloads.payloads import NO_STORE, Payloads
from dejaqueue.errors import BadRequest, JournalDamaged, Refused
from dejaqueue.model import Topic
from dejaqueue.payloads import streamed_store
from dejaqueue.payloads.voucher_seal import VoucherSeal
from dejaqueue.schema.payload_parts import LIST_INDEX, PartList, new_part_list, part_count
from dejaqueue.schema.references import Reference
from dejaqueue.schema.vouchers import UPLOAD, parse_voucher


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part as it comes in.

    Attributes:
        digest: SHA-256 of the content, as the sender has it.
    """

    index: int
    content: bytes | memoryview
    digest: bytes


def seal_of(payloads: Payloads) -> VoucherSeal:
    """Makes and knows vouchers. Raises Refused: there is no payload store."""
    if payloads.seal is None:
        raise Refused(NO_STORE)
    return payloads.seal


def byte_count_max(topic: Topic) -> int:
    """Bytes of a streamed payload that a topic takes."""
    return min(topic.max_payload_bytes, limits.STREAMED_BYTES_MAX)


# --- in -------------------------------------------------------------------------------------------


def begin_upload(payloads: Payloads, topic: str, owner: str = "") -> bytes:
    """What a client shows with each part of a new payload. Raises Refused.

    Args:
        owner: as for Payloads.new_upload.
    """
    name = payloads.new_upload(owner)
    return seal_of(payloads).voucher(Reference(name, 0, b"", payloads.new_key()), topic, UPLOAD)


def upload_of(payloads: Payloads, topic: str, upload: bytes) -> Reference:
    """What an upload is. Raises BadRequest: it is of another topic, or none. Refused."""
    if parse_voucher(upload, UPLOAD, "upload").topic != topic:
        raise BadRequest("upload", "one that was begun for this topic", upload[:32])
    return seal_of(payloads).opened(upload, UPLOAD, "upload")


def put_part(payloads: Payloads, topic: Topic, upload: bytes, part: UploadedPart) -> None:
    """Store a part durably; the same one again is fine.

    Raises:
        BadRequest: it is none, or its bytes are not those that were sent. Refused, Unavailable,
            ResourceExhausted.
    """
    begun = upload_of(payloads, topic.name, upload)
    size, most = len(part.content), limits.PART_BYTES
    if not 1 <= size <= most:
        raise BadRequest("content", f"from 1 to {most} bytes", size)
    high = byte_count_max(topic)
    if part.index < 0:
        raise BadRequest("index", "0 or more", part.index)
    if part.index >= part_count(high):
        more = part.index * most + size
        raise BadRequest("payload", f"at most {high} bytes", more)
    if hashlib.sha256(part.content).digest() != part.digest:
        raise BadRequest("digest", "SHA-256 of the content that came", part.digest.hex())
    store = payloads.needed()
    payloads.waited(streamed_store.put_part, store, begun.name, part.index, part.content, begun.key)


def end_upload(
    payloads: Payloads, topic: Topic, upload: bytes, byte_count: int, digests: bytes
) -> bytes:
    """The voucher of a payload whose parts are all stored.

    Raises:
        BadRequest: a part is missing, or the topic takes less. Refused, Unavailable,
            ResourceExhausted.
    """
    begun = upload_of(payloads, topic.name, upload)
    parts = new_part_list(byte_count, digests)
    check_size(topic, byte_count)
    store = payloads.needed()
    ended = payloads.waited(streamed_store.end_parts, store, begun.name, parts, begun.key)
    return seal_of(payloads).voucher(ended, topic.name)


def check_size(topic: Topic, byte_count: int) -> None:
    """Raise BadRequest if a topic takes no payloads of this size."""
    high = byte_count_max(topic)
    if byte_count > high:
        raise BadRequest("payload", f"at most {high} bytes", byte_count)


def adopt(payloads: Payloads, voucher: bytes, topic: Topic, owner: str) -> Reference:
    """The payload of a voucher as a message of a topic has it, on this thread.

    Args:
        owner: as for Payloads.new_name.

    Raises:
        BadRequest: no payload is there, or the topic takes less. Unavailable, ResourceExhausted.
    """
    reference = seal_of(payloads).opened(voucher, field="payload")
    check_size(topic, reference.byte_count)
    try:
        if payloads.may_keep(reference.name, owner) and payloads.keep_streamed(reference):
            return reference
        # Each message has one of its own, also of two that are sent with one voucher.
        return payloads.copy_streamed(reference, payloads.new_name(owner))
    except JournalDamaged as missing:
        limit = f"the voucher of a payload that is still there ({missing})"
        raise BadRequest("payload", limit, voucher[:32]) from missing


# --- out ------------------------------------------------------------------------------------------


def delivered(payloads: Payloads, topic: str, voucher: bytes) -> Reference:
    """What a voucher is for. Raises BadRequest: it is of another topic, or none. Refused."""
    parsed = parse_voucher(voucher)
    if parsed.topic != topic:
        raise BadRequest("voucher", f"one of topic {topic}", parsed.topic)
    return seal_of(payloads).opened(voucher)


def list_of(payloads: Payloads, topic: str, voucher: bytes) -> tuple[Reference, PartList]:
    """What a voucher is for, and its parts. Raises as `read_part`."""
    reference = delivered(payloads, topic, voucher)
    return reference, payloads.waited(streamed_store.get_list, payloads.needed(), reference)


def read_parts(
    payloads: Payloads, topic: str, voucher: bytes, indices: Sequence[int]
) -> Iterator[bytes]:
    """Parts of a payload, or with LIST_INDEX the list of them; a few are read ahead.

    Raises:
        BadRequest: the voucher is of another topic, or it has no such part. JournalDamaged: it is
            missing, or another one. Refused, Unavailable.
    """
    reference = delivered(payloads, topic, voucher)
    count = part_count(reference.byte_count)
    for index in indices:
        if not LIST_INDEX <= index < count:
            raise BadRequest("part", f"from {LIST_INDEX} to {count - 1}", index)
    store = payloads.needed()
    for index, content in zip(
        indices,
        payloads.each_waited(streamed_store.get_part, [(store, reference, at) for at in indices]),
        strict=True,
    ):
        if index == LIST_INDEX:
            payloads.count(fetched=1, fetched_bytes=reference.byte_count)
        yield content
