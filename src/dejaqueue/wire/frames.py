"""Frames: the small fixed messages beside the record batches, little-endian.

    every frame   u8 version (1) · u8 type · u16 flags · u32 number
    REPLY         u32 rows · u32 0 · i64 first_id · [ids i64 × rows] · [statuses u8 × rows] | error
    CREDIT        u32 rows · u32 0
    SETTLE        u8 op · u8 fate · u16 bytes of reason · u32 partition · i64 lease_id ·
                  i64 argument_ms · u32 rows · u32 leases · [ids i64 × rows] ·
                  [attempts u16 × rows] · [lease ids i64 × leases] · [reason, UTF-8]
    PING          i64 client_us · i64 offset_us · i64 uncertainty_us · [report]
      report      i64 sum_us · u32 n · u32 0 · [buckets u16 × n] · [counts u32 × n]
    PONG          i64 client_us · i64 broker_us
    DELIVERY      u32 partition · u32 rows · i64 lease_id · i64 lease_end_ms · i64 broker_us
    CLOSE, ERROR  nothing | error JSON

Room: wire. No sockets.
Holds: decode(encode(x)) == x; garbage raises BadRequest and nothing else.
See: docs/wire.md.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.errors import BadRequest, DejaQError, from_fields, to_fields

VERSION = 1
_HEAD = struct.Struct("<BBHI")
_REPLY = struct.Struct("<IIq")
_CREDIT = struct.Struct("<II")
_SETTLE = struct.Struct("<BBHIqqII")
_PING = struct.Struct("<qqq")
_REPORT = struct.Struct("<qII")
_PONG = struct.Struct("<qq")
_DELIVERY = struct.Struct("<IIqqq")
DELIVERY_BYTES = _HEAD.size + _DELIVERY.size
"""Of a DELIVERY, without its rows."""

HAS_IDS = 1
HAS_STATUSES = 2
HAS_ERROR = 4
HAS_REPORT = 8

REPORT_SUM_US_MAX = 1 << 60
"""More than any real lateness, and small enough that sums of it do not overflow."""

FATE_DEAD = 1
FATE_RELEASE = 2


class FrameType(IntEnum):
    """What a frame is (u8). Numbers are for ever; 9 to 11 are the express lane's (lane.py)."""

    REPLY = 1
    CREDIT = 2
    SETTLE = 3
    PING = 4
    PONG = 5
    DELIVERY = 6
    CLOSE = 7
    ERROR = 8


class SettleOp(IntEnum):
    """What a consumer does with leased rows (u8)."""

    ACK = 1
    NACK = 2
    EXTEND = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one batch or settle.

    Attributes:
        number: number of the batch or settle that this answers.
        rows: rows of it.
        first_id: id of row 0 if `ids` is None and rows were sent, the others follow; -1 = no ids.
        ids: id per row; None = as `first_id` says.
        statuses: RowStatus per row; None = every row OK.
        error: the whole batch was refused and changed nothing.
    """

    number: int
    rows: int = 0
    first_id: int = -1
    ids: npt.NDArray[np.int64] | None = None
    statuses: npt.NDArray[np.uint8] | None = None
    error: DejaQError | None = None

    def all_ids(self) -> npt.NDArray[np.int64]:
        """Id per row, int64 array, shape (rows,); -1 where there is none."""
        if self.ids is not None:
            return self.ids
        if self.first_id < 0:
            return np.full(self.rows, -1, dtype=np.int64)
        return np.arange(self.first_id, self.first_id + self.rows, dtype=np.int64)

    def all_statuses(self) -> npt.NDArray[np.uint8]:
        """RowStatus per row, uint8 array, shape (rows,)."""
        return np.zeros(self.rows, dtype=np.uint8) if self.statuses is None else self.statuses


@dataclass(frozen=True, slots=True)
class Credit:
    """The client can take this many rows more; 0 = none, and earlier credit is void."""

    rows: int


@dataclass(frozen=True, slots=True)
class Settle:
    """ack, nack or extend, of a whole lease (`lease_id` ≥ 0) or of rows by (id, attempt); or extend
    several whole leases, whose reply has a status for each.

    Attributes:
        number: the client's number of it; the reply carries it. 0 = no reply wanted.
        argument_ms: nack: delay from now, -1 = as the topic's backoff says; extend: lease from now.
        partition: the lease's partition, for whole leases.
        reason: nack: why, for the dead letter.
        dead: nack: they die now, however often they were delivered.
        release: nack: they do not die: their consumer never looked at them.
        lease_ids: extend: several leases of the partition, int64 array, shape (n,).
    """

    op: SettleOp
    number: int = 0
    partition: int = 0
    lease_id: int = -1
    argument_ms: int = 0
    ids: npt.NDArray[np.int64] | None = None
    attempts: npt.NDArray[np.uint16] | None = None
    reason: str = ""
    dead: bool = False
    release: bool = False
    lease_ids: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class LatenessReport:
    """How late messages were handed to the application since the report before.

    Attributes:
        sum_us: of all of them.
        buckets: of the fine scale of metrics.py, ascending; only those that are not empty.
        counts: messages in each of them.
    """

    sum_us: int
    buckets: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """The client's clock; -1 as uncertainty = the offset is not known yet.

    Attributes:
        client_us: the client's time of sending.
        offset_us: the broker's clock less the client's, as the client believes.
        uncertainty_us: the offset is right within this.
        report: for the broker's metrics. It is last: brokers that do not know it leave it unread.
    """

    number: int
    client_us: int
    offset_us: int = 0
    uncertainty_us: int = -1
    report: LatenessReport | None = None


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping: the ping's client time, and the broker's time of answering."""

    number: int
    client_us: int
    broker_us: int


