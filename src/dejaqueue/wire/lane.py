"""The lane's frames: single messages over a plain stream, without a record batch.

    what goes either way   u32 bytes that follow · a frame
    SEND (9)               the frame's head (frames.py) · u32 rows · u32 bytes of the address ·
                           address · [dues i64 × rows] · [fields] · payload sizes u32 × rows ·
                           payloads
    its answer             a REPLY (frames.py) with the same number
    OPEN (10)              the frame's head · the JSON of a ConsumeStream: the lane is a consumer's
    its answer             OPENED (11): the frame's head · the schema of deliveries (Arrow IPC)
    DELIVERY               as frames.py has it · the record batch (Arrow IPC)

Room: wire. No sockets.
Holds: decode_send(encode_send(x)) == x; garbage raises BadRequest and nothing else.
See: docs/wire.md, "The lane"; descriptors.py for the address; lane_fields.py for the fields.

Plain Python instead of numpy: nearly every SEND has one row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.row_fields import Fields
from dejaqueue.wire import descriptors, frames, lane_fields
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import VERSION, DeliveryHead, FrameType, Reply

PATH = "/v1/lane"
"""What is asked for at the HTTP port."""
PROTOCOL = "dejaq-lane"
"""To what the connection is upgraded."""
SEND = 9
"""The type of the frame, beside those of frames.FrameType."""
OPEN, OPENED = 10, 11
"""As the first frame, it makes the lane a consumer's; and the answer."""
NAME = "x-dejaq-lane"
"""The header in which a client says whose lane it wants."""
HAS_DUES = 1
HAS_FIELDS = 2

LENGTH_BYTES = 4
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<BBHI")
_SEND = struct.Struct("<BBHIII")
_PLAIN_REPLY = struct.Struct("<IBBHIIIq")
_PLAIN_REPLY_BYTES = _PLAIN_REPLY.size - LENGTH_BYTES
_ONE = struct.Struct("<I")
_ONE_DUE = struct.Struct("<qI")


@dataclass(frozen=True, slots=True)
class LaneAddress:
    """Where a broker has its lanes.

    Attributes:
        port: of the broker's machine.
        name: of this broker, until it stops. Who asks for a lane says it: behind a proxy another
            broker may have that port, and what is sent must not end there.
        has_fields: messages with a key, a group and so on may come by them; by those of earlier
            versions they may not.
    """

    port: int
    name: str
    has_fields: bool = True


@dataclass(slots=True)
class Send:
    """Messages of one producer for one topic.

    Attributes:
        number: that the reply carries.
        address: the producer's number of the batch, its name and the topic's (descriptors.py).
        dues_ms: of each row; None = all of them are due on arrival.
        fields: what they have besides; None = nothing.
    """

    number: int
    address: bytes
    payloads: list[bytes]
    dues_ms: list[int] | None = None
    fields: Fields | None = None


def encode_rows(
    payloads: Sequence[bytes], dues_ms: Sequence[int] | None, fields: Fields | None = None
) -> bytes:
    """The part of a SEND behind its address; the same however often it is sent.

    Raises:
        struct.error, TypeError: a number has too many bits, or a payload is no bytes.
    """
    count = len(payloads)
    if fields is not None:
        dues = b"" if dues_ms is None else struct.pack(f"<{count}q", *dues_ms)
        sizes = struct.pack(f"<{count}I", *map(len, payloads))
        heads, texts = lane_fields.encode(fields, count)
        return b"".join([dues, *heads, sizes, *texts, *payloads])
    if count == 1:
        payload = payloads[0]
        if dues_ms is None:
            return _ONE.pack(len(payload)) + payload
        return _ONE_DUE.pack(dues_ms[0], len(payload)) + payload
    sizes = struct.pack(f"<{count}I", *map(len, payloads))
    dues = b"" if dues_ms is None else struct.pack(f"<{count}q", *dues_ms)
    return b"".join([dues, sizes, *payloads])


def encode_send(
    number: int,
    address: bytes,
    rows: int,
    content: bytes,
    *,
    has_dues: bool,
    has_fields: bool = False,
) -> bytes:
    """A SEND with its length.

    Args:
        content: as `encode_rows` made it.
    """
    flags = (HAS_DUES if has_dues else 0) | (HAS_FIELDS if has_fields else 0)
    head = _SEND.pack(VERSION, SEND, flags, number, rows, len(address))
    return _LENGTH.pack(len(head) + len(address) + len(content)) + head + address + content


def length_of(content: bytes | bytearray, at: int) -> int:
    """How many bytes the frame has that begins there, behind its length."""
    length: int = _LENGTH.unpack_from(content, at)[0]
    return length


