"""What an SQS message is as a row: body, attributes and system attributes in its fields.

Room: http. Pure: JSON values in, fields out, and back.
Holds: a message keeps its MessageId, its attributes and when it was sent, however often it is
delivered, and as a dead letter.

    body                    payload, as UTF-8
    MessageGroupId          group
    attribute of type String  a header of its name
    any other attribute     a header of its name, binary values in base64; its type in header SQS
    everything else         header SQS: JSON of `id`, `at` (ms), `by`, `trace`, `dedup`, `types`
"""

from __future__ import annotations

import binascii
import hashlib
import os
import re
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.http.sqs.receipts import receipt_of
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.schema import dead_letters

SQS = "sqs"
"""The header with what no other field of a message holds; no attribute may be called so."""
ATTRIBUTES_MAX = 10
DRAWN = 256
"""MessageIds that are drawn at once."""
HEADERS_BYTES_MAX = limits.HEADERS_BYTES_MAX - 64
"""Of names and values: what the headers' own marks take is left."""
_TEXT = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
_NAME = re.compile(r"(?!\.)(?!(?i:aws\.|amazon\.))[A-Za-z0-9_.-]{1,256}(?<!\.)")
_TYPE = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f]{1,240})?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_GROUP = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def wrong(text: str) -> SqsRefusal:
    """What is said of a wrong value."""
    return SqsRefusal("InvalidParameterValue", text)


def group_of(value: object, name: str = "MessageGroupId") -> str:
    """A group or deduplication id. Raises SqsRefusal."""
    if not isinstance(value, str) or _GROUP.fullmatch(value) is None:
        limit = "1 to 128 letters, digits and marks of ASCII"
        raise wrong(f"{name}: {limit}, got: {value!r:.100}")
    return value


@dataclass(frozen=True, slots=True)
class MessageAttribute:
    """A user's attribute of a message, checked.

    Attributes:
        type: String, Number or Binary, and what the user has put behind it.
        text: of a String or Number; base64 of a Binary.
    """

    type: str
    text: str

    @property
    def is_binary(self) -> bool:
        """True if its value is bytes."""
        return self.type.startswith("Binary")

    @property
    def content(self) -> bytes:
        """What counts for the size, and for the digest."""
        return binascii.a2b_base64(self.text) if self.is_binary else self.text.encode()

    def shown(self) -> dict[str, str]:
        """As SQS's clients get it."""
        name = "BinaryValue" if self.is_binary else "StringValue"
        return {name: self.text, "DataType": self.type}


Attributes = dict[str, MessageAttribute]


def attributes_of(values: object, *, system: bool = False) -> Attributes:
    """The attributes of a message to send. Raises SqsRefusal."""
    if values is None:
        return {}
    field_name = "MessageSystemAttributes" if system else "MessageAttributes"
    if not isinstance(values, dict) or len(values) > ATTRIBUTES_MAX:
        raise wrong(f"{field_name}: at most {ATTRIBUTES_MAX} by name")
    return {name: _attribute(name, value, system=system) for name, value in values.items()}


def _attribute(name: str, value: object, *, system: bool) -> MessageAttribute:
    if system and name != "AWSTraceHeader":
        raise wrong(f"MessageSystemAttributes: AWSTraceHeader, got: {name[:100]}")
    if _NAME.fullmatch(name) is None or name == SQS or name.startswith(dead_letters.PREFIX):
        limit = "1 to 256 of A-Z a-z 0-9 _ - . that do not begin with AWS. or Amazon."
        raise wrong(f"name of an attribute: {limit}, nor {SQS}, got: {name[:100]}")
    if not isinstance(value, dict):
        raise wrong(f"attribute {name}: an object of DataType and a value")
    kind = value.get("DataType")
    if not isinstance(kind, str) or _TYPE.fullmatch(kind) is None:
        raise wrong(f"DataType of attribute {name}: String, Number or Binary, got: {kind!r:.100}")
    if value.get("StringListValues") or value.get("BinaryListValues"):
        raise SqsRefusal("UnsupportedOperation", f"attribute {name}: lists are not implemented")
    if system and kind != "String":
        raise wrong(f"DataType of {name}: String, got: {kind}")
    if kind.startswith("Binary"):
        text = value.get("BinaryValue")
        if not isinstance(text, str) or not text or not _is_base64(text):
            raise wrong(f"BinaryValue of attribute {name}: bytes in base64, at least one")
        return MessageAttribute(kind, text)
    text = value.get("StringValue")
    if not isinstance(text, str) or not text or _TEXT.fullmatch(text) is None:
        raise wrong(f"StringValue of attribute {name}: a text of XML's characters, not empty")
    if kind.startswith("Number") and _NUMBER.fullmatch(text) is None:
        raise wrong(f"StringValue of attribute {name}: a number, got: {text[:100]}")
    return MessageAttribute(kind, text)


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True