@dataclass(frozen=True, slots=True)
class DeliveryHead:
    """Goes with a delivered record batch."""

    partition: int
    rows: int
    lease_id: int
    lease_end_ms: int
    broker_us: int


@dataclass(frozen=True, slots=True)
class Close:
    """From the client: no more deliveries; leases still held end at once. From the broker: done."""


@dataclass(frozen=True, slots=True)
class StreamError:
    """The error that ends the stream."""

    error: DejaQError


Frame: TypeAlias = Reply | Credit | Settle | Ping | Pong | DeliveryHead | Close | StreamError


def _error_json(error: DejaQError) -> bytes:
    return json.dumps(to_fields(error)).encode()


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    match frame:
        case Reply():
            flags, parts = 0, []
            if frame.error is not None:
                flags, parts = HAS_ERROR, [_error_json(frame.error)]
            else:
                if frame.ids is not None:
                    flags |= HAS_IDS
                    parts.append(np.ascontiguousarray(frame.ids, dtype="<i8").tobytes())
                if frame.statuses is not None:
                    flags |= HAS_STATUSES
                    parts.append(np.ascontiguousarray(frame.statuses, dtype="u1").tobytes())
            head = _HEAD.pack(VERSION, FrameType.REPLY, flags, frame.number)
            return b"".join([head, _REPLY.pack(frame.rows, 0, frame.first_id), *parts])
        case Credit():
            return _HEAD.pack(VERSION, FrameType.CREDIT, 0, 0) + _CREDIT.pack(frame.rows, 0)
        case Settle():
            return _encode_settle(frame)
        case Ping():
            return _encode_ping(frame)
        case Pong():
            return _HEAD.pack(VERSION, FrameType.PONG, 0, frame.number) + _PONG.pack(
                frame.client_us, frame.broker_us
            )
        case DeliveryHead():
            return _HEAD.pack(VERSION, FrameType.DELIVERY, 0, 0) + _DELIVERY.pack(
                frame.partition, frame.rows, frame.lease_id, frame.lease_end_ms, frame.broker_us
            )
        case Close():
            return _HEAD.pack(VERSION, FrameType.CLOSE, 0, 0)
        case StreamError():
            return _HEAD.pack(VERSION, FrameType.ERROR, 0, 0) + _error_json(frame.error)


def _encode_ping(frame: Ping) -> bytes:
    body = _PING.pack(frame.client_us, frame.offset_us, frame.uncertainty_us)
    report = frame.report
    if report is None:
        return _HEAD.pack(VERSION, FrameType.PING, 0, frame.number) + body
    return b"".join(
        [
            _HEAD.pack(VERSION, FrameType.PING, HAS_REPORT, frame.number),
            body,
            _REPORT.pack(report.sum_us, len(report.buckets), 0),
            np.array(report.buckets, dtype="<u2").tobytes(),
            np.array(report.counts, dtype="<u4").tobytes(),
        ]
    )