def decode_send(content: bytes | memoryview) -> Send:
    """The SEND in a frame without its length. Raises BadRequest."""
    frame = bytes(content)
    try:
        version, kind, flags, number, rows, address_bytes = _SEND.unpack_from(frame)
        if version != VERSION or kind != SEND:
            raise BadRequest("frame", f"SEND of version {VERSION}", f"{kind} of {version}")
        if flags & ~(HAS_DUES | HAS_FIELDS):
            raise BadRequest("frame.flags", "1, 2, both or none", flags)
        if not 1 <= rows <= limits.BATCH_ROWS_MAX:
            raise BadRequest("rows of the batch", f"from 1 to {limits.BATCH_ROWS_MAX}", rows)
        at = _SEND.size + address_bytes
        address = frame[_SEND.size : at]
        if rows == 1 and not flags & HAS_FIELDS:
            dues_ms: list[int] | None = None
            if flags:
                due_ms, size = _ONE_DUE.unpack_from(frame, at)
                dues_ms, at = [due_ms], at + _ONE_DUE.size
            else:
                (size,) = _ONE.unpack_from(frame, at)
                at += _ONE.size
            payload = frame[at:]
            if len(payload) != size or len(address) != address_bytes:
                raise BadRequest("frame", f"{size} bytes of payload at its end", len(payload))
            return Send(number, address, [payload], dues_ms)
        return _decode_many(frame, at, Send(number, address, []), rows, flags)
    except struct.error:
        raise BadRequest("frame", "a whole SEND", f"{len(frame)} bytes") from None


def _decode_many(frame: bytes, at: int, send: Send, rows: int, flags: int) -> Send:
    if flags & HAS_DUES:
        send.dues_ms = list(struct.unpack_from(f"<{rows}q", frame, at))
        at += 8 * rows
    heads = None
    if flags & HAS_FIELDS:
        heads, at = lane_fields.decode_heads(frame, at, rows)
    sizes = struct.unpack_from(f"<{rows}I", frame, at)
    at += 4 * rows
    if heads is not None:
        send.fields, at = lane_fields.decode_texts(frame, at, heads)
    ends = list(accumulate(sizes, initial=at))
    if ends[-1] != len(frame):
        limit = f"{ends[-1] - at} bytes of payloads at its end"
        raise BadRequest("frame", limit, len(frame) - at)
    send.payloads = [frame[a:b] for a, b in pairwise(ends)]
    return send


def number_of(content: bytes | memoryview) -> int:
    """The number in a frame's head, 0 = it is no frame: what is wrong with it is said by this."""
    if len(content) < _HEAD.size:
        return 0
    number: int = _HEAD.unpack_from(content)[3]
    return number


def encode_reply(reply: Reply, number: int) -> bytes:
    """A REPLY with its length, under this number instead of its own: another object for each would
    cost as much as its bytes."""
    if reply.ids is None and reply.statuses is None and reply.error is None:
        return _PLAIN_REPLY.pack(
            _PLAIN_REPLY_BYTES,
            VERSION,
            FrameType.REPLY,
            0,
            number,
            reply.rows,
            0,
            reply.first_id,
        )
    return with_length(frames.encode(replace(reply, number=number)))


def with_length(frame: bytes) -> bytes:
    """Any frame with its length."""
    return _LENGTH.pack(len(frame)) + frame


def decode_reply(content: bytes) -> frames.Frame:
    """The frame that a broker sent, without its length; the usual REPLY in a step. BadRequest."""
    if len(content) == _PLAIN_REPLY_BYTES:
        version, kind, flags, number, rows, _, first_id = _PLAIN.unpack(content)
        if version == VERSION and kind == FrameType.REPLY and not flags:
            return Reply(number, rows, first_id)
    return frames.decode(content)


_PLAIN = struct.Struct("<BBHIIIq")

# --- consumers --------------------------------------------------------------------------------


def kind_of(frame: bytes) -> int:
    """The type in a frame's head; 0 = it has none."""
    return frame[1] if len(frame) >= _HEAD.size else 0


def encode_open(stream: ConsumeStream) -> bytes:
    """An OPEN with its length."""
    return with_length(_HEAD.pack(VERSION, OPEN, 0, 0) + descriptors.encode(stream))


def decode_open(frame: bytes) -> ConsumeStream:
    """The stream that an OPEN asks for, checked. Raises BadRequest."""
    if frame[:1] != bytes([VERSION]):
        raise BadRequest("frame.version", f"{VERSION}", frame[:1].hex())
    return descriptors.decode(ConsumeStream, frame[_HEAD.size :])


def encode_opened(schema: pa.Schema) -> bytes:
    """An OPENED with its length."""
    return with_length(_HEAD.pack(VERSION, OPENED, 0, 0) + schema.serialize().to_pybytes())


def decode_opened(frame: bytes) -> pa.Schema:
    """The schema in an OPENED. Raises BadRequest."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(frame).slice(_HEAD.size))
    except (pa.ArrowException, OSError, EOFError) as wrong:
        raise BadRequest("frame", "a schema in Arrow's IPC format", str(wrong)) from wrong


def encode_delivery(head: DeliveryHead, batch: pa.RecordBatch) -> list[bytes | pa.Buffer]:
    """A DELIVERY with its length, in pieces."""
    said, rows = frames.encode(head), batch.serialize()
    return [_LENGTH.pack(len(said) + rows.size) + said, rows]


def decode_rows(frame: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch in a DELIVERY. Raises BadRequest."""
    try:
        rows = pa.py_buffer(frame).slice(frames.DELIVERY_BYTES)
        return pa.ipc.read_record_batch(rows, schema)
    except (pa.ArrowException, OSError, EOFError) as wrong:
        raise BadRequest("frame", "a record batch in Arrow's IPC format", str(wrong)) from wrong
