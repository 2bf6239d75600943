"""Covers: frames: decode(encode(x)) == x, and garbage is refused and nothing else happens.

Not covered: what they mean; that is with the server and the client.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue import limits
from dejaqueue.errors import BadRequest, ResourceExhausted
from dejaqueue.wire import frames
from dejaqueue.wire.frames import (
    Close,
    Credit,
    DeliveryHead,
    Frame,
    LatenessReport,
    Ping,
    Pong,
    Reply,
    Settle,
    SettleOp,
    StreamError,
)

IDS = np.array([3, 5, 1 << 62], dtype=np.int64)
STATUSES = np.array([0, 4, 1], dtype=np.uint8)
ATTEMPTS = np.array([1, 2, 65_535], dtype=np.uint16)


@pytest.mark.parametrize(
    "frame",
    [
        Credit(0),
        Credit(limits.CREDIT_MAX),
        Ping(7, 1_700_000_000_000_000, -250, 80),
        Ping(8, 0),
        Ping(9, 5, 1, 2, LatenessReport(1_234, (0, 7, 719), (3, 1, 4_000_000_000))),
        Ping(10, 5, 1, 2, LatenessReport(0, (), ())),
        Pong(7, 1, 2),
        DeliveryHead(65_534, 8_192, 1 << 40, 1_700_000_000_000, 1_700_000_000_000_001),
        Close(),
        Reply(9, 1_000, first_id=4),
        Reply(9),
        Settle(SettleOp.ACK, 3, partition=2, lease_id=77),
        Settle(SettleOp.NACK, 0, lease_id=0, argument_ms=5_000),
        Settle(SettleOp.NACK, 1, lease_id=5, argument_ms=-1, reason="no such straße"),
        Settle(SettleOp.NACK, 1, lease_id=5, reason="x" * limits.REASON_BYTES_MAX, dead=True),
        Settle(SettleOp.NACK, 1, lease_id=5, release=True),
    ],
)
def test_a_plain_frame_survives_the_wire(frame: Frame) -> None:
    assert frames.decode(frames.encode(frame)) == frame


def test_a_reply_with_columns_survives_the_wire() -> None:
    back = frames.decode(frames.encode(Reply(5, 3, ids=IDS, statuses=STATUSES)))
    assert isinstance(back, Reply)
    assert back.all_ids().tolist() == IDS.tolist()
    assert back.all_statuses().tolist() == STATUSES.tolist()


def test_a_reply_of_a_row_of_ids_spells_them_out() -> None:
    assert Reply(1, 3, first_id=10).all_ids().tolist() == [10, 11, 12]
    assert Reply(1, 2).all_ids().tolist() == [-1, -1]
    assert Reply(1, 2).all_statuses().tolist() == [0, 0]


def test_a_reply_with_an_error_survives_the_wire() -> None:
    back = frames.decode(frames.encode(Reply(5, 3, error=ResourceExhausted("full", 250))))
    assert isinstance(back, Reply)
    assert isinstance(back.error, ResourceExhausted)
    assert (str(back.error), back.error.retry_after_ms) == ("full", 250)


def test_a_settle_of_rows_survives_the_wire() -> None:
    sent = Settle(SettleOp.EXTEND, 4, argument_ms=60_000, ids=IDS, attempts=ATTEMPTS)
    back = frames.decode(frames.encode(sent))
    assert isinstance(back, Settle)
    assert back.ids is not None
    assert back.attempts is not None
    assert (back.op, back.number, back.lease_id) == (SettleOp.EXTEND, 4, -1)
    assert (back.ids.tolist(), back.attempts.tolist()) == (IDS.tolist(), ATTEMPTS.tolist())


def test_an_extension_of_leases_survives_the_wire() -> None:
    sent = Settle(SettleOp.EXTEND, 4, partition=7, argument_ms=60_000, lease_ids=IDS)
    back = frames.decode(frames.encode(sent))
    assert isinstance(back, Settle)
    assert back.lease_ids is not None
    assert (back.op, back.number, back.partition) == (SettleOp.EXTEND, 4, 7)
    assert (back.argument_ms, back.lease_id, back.ids) == (60_000, -1, None)
    assert back.lease_ids.tolist() == IDS.tolist()


def test_the_leases_of_one_extension_are_bounded() -> None:
    most = np.arange(limits.LEASES_PER_EXTENSION_MAX)
    back = frames.decode(frames.encode(Settle(SettleOp.EXTEND, lease_ids=most)))
    assert isinstance(back, Settle)
    assert back.lease_ids is not None
    assert len(back.lease_ids) == len(most)
    too_many = Settle(SettleOp.EXTEND, lease_ids=np.append(most, 1))
    with pytest.raises(BadRequest, match=r"^settle\.lease_ids"):
        frames.decode(frames.encode(too_many))


def test_a_refusal_of_rows_survives_the_wire() -> None:
    rows: dict[str, Any] = {"ids": IDS, "attempts": ATTEMPTS}
    sent = Settle(SettleOp.NACK, 4, argument_ms=-1, **rows, reason="no", dead=True)
    back = frames.decode(frames.encode(sent))
    assert isinstance(back, Settle)
    assert back.ids is not None
    assert back.attempts is not None
    assert (back.argument_ms, back.reason, back.dead, back.release) == (-1, "no", True, False)
    assert (back.ids.tolist(), back.attempts.tolist()) == (IDS.tolist(), ATTEMPTS.tolist())


def settle_bytes(
    op: int,
    fate: int,
    reason: bytes,
    said: int | None = None,
    delay: int = 0,
    leases: int = 0,
    lease_id: int = 5,
) -> bytes:
    """A SETTLE of a lease, or of several that follow instead of a reason."""
    count = (0 if leases else len(reason)) if said is None else said
    head = frames.encode(Settle(SettleOp.ACK, 1, lease_id=5))[:8]
    return head + struct.pack("<BBHIqqII", op, fate, count, 0, lease_id, delay, 0, leases) + reason


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (settle_bytes(2, 4, b""), "settle.fate"),
        (settle_bytes(2, 3, b""), "settle.fate"),
        (settle_bytes(1, 1, b""), "settle.fate and reason"),
        (settle_bytes(3, 0, b"why"), "settle.fate and reason"),
        (settle_bytes(2, 0, b"why", 2), "settle.reason"),
        (settle_bytes(2, 0, b"why", 4), "settle.reason"),
        (settle_bytes(2, 0, b"x" * 1_025), "settle.reason"),
        (settle_bytes(2, 0, b"a\x1fb"), "settle.reason"),
        (settle_bytes(2, 0, b"\xff\xff"), "frame"),
        (settle_bytes(2, 0, b"", delay=-2), "settle.argument_ms"),
        (settle_bytes(1, 0, b"", delay=-1), "settle.argument_ms"),
        (settle_bytes(3, 0, b"", delay=-1), "settle.argument_ms"),
        (settle_bytes(9, 0, b""), "frame"),
        (settle_bytes(3, 0, b"8 bytes.", leases=1), "settle.lease_ids"),  # and one by its name
        (settle_bytes(1, 0, b"8 bytes.", leases=1, lease_id=-1), "settle.lease_ids"),
        (settle_bytes(3, 0, b"8 bytes.", leases=2, lease_id=-1), "settle.lease_ids"),
        (settle_bytes(3, 0, b"8 bytes.", leases=1 << 31, lease_id=-1), "settle.lease_ids"),
    ],
)
def test_a_settle_that_cannot_be_is_refused(content: bytes, field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}:"):
        frames.decode(content)


@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 1_100),
    st.binary(max_size=40),
    st.integers(),
    st.integers(0, 6),
)
def test_a_garbled_settle_is_a_settle_or_refused(
    op: int, fate: int, said: int, reason: bytes, delay: int, leases: int
) -> None:
    delay = max(-(1 << 63), min(delay, (1 << 63) - 1))
    check_is_frame_or_refused(settle_bytes(op, fate, reason, said, delay, leases, -(leases > 0)))


def test_a_stream_error_survives_the_wire() -> None:
    back = frames.decode(frames.encode(StreamError(BadRequest("key", "text", 5))))
    assert isinstance(back, StreamError)
    assert str(back.error) == "key: text, got: 5"


def check_is_frame_or_refused(content: bytes) -> None:
    """Decode; anything but a frame or a BadRequest fails."""
    try:
        frame = frames.decode(content)
    except BadRequest:
        return
    assert isinstance(frame, Frame.__args__)


@given(st.binary(max_size=80))
def test_garbage_is_a_frame_or_refused__and_nothing_else(content: bytes) -> None:
    check_is_frame_or_refused(content)


@given(st.integers(1, 8), st.integers(0, 7), st.binary(max_size=64))
def test_garbage_behind_a_good_head_is_a_frame_or_refused(
    kind: int, flags: int, body: bytes
) -> None:
    head = bytes([frames.VERSION, kind]) + flags.to_bytes(2, "little") + b"\1\0\0\0"
    check_is_frame_or_refused(head + body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"number": st.sampled_from([1, 10, 11, 30, 90, 9**400]) | JSON, "text": JSON},
        optional={
            "fields": JSON
            | st.dictionaries(
                st.sampled_from(["field", "retry_after_ms", "args", "__class__"]), JSON
            )
        },
    )
    | JSON
)
def test_a_garbled_error_is_an_error_or_refused(values: object) -> None:
    head = frames.encode(StreamError(BadRequest("x", "y")))[:8]
    check_is_frame_or_refused(head + json.dumps(values).encode())


def test_a_frame_of_another_version_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"^frame.version: 1, got: 9"):
        frames.decode(b"\x09" + frames.encode(Close())[1:])


def test_too_much_credit_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"^credit: at most"):
        frames.decode(frames.encode(Credit(limits.CREDIT_MAX + 1)))


REPORT = LatenessReport(700, (3, 9), (2, 1))


def test_a_ping_with_a_report_begins_as_one_without() -> None:
    """Brokers that know no reports read the beginning."""
    plain, reporting = (frames.encode(Ping(9, 5, 1, 2, report)) for report in (None, REPORT))
    assert reporting[: len(plain)] == plain[:2] + b"\x08\x00" + plain[4:]


@pytest.mark.parametrize(
    "report",
    [
        LatenessReport(1, (limits.LATENESS_BUCKETS,), (1,)),
        LatenessReport(1, (5, 5), (1, 1)),
        LatenessReport(1, (5, 4), (1, 1)),
        LatenessReport(-1, (5,), (1,)),
        LatenessReport(frames.REPORT_SUM_US_MAX + 1, (5,), (1,)),
    ],
)
def test_a_report_that_cannot_be_is_refused(report: LatenessReport) -> None:
    with pytest.raises(BadRequest, match=r"ping\.report"):
        frames.decode(frames.encode(Ping(1, 0, 0, 0, report)))


@given(st.integers(0, 40))
def test_a_report_that_is_cut_off_is_refused(length: int) -> None:
    whole = frames.encode(Ping(1, 0, 0, 0, REPORT))
    with pytest.raises(BadRequest):
        frames.decode(whole[: min(8 + length, len(whole) - 1)])