def _encode_settle(frame: Settle) -> bytes:
    fate = FATE_DEAD * frame.dead | FATE_RELEASE * frame.release
    reason = frame.reason.encode()
    rows = 0 if frame.ids is None else len(frame.ids)
    body = _SETTLE.pack(
        frame.op,
        fate,
        len(reason),
        frame.partition,
        frame.lease_id,
        frame.argument_ms,
        rows,
        0 if frame.lease_ids is None else len(frame.lease_ids),
    )
    parts = [_HEAD.pack(VERSION, FrameType.SETTLE, 0, frame.number), body]
    if frame.ids is not None and frame.attempts is not None:
        parts.append(np.ascontiguousarray(frame.ids, dtype="<i8").tobytes())
        parts.append(np.ascontiguousarray(frame.attempts, dtype="<u2").tobytes())
    if frame.lease_ids is not None:
        parts.append(np.ascontiguousarray(frame.lease_ids, dtype="<i8").tobytes())
    return b"".join([*parts, reason])


def decode(content: bytes | memoryview) -> Frame:
    """The frame of these bytes.

    Raises:
        BadRequest: they are not a frame of this version.
    """
    view = memoryview(content)
    try:
        version, kind, flags, number = _HEAD.unpack_from(view)
        if version != VERSION:
            raise BadRequest("frame.version", f"{VERSION}", version)
        body = view[_HEAD.size :]
        match kind:
            case FrameType.REPLY:
                return _decode_reply(body, flags, number)
            case FrameType.CREDIT:
                rows, _ = _CREDIT.unpack_from(body)
                if rows > limits.CREDIT_MAX:
                    raise BadRequest("credit", f"at most {limits.CREDIT_MAX}", rows)
                return Credit(rows)
            case FrameType.SETTLE:
                return _decode_settle(body, number)
            case FrameType.PING:
                return _decode_ping(body, flags, number)
            case FrameType.PONG:
                return Pong(number, *_PONG.unpack_from(body))
            case FrameType.DELIVERY:
                return DeliveryHead(*_DELIVERY.unpack_from(body))
            case FrameType.CLOSE:
                return Close()
            case FrameType.ERROR:
                return StreamError(_decode_error(body))
    # Bytes from outside can fail anywhere: RecursionError is an error's JSON, nested very deeply.
    except (struct.error, ValueError, TypeError, OverflowError, RecursionError) as wrong:
        raise BadRequest("frame", "bytes as docs/wire.md says", bytes(view[:16])) from wrong
    raise BadRequest("frame.type", "1 to 8", kind)


def settle_number(content: bytes | memoryview) -> int | None:
    """The number of a frame whose head says SETTLE, whatever follows; None = it is no SETTLE.

    A SETTLE that cannot be decoded is answered under this number, since its stream is still in
    order.
    """
    if len(content) < _HEAD.size:
        return None
    version, kind, _, number = _HEAD.unpack_from(content)
    return int(number) if (version, kind) == (VERSION, FrameType.SETTLE) else None


def _decode_error(body: memoryview) -> DejaQError:
    values = json.loads(bytes(body))
    if not isinstance(values, dict):
        raise BadRequest("frame.error", "a JSON object", values)
    return from_fields(values)


def _decode_reply(body: memoryview, flags: int, number: int) -> Reply:
    rows, _, first_id = _REPLY.unpack_from(body)
    rest = body[_REPLY.size :]
    if flags & HAS_ERROR:
        return Reply(number, rows, error=_decode_error(rest))
    ids = statuses = None
    if flags & HAS_IDS:
        ids = np.frombuffer(rest, dtype="<i8", count=rows)
        rest = rest[8 * rows :]
    if flags & HAS_STATUSES:
        statuses = np.frombuffer(rest, dtype="u1", count=rows)
    return Reply(number, rows, first_id, ids, statuses)


