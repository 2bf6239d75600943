"""Covers: the worked frames of docs/wire.md are what our own wire code makes and reads.

Each is compared with the frame that its line `#` tells, in both directions. There is one of each
type of frame; those of lanes are under a heading of their own. The clients of other languages read
the same lines (tests/clients).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import TopicUnknown, Unavailable
from dejaqueue.schema.row_fields import Fields
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import ConsumeStream, decode_address
from dejaqueue.wire.frames import (
    Close,
    Credit,
    DeliveryHead,
    Frame,
    FrameType,
    LatenessReport,
    Ping,
    Pong,
    Reply,
    Settle,
    SettleOp,
    StreamError,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")


def worked(heading: str = "### Worked frames") -> dict[str, bytes]:
    """What is said of each frame, up to its first colon or comma, and its bytes."""
    block = PAGE.partition(heading)[2].partition("```text\n")[2].partition("```")[0]
    found: dict[str, bytes] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith("# "):
            name = line[2:]
            assert name not in found
            found[name] = b""
        else:
            found[name] += line.encode() if line.startswith("{") else bytes.fromhex(line)
    return found


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def attempts(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    return np.array(values, dtype=np.uint16)


def statuses(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.array(values, dtype=np.uint8)


LATE = LatenessReport(700, (3, 126), (1, 2))
MEANT: list[tuple[str, Frame]] = [
    ("REPLY 1", Reply(1, 3, 1 << 47)),
    ("REPLY 2", Reply(2, 2, -1, ids(7, 5), statuses(0, 4))),
    ("REPLY 3", Reply(3)),
    ("REPLY 4", Reply(4, 1, -1, None, statuses(3))),
    ("REPLY 5", Reply(5, 2, error=TopicUnknown("x"))),
    ("CREDIT of 1,000", Credit(1_000)),
    ("CREDIT 0", Credit(0)),
    ("SETTLE 6", Settle(SettleOp.ACK, 6, 2, 81)),
    ("SETTLE 7", Settle(SettleOp.ACK, 7, ids=ids(7, 5), attempts=attempts(1, 2))),
    ("SETTLE 8", Settle(SettleOp.NACK, 8, argument_ms=-1, ids=ids(7), attempts=attempts(1),
                        reason="no")),
    ("SETTLE 9", Settle(SettleOp.NACK, 9, 2, 81, dead=True)),
    ("SETTLE 10", Settle(SettleOp.EXTEND, 10, 2, -1, 30_000, lease_ids=ids(81, 82))),
    ("SETTLE 0", Settle(SettleOp.EXTEND, 0, 2, 81)),
    ("PING 1", Ping(1, 1_000_000)),
    ("PING 2", Ping(2, 2_000_000, -250, 40, LATE)),
    ("PONG 1", Pong(1, 1_000_000, 1_700_000_000_000_000)),
    ("DELIVERY", DeliveryHead(2, 3, 81, 1_700_000_030_000, 1_700_000_000_000_123)),
    ("CLOSE", Close()),
    ("ERROR", StreamError(Unavailable("the broker is stopping", 1_000))),
]  # fmt: skip


def test_every_frame_of_the_page_is_looked_at__and_every_type_is_there() -> None:
    assert len(worked()) == len(MEANT)
    assert {content[1] for content in worked().values()} == set(FrameType)


@pytest.mark.parametrize(("name", "frame"), MEANT, ids=[name for name, _ in MEANT])
def test_a_worked_frame_is_what_it_says(name: str, frame: Frame) -> None:
    (content,) = [
        content for said, content in worked().items() if re.match(rf"{re.escape(name)}\b", said)
    ]
    assert frames.encode(frame) == content
    read = frames.decode(content)
    assert type(read) is type(frame)
    assert frames.encode(read) == content


# --- lanes --------------------------------------------------------------------------------------

FIELDS = Fields(
    keys=[b"k", b""],
    groups=[b"", b"g"],
    tags=[[b"red", b"x"], []],
    headers=[[b"h", b"1"], []],
    priorities=[7, 32_768],
    expires_ms=[0, 1_700_000_060_000],
)
SENDS: list[tuple[int, int, list[bytes], list[int] | None, Fields | None]] = [
    (1, 5, [b"hi"], None, None),
    (2, 6, [b"hi", b""], [0, 1_700_000_000_000], None),
    (3, 7, [b"a", b"b"], None, FIELDS),
]


def of_lanes() -> dict[str, bytes]:
    found = worked("### SENDs that are worked out")
    return {name.partition(":")[0]: content for name, content in found.items()}


@pytest.mark.parametrize(
    ("number", "batch", "payloads", "dues_ms", "fields"), SENDS, ids=["plain", "due", "fields"]
)
def test_a_send_of_the_page_is_what_it_says(
    number: int,
    batch: int,
    payloads: list[bytes],
    dues_ms: list[int] | None,
    fields: Fields | None,
) -> None:
    content = of_lanes()[f"SEND {number}"]
    read = lane.decode_send(content)
    assert (read.number, read.payloads, read.dues_ms, read.fields) == (
        number,
        payloads,
        dues_ms,
        fields,
    )
    address = decode_address(read.address)
    assert (address.topic, address.producer, address.number) == ("t", "p", batch)
    made = lane.encode_send(
        number,
        read.address,
        len(payloads),
        lane.encode_rows(payloads, dues_ms, fields),
        has_dues=dues_ms is not None,
        has_fields=fields is not None,
    )
    assert made == lane.with_length(content)


def test_an_open_of_the_page_is_what_it_says() -> None:
    found = of_lanes()
    assert list(found) == ["SEND 1", "SEND 2", "SEND 3", "OPEN"]
    assert lane.kind_of(found["OPEN"]) == lane.OPEN
    assert lane.decode_open(found["OPEN"]) == ConsumeStream("t")
