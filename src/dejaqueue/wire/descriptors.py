"""Stream descriptors: the JSON command that opens a Flight stream.

Room: wire. No sockets.
Holds: unknown fields are refused with their name (rule 15).
See: docs/wire.md.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import TagFilter
from dejaqueue.topic_names import check_served_name
from dejaqueue.wire.frames import check_reason

WRITE_OPS = ("enqueue", "move", "cancel", "ack", "nack", "extend")
STAGED_OPS = ("enqueue", "ack")
ACKS = ("all", "leader", "none")
_ADDRESS = struct.Struct("<IB")
_CONSUMER_ID = re.compile("[0-9a-f]{0,32}")


@dataclass(frozen=True, slots=True)
class WriteStream:
    """Opens a DoPut stream: what its batches are.

    Attributes:
        topic: the topic; "" = each batch names its own, with the producer (Address).
        op: one of WRITE_OPS.
        acks: `all` (reply when durable), `leader` (reply when accepted), `none` (no reply).
        producer: name for idempotent retries (rule 10); "" = none. Only for enqueue.
        argument_ms: nack: delay, -1 = as the topic's backoff says; extend: the lease from now. 0
            otherwise.
        reason: nack: why, for the dead letter.
        dead: nack: they die now, however often they were delivered.
        released: nack: this delivery does not count: nobody looked at them.
        transaction: enqueue, ack: the one it belongs to (`begin_transaction`); "" = none.
    """

    topic: str
    op: str = "enqueue"
    acks: str = "all"
    producer: str = ""
    argument_ms: int = 0
    reason: str = ""
    dead: bool = False
    transaction: str = ""
    released: bool = False

    def check(self) -> WriteStream:
        """Return self, or raise BadRequest."""
        check_served_name(self.topic)
        return self.check_kind()

    def check_kind(self) -> WriteStream:
        """As `check`, but for the topic."""
        if self.op not in WRITE_OPS:
            raise BadRequest("op", f"one of {', '.join(WRITE_OPS)}", self.op)
        if self.acks not in ACKS:
            raise BadRequest("acks", f"one of {', '.join(ACKS)}", self.acks)
        if not isinstance(self.producer, str):
            raise BadRequest("producer", "a text", self.producer)
        if len(self.producer.encode()) > limits.PRODUCER_NAME_BYTES_MAX:
            raise BadRequest(
                "producer", f"at most {limits.PRODUCER_NAME_BYTES_MAX} bytes", self.producer
            )
        by_backoff = self.op == "nack" and self.argument_ms == -1
        if not by_backoff or not isinstance(self.argument_ms, int):
            check_span("argument_ms", self.argument_ms)
        check_reason("reason", self.reason)
        for name in ("dead", "released"):
            if not isinstance(getattr(self, name), bool):
                raise BadRequest(name, "true or false", getattr(self, name))
        if self.dead and self.released:
            raise BadRequest("released", "nothing of messages that die", self.released)
        for name in ("reason", "dead", "released"):
            if self.op != "nack" and getattr(self, name):
                raise BadRequest(name, "nothing but for a nack", getattr(self, name))
        self._check_transaction()
        return self

    def _check_transaction(self) -> None:
        if not isinstance(self.transaction, str):
            raise BadRequest("transaction", "a text", self.transaction)
        if self.transaction and self.op not in STAGED_OPS:
            raise BadRequest("op", f"one of {', '.join(STAGED_OPS)} in a transaction", self.op)
        if self.transaction and self.acks != "all":
            raise BadRequest("acks", "all in a transaction", self.acks)


@dataclass(frozen=True, slots=True)
class ConsumeStream:
    """Opens a DoExchange stream: who consumes, and how.

    Attributes:
        topic: the topic.
        consumer: a name for logs and `stats`; "" = none.
        lease_ms: lease of its deliveries; 0 = the topic's.
        batch_rows_max: rows of one delivery at most.
        holds: True if the client holds messages until due, so that the broker may lease ahead.
        auto_ack: True: messages are acked when they are sent (at most once).
        tags_any, tags_all, tags_none: only messages with such tags (model.TagFilter).
        consumer_id: whose streams to several shards of a topic these are; "" = it has this one.
    """

    topic: str
    consumer: str = ""
    lease_ms: int = 0
    batch_rows_max: int = 1_000
    holds: bool = True
    auto_ack: bool = False
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()
    consumer_id: str = ""

    @property
    def tag_filter(self) -> TagFilter | None:
        """Which messages it takes; None = all."""
        wanted = TagFilter(self.tags_any, self.tags_all, self.tags_none)
        return None if wanted == TagFilter() else wanted

    def check(self) -> ConsumeStream:
        """Return it, with tuples where JSON has lists, or raise BadRequest."""
        check_served_name(self.topic)
        most = limits.TOPIC_NAME_BYTES_MAX
        if not isinstance(self.consumer, str) or len(self.consumer.encode()) > most:
            raise BadRequest("consumer", f"a text of at most {most} bytes", self.consumer)
        if not isinstance(self.consumer_id, str) or not _CONSUMER_ID.fullmatch(self.consumer_id):
            limit = "up to 32 of 0-9 and a-f"
            raise BadRequest("consumer_id", limit, self.consumer_id)
        if self.lease_ms != 0:
            check_lease(self.lease_ms)
        rows, most = self.batch_rows_max, limits.DISPATCH_ROWS_MAX
        if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= most:
            raise BadRequest("batch_rows_max", f"a whole number from 1 to {most}", rows)
        for name in ("holds", "auto_ack"):
            if not isinstance(getattr(self, name), bool):
                raise BadRequest(name, "true or false", getattr(self, name))
        for name in ("tags_any", "tags_all", "tags_none"):
            check_tags(name, getattr(self, name))
        return replace(
            self,
            tags_any=tuple(self.tags_any),
            tags_all=tuple(self.tags_all),
            tags_none=tuple(self.tags_none),
        )


def check_tags(name: str, tags: object) -> None:
    """Raise BadRequest if these are not tags that a message could have."""
    if not isinstance(tags, list | tuple) or len(tags) > limits.TAGS_MAX:
        raise BadRequest(name, f"a list of at most {limits.TAGS_MAX} tags", tags)
    for tag in tags:
        if not isinstance(tag, str) or not 1 <= len(tag.encode()) <= limits.TAG_BYTES_MAX:
            raise BadRequest(name, f"texts of 1 to {limits.TAG_BYTES_MAX} bytes", tag)


Stream = TypeVar("Stream", WriteStream, ConsumeStream)


def encode(stream: WriteStream | ConsumeStream) -> bytes:
    """The descriptor's command bytes."""
    values = asdict(stream)
    for later in ("consumer_id", "released"):  # brokers of earlier versions do not know them
        if not values.get(later):
            values.pop(later, None)
    return json.dumps(values).encode()