def _decode_ping(body: memoryview, flags: int, number: int) -> Ping:
    client_us, offset_us, uncertainty_us = _PING.unpack_from(body)
    if not flags & HAS_REPORT:
        return Ping(number, client_us, offset_us, uncertainty_us)
    rest = body[_PING.size :]
    sum_us, count, _ = _REPORT.unpack_from(rest)
    rest = rest[_REPORT.size :]
    buckets = np.frombuffer(rest, dtype="<u2", count=count)
    counts = np.frombuffer(rest[2 * count :], dtype="<u4", count=count)
    # Rising numbers name each bucket once, and the last one is the largest.
    if count and (
        int(buckets[-1]) >= limits.LATENESS_BUCKETS or (np.diff(buckets.astype(int)) <= 0).any()
    ):
        raise BadRequest(
            "ping.report", f"buckets that rise, below {limits.LATENESS_BUCKETS}", "others"
        )
    if not 0 <= sum_us <= REPORT_SUM_US_MAX:
        raise BadRequest("ping.report", f"a sum from 0 to {REPORT_SUM_US_MAX}", sum_us)
    report = LatenessReport(sum_us, tuple(buckets.tolist()), tuple(counts.tolist()))
    return Ping(number, client_us, offset_us, uncertainty_us, report)


def _decode_settle(body: memoryview, number: int) -> Settle:
    head = _SETTLE.unpack_from(body)
    op, fate, reason_bytes, partition, lease_id, argument_ms, rows, lease_count = head
    rest = body[_SETTLE.size :]
    op = SettleOp(op)
    low = -1 if op is SettleOp.NACK else 0  # -1: as the backoff of the topic says
    if not low <= argument_ms <= limits.INSTANT_MS_MAX:
        limit = f"from {low} to {limits.INSTANT_MS_MAX}"
        raise BadRequest("settle.argument_ms", limit, argument_ms)
    if fate & ~(FATE_DEAD | FATE_RELEASE) or fate == FATE_DEAD | FATE_RELEASE:
        raise BadRequest("settle.fate", "0, 1 (dead) or 2 (released)", fate)
    if op is not SettleOp.NACK and (fate or reason_bytes):
        raise BadRequest("settle.fate and reason", "none but for a nack", op.name)
    if lease_count:
        if op is not SettleOp.EXTEND or rows or lease_id >= 0:
            raise BadRequest("settle.lease_ids", "none but to extend, by themselves", lease_count)
        lease_ids = _decode_lease_ids(rest, lease_count)
        return Settle(op, number, partition, -1, argument_ms, lease_ids=lease_ids)
    if lease_id >= 0 and rows:
        raise BadRequest("settle.rows", "0 of a whole lease", rows)
    ids = attempts = None
    if lease_id < 0:
        ids = np.frombuffer(rest, dtype="<i8", count=rows)
        attempts = np.frombuffer(rest[8 * rows :], dtype="<u2", count=rows)
        rest = rest[10 * rows :]
    if len(rest) != reason_bytes:
        raise BadRequest("settle.reason", f"{reason_bytes} bytes at the end", len(rest))
    reason = check_reason("settle.reason", bytes(rest).decode())
    dead, release = fate == FATE_DEAD, fate == FATE_RELEASE
    rows_named = (lease_id, argument_ms, ids, attempts)
    return Settle(op, number, partition, *rows_named, reason, dead, release)


def _decode_lease_ids(rest: memoryview, count: int) -> npt.NDArray[np.int64]:
    if count > limits.LEASES_PER_EXTENSION_MAX:
        raise BadRequest("settle.lease_ids", f"at most {limits.LEASES_PER_EXTENSION_MAX}", count)
    if len(rest) != 8 * count:
        raise BadRequest("settle.lease_ids", f"{8 * count} bytes at the end", len(rest))
    return np.frombuffer(rest, dtype="<i8", count=count)


def check_reason(field: str, reason: object) -> str:
    """Return why a message is refused, or raise BadRequest."""
    if not isinstance(reason, str):
        raise BadRequest(field, "a text", reason)
    try:
        byte_count = len(reason.encode())
    except UnicodeEncodeError:
        raise BadRequest(field, "a text that UTF-8 can hold", ascii(reason)) from None
    if byte_count > limits.REASON_BYTES_MAX:
        raise BadRequest(field, f"at most {limits.REASON_BYTES_MAX} bytes", byte_count)
    # Reasons become headers of dead letters, which are packed with these two (schema/packing.py).
    if any(separator in reason for separator in "\x1e\x1f"):
        raise BadRequest(field, "no U+001E or U+001F inside", reason)
    return reason