def digest_of(attributes: Attributes) -> str:
    """MD5OfMessageAttributes: of names, types and values, by name."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        one = attributes[name]
        for part in (name.encode(), one.type.encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        content = one.content
        digest.update(b"\2" if one.is_binary else b"\1")
        digest.update(len(content).to_bytes(4, "big") + content)
    return digest.hexdigest()


def body_digest(content: bytes) -> str:
    """MD5OfMessageBody."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


# --- to send --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sending:
    """A checked message to send.

    Attributes:
        body: as UTF-8.
        delay_ms: None = as the queue says.
        group: "" = none.
        deduplication_id: "" = none was given.
        message_id: its MessageId.
    """

    body: bytes
    attributes: Attributes = field(default_factory=dict)
    system: Attributes = field(default_factory=dict)
    delay_ms: int | None = None
    group: str = ""
    deduplication_id: str = ""
    message_id: str = ""

    @property
    def byte_count(self) -> int:
        """What SQS counts as its size: body, and names, types and values of attributes."""
        if not self.attributes:
            return len(self.body)
        return len(self.body) + sum(
            len(name) + len(one.type.encode()) + len(one.content)
            for name, one in self.attributes.items()
        )

    def headers(self, by: str, at_ms: int) -> dict[str, str]:
        """The headers of its message. Raises SqsRefusal: they are too long."""
        facts: dict[str, Any] = {"id": self.message_id, "at": at_ms}
        if by:
            facts["by"] = by
        if self.system:
            facts["trace"] = self.system["AWSTraceHeader"].text
        if self.deduplication_id:
            facts["dedup"] = self.deduplication_id
        headers: dict[str, str] = {}
        if self.attributes:
            attributes = self.attributes.items()
            types = {name: one.type for name, one in attributes if one.type != "String"}
            if types:
                facts["types"] = types
            headers = {name: one.text for name, one in attributes}
        headers[SQS] = orjson.dumps(facts).decode()
        byte_count = sum(len(name) + len(text.encode()) for name, text in headers.items())
        if byte_count > HEADERS_BYTES_MAX:
            limit = f"{HEADERS_BYTES_MAX} bytes in all, with what is kept beside them"
            raise wrong(f"MessageAttributes: at most {limit}, got: {byte_count}")
        return headers

    def answer(self) -> dict[str, Any]:
        """What its sender gets."""
        answer = {"MD5OfMessageBody": body_digest(self.body), "MessageId": self.message_id}
        if self.attributes:
            answer["MD5OfMessageAttributes"] = digest_of(self.attributes)
        if self.system:
            answer["MD5OfMessageSystemAttributes"] = digest_of(self.system)
        return answer


def sending_of(values: dict[str, Any]) -> Sending:
    """A checked message of SendMessage, or an entry of a batch. Raises SqsRefusal."""
    body = values.get("MessageBody")
    if not isinstance(body, str) or not body:
        raise wrong("MessageBody: a text, not empty")
    is_plain = body.isascii() and body.isprintable()  # quicker to find out than the rest
    if not is_plain and _TEXT.fullmatch(body) is None:
        raise SqsRefusal("InvalidMessageContents", "MessageBody: a text of XML's characters")
    delay = values.get("DelaySeconds")
    if delay is not None and (type(delay) is not int or delay < 0):
        raise wrong(f"DelaySeconds: a whole number of seconds, from 0, got: {delay!r:.100}")
    group, deduplication_id = values.get("MessageGroupId"), values.get("MessageDeduplicationId")
    return Sending(
        body.encode(),
        attributes_of(values.get("MessageAttributes")),
        attributes_of(values.get("MessageSystemAttributes"), system=True),
        None if delay is None else delay * 1_000,
        "" if group is None else group_of(group),
        "" if deduplication_id is None else group_of(deduplication_id, "MessageDeduplicationId"),
        new_id(),
    )


class Row(NamedTuple):
    """A message on its way to the broker."""

    payload: bytes
    headers: dict[str, str]
    due_ms: int
    delay_ms: int
    group: str


def row_of(sending: Sending, by: str, now_ms: int) -> Row:
    """A message as `batch_of` takes it. Raises SqsRefusal: its headers are too long."""
    delay_ms = sending.delay_ms or 0
    headers = sending.headers(by, now_ms)
    return Row(sending.body, headers, now_ms + delay_ms, delay_ms, sending.group)


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """The batch of messages to send, schema SEND; what none of them has is left out."""
    payloads, headers, dues_ms, delays_ms, groups = zip(*rows, strict=True)
    offsets = [0, *accumulate(map(len, headers))]
    names = pa.array([name for one in headers for name in one], pa.utf8())
    texts = pa.array([text for one in headers for text in one.values()], pa.utf8())
    columns = {
        "payload": pa.array(payloads, pa.binary()),
        "headers": pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, texts),
    }
    if any(delays_ms):
        columns["due"] = pa.array(dues_ms, pa.int64())
    if any(groups):
        columns["group"] = pa.array(groups, pa.utf8())
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