def decode(kind: type[Stream], command: bytes | None) -> Stream:
    """The checked stream of a descriptor's command; BadRequest if it is not one."""
    values = json_object(command or b"", "descriptor.command")
    check_fields(values, [field.name for field in fields(kind)], required=("topic",))
    stream = kind(**values)
    if isinstance(stream, WriteStream) and stream.topic == "":
        for name in ("producer", "transaction"):
            if getattr(stream, name):
                raise BadRequest(name, "nothing without a topic", getattr(stream, name))
        return stream.check_kind()
    return stream.check()


@dataclass(frozen=True, slots=True)
class Address:
    """What a batch says of itself on a stream without a topic, behind its number.

    Attributes:
        topic, producer: as in WriteStream.
        number: the producer's number of the batch; without a producer it means nothing.
    """

    topic: str
    producer: str = ""
    number: int = 0


def encode_address(address: Address) -> bytes:
    """The bytes behind a batch's number.

    >>> decode_address(encode_address(Address("orders", "p", 7)))
    Address(topic='orders', producer='p', number=7)
    """
    producer = address.producer.encode()
    return _ADDRESS.pack(address.number, len(producer)) + producer + address.topic.encode()


def decode_address(content: bytes) -> Address:
    """The address in the bytes behind a batch's number. Raises BadRequest."""
    try:
        number, size = _ADDRESS.unpack_from(content)
        names = content[_ADDRESS.size :]
        if size > len(names):
            raise ValueError
        return Address(names[size:].decode(), names[:size].decode(), number)
    except (struct.error, ValueError):
        limit = "a number, a producer's number and name, and a topic's name"
        raise BadRequest("app_metadata", limit, content[:64]) from None


def json_object(content: bytes, field: str) -> dict[str, Any]:
    """The values of a JSON object from outside.

    JSON can spell half a character (`"\\ud800"`), which UTF-8 cannot encode. It is refused here,
    because otherwise the answer to some other client, which shows it, would fail.

    Raises:
        BadRequest: it is no object, is nested too deeply, or a text in it has half a character.
    """
    try:
        values = json.loads(content)
        if b"\\u" in content:  # only an escape can spell half a character
            json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise BadRequest(field, "a JSON object", content[:64]) from None
    if not isinstance(values, dict):
        raise BadRequest(field, "a JSON object", values)
    return values


def check_fields(
    values: dict[str, Any], known: list[str], *, required: tuple[str, ...] = ()
) -> None:
    """Raise BadRequest for a field that is not known, or one that is missing."""
    for name in values:
        if name not in known:
            raise BadRequest(name, f"one of {', '.join(known)}", values[name])
    for name in required:
        if name not in values:
            raise BadRequest(name, "a value", None)


def check_span(field: str, value: object) -> int:
    """Return a length of time in milliseconds, or raise BadRequest."""
    if not isinstance(value, int) or isinstance(value, bool):  # True is an int to Python
        raise BadRequest(field, "a whole number of milliseconds", value)
    if not 0 <= value <= limits.INSTANT_MS_MAX:
        raise BadRequest(field, f"from 0 to {limits.INSTANT_MS_MAX}", value)
    return value


def check_lease(value: object) -> int:
    """Return a lease in milliseconds, or raise BadRequest."""
    low, high = limits.LEASE_MS_MIN, limits.LEASE_MS_MAX
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest("lease_ms", f"a whole number from {low} to {high}", value)
    return value
