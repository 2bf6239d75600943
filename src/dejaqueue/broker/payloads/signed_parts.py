"""Signed URLs: streamed payloads that go between a client and the object store, past the broker.

What goes this way is compared when it is read: by whoever reads it, with the list of parts, of
which the sender says the hashes at the end. A payload that is encrypted does not: the key would
have to leave.

Room: broker. Any thread.
Holds: a URL is of one part of one payload, for SIGNED_MS at most; with it nothing else can be read
or written.
See: streamed.py, what begins and ends such an upload; connections/bucket.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dejaqueue import limits
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.payloads.streamed import (
    begin_upload,
    byte_count_max,
    check_size,
    list_of,
    seal_of,
    upload_of,
)
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import Topic
from dejaqueue.payloads.streamed_store import part_name
from dejaqueue.schema.payload_parts import PartList, part_count
from dejaqueue.schema.references import Reference
from dejaqueue.schema.vouchers import UPLOAD

SIGNED_MS: Final = 3_600_000
"""So long a URL can be used: for 5 GiB at 12 Mbit/s."""


class SignedParts(NamedTuple):
    """Where the parts of a payload are, or go.

    Attributes:
        urls: of each part.
        headers: that each of these requests has to have, by name; of S3 and Google, none.
        until_ms: they can be used until then, UTC.
    """

    urls: list[str]
    headers: dict[str, str]
    until_ms: int


class Places(NamedTuple):
    """Which parts are asked for.

    Attributes:
        end: the one behind the last; None = to the end.
    """

    first: int = 0
    end: int | None = None

    def within(self, count: int, *, clips: bool = False) -> range:
        """Their indices. Raises BadRequest: there are no such parts.

        Args:
            count: of all parts.
            clips: those behind the last one may be asked for, and are left out.
        """
        end = count if self.end is None else self.end
        if clips:
            end = min(end, count)
        if not 0 <= self.first <= end <= count:
            raise BadRequest("first", f"first <= end, from 0 to {count}", self.first)
        return range(self.first, end)


ALL: Final = Places()


def sign_upload(payloads: Payloads, topic: Topic, byte_count: int) -> tuple[bytes, SignedParts]:
    """Begin an upload whose parts are PUT at URLs; what its end needs, and these.

    Raises:
        BadRequest: the topic takes less. Refused: the store signs none, payloads are encrypted, or
            the settings have them go through the broker.
    """
    if not 1 <= byte_count <= limits.STREAMED_BYTES_MAX:
        limit = f"a whole number from 1 to {limits.STREAMED_BYTES_MAX}"
        raise BadRequest("bytes", limit, byte_count)
    check_size(topic, byte_count)
    upload = begin_upload(payloads, topic.name)
    begun = seal_of(payloads).opened(upload, UPLOAD)
    return upload, _signed(payloads, "PUT", begun, range(part_count(byte_count)))


def sign_parts(payloads: Payloads, topic: Topic, upload: bytes, places: Places) -> SignedParts:
    """URLs to PUT more parts of an upload at that has begun.

    Raises:
        BadRequest: it has not, or the topic takes no such parts. Refused as `sign_upload`.
    """
    begun = upload_of(payloads, topic.name, upload)
    count = part_count(byte_count_max(topic))
    return _signed(payloads, "PUT", begun, places.within(count, clips=True))


def sign_payload(
    payloads: Payloads, topic: str, voucher: bytes, places: Places = ALL
) -> tuple[PartList, SignedParts]:
    """URLs to GET parts of a payload from, and what each part is.

    Raises:
        BadRequest: the voucher is of another topic, or it has no such parts. JournalDamaged: the
            payload is missing. Refused as `sign_upload`. Unavailable.
    """
    reference, parts = list_of(payloads, topic, voucher)
    return parts, _signed(payloads, "GET", reference, places.within(parts.count))


def _signed(payloads: Payloads, method: str, reference: Reference, indices: range) -> SignedParts:
    if not payloads.settings.payloads.direct:
        raise Refused("payloads go through the broker here (payloads.direct)")
    if reference.key:
        raise Refused("payloads are encrypted here: they go through the broker")
    names = [part_name(reference.name, index) for index in indices]
    until_ms = payloads.clock.utc_ms() + SIGNED_MS
    store = payloads.needed()
    urls = payloads.waited(store.sign, method, names, SIGNED_MS)
    return SignedParts(urls, store.signed_headers(method), until_ms)