# --- received -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which attributes a consumer asks for."""

    system: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """True if it wants a user's attribute of this name."""
        return name in self.names or name.startswith(self.prefixes)

    def wants_system(self, name: str) -> bool:
        """True if it wants this system attribute."""
        return name in self.system or "All" in self.system


def wanted_of(values: dict[str, Any]) -> Wanted:
    """What a ReceiveMessage asks for. Raises SqsRefusal."""
    system, names = set(), []
    for field_name in ("AttributeNames", "MessageSystemAttributeNames"):
        system.update(_texts(values, field_name))
    unknown = system - SYSTEM_NAMES - {"All"}
    if unknown:
        raise SqsRefusal("InvalidAttributeName", f"unknown attribute {sorted(unknown)[0][:100]}")
    names = _texts(values, "MessageAttributeNames")
    patterns = [name for name in names if name == "All" or name.endswith(".*")]
    prefixes = ["" if name in ("All", ".*") else name[:-1] for name in patterns]
    return Wanted(frozenset(system), frozenset(names), tuple(prefixes))


SYSTEM_NAMES = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    }
)


def _texts(values: dict[str, Any], name: str) -> list[str]:
    texts = values.get(name)
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise wrong(f"{name}: a list of names")
    return texts


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The messages of a batch of schema DELIVERY, as `message_of` takes them: column by column,
    which is several times quicker than row by row."""
    names = ("id", "attempts", "due", "payload", "group")
    columns = [batch.column(name).to_pylist() for name in names]
    columns.append(_headers_of(batch.column("headers")))
    return [dict(zip((*names, "headers"), row, strict=True)) for row in zip(*columns, strict=True)]


def _headers_of(column: pa.MapArray) -> list[dict[str, str]]:
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    keys = column.keys.slice(first, last - first).to_pylist()
    texts = column.items.slice(first, last - first).to_pylist()
    ends = [end - first for end in offsets]
    return [
        dict(zip(keys[begin:end], texts[begin:end], strict=True)) for begin, end in pairwise(ends)
    ]


def sequence_number(message_id: int) -> str:
    """SequenceNumber of a message of a FIFO queue: 20 digits, ascending."""
    return f"{message_id:020d}"


def message_of(
    queue_name: str, row: dict[str, Any], wanted: Wanted, system: dict[str, str]
) -> dict[str, Any]:
    """A message as its consumer gets it.

    Args:
        row: of `rows_of`.
        system: attributes that the caller knows.
    """
    headers = row["headers"]
    facts = facts_of(headers)
    content: bytes = row["payload"]
    body = content.decode(errors="replace")
    message: dict[str, Any] = {
        "MessageId": message_id_of(queue_name, row["id"], facts),
        "ReceiptHandle": receipt_of(queue_name, row["id"], row["attempts"]),
        "MD5OfBody": body_digest(content if "\ufffd" not in body else body.encode()),
        "Body": body,
    }
    if wanted.names or wanted.prefixes:
        types = facts.get("types", {})
        shown = {
            name: MessageAttribute(types.get(name, "String"), text)
            for name, text in headers.items()
            if name != SQS
            and not name.startswith(dead_letters.PREFIX)
            and text
            and wanted.has(name)
        }
        if shown:
            message["MessageAttributes"] = {name: one.shown() for name, one in shown.items()}
            message["MD5OfMessageAttributes"] = digest_of(shown)
    if not wanted.system:
        return message
    told = {
        "SenderId": facts.get("by") or "anonymous",
        "SentTimestamp": str(facts.get("at", row["due"])),
        "ApproximateReceiveCount": str(row["attempts"]),
        **({"MessageGroupId": row["group"]} if row["group"] else {}),
        **({"AWSTraceHeader": facts["trace"]} if "trace" in facts else {}),
        **({"MessageDeduplicationId": facts["dedup"]} if "dedup" in facts else {}),
        **system,
    }
    told = {name: text for name, text in told.items() if wanted.wants_system(name)}
    if told:
        message["Attributes"] = told
    return message


def facts_of(headers: dict[str, str]) -> dict[str, Any]:
    """What header SQS says; nothing, if it is not one of ours."""
    text = headers.get(SQS)
    if text is None:
        return {}
    try:
        facts = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return facts if isinstance(facts, dict) else {}


def message_id_of(queue_name: str, message_id: int, facts: dict[str, Any]) -> str:
    """The MessageId: the one that it was sent under, or one made of its queue and id."""
    known = facts.get("id")
    return known if isinstance(known, str) else made_id(f"{queue_name}/{message_id}")


_left: deque[str] = deque()


def new_id() -> str:
    """A MessageId by chance, as `uuid.uuid4` makes them; many are drawn at once, as one alone would
    cost three times as much. On the event loop."""
    if not _left:
        drawn = os.urandom(16 * DRAWN).hex()
        _left.extend(drawn[at : at + 32] for at in range(0, 32 * DRAWN, 32))
    text = _left.popleft()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def made_id(text: str) -> str:
    """A MessageId that follows from a text."""
    return str(uuid.UUID(bytes=hashlib.blake2b(text.encode(), digest_size=16).digest(), version=5))
