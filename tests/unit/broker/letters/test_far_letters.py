"""Letters as bytes between two brokers.

Covered: every column comes as it was, with who sent each row; what is none is refused by name; the
answers of the other broker. Not covered: brokers (tests/cluster/test_redrive_elsewhere.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.access.senders import Sender
from dejaqueue.broker.letters.far_letters import LETTERS, FarLetterbox, decode, encode, take
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.engine.arrays import Words
from dejaqueue.errors import BadRequest, DejaQError, InternalError, TopicUnknown
from dejaqueue.model import RowStatus
from dejaqueue.schema.checks import SendColumns
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply


def letters(*, whole: bool = True) -> SendColumns:
    more: dict[str, Any] = dict.fromkeys(("keys", "groups", "priorities", "expires_ms"))
    if whole:
        more = {
            "keys": pa.array(["k", None]),
            "groups": pa.array(["", "g"]),
            "priorities": np.array([7, 65_535], np.uint16),
            "expires_ms": np.array([0, 9], np.int64),
        }
    return SendColumns(
        rows=2,
        dues_ms=np.array([3, -1], np.int64),
        payloads=pa.array([b"a", b""], pa.binary()),
        partitions=None,
        payload_bytes=1,
        tags=pa.array(["t", None]),
        headers=None,
        **more,
    )


SENDERS = Words(("ann", "bob"), np.array([1, 0], np.int32))


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_encoded_comes_as_it_was(whole: bool) -> None:
    sent = letters(whole=whole)
    found, senders = decode(encode(sent, SENDERS if whole else None))
    assert (found.rows, found.dues_ms.tolist()) == (2, [3, -1])
    assert found.payloads.to_pylist() == [b"a", b""]
    if not whole:
        assert (found.keys, found.groups, found.priorities, senders) == (None, None, None, None)
        return
    assert found.keys is not None
    assert found.keys.to_pylist() == ["k", None]
    assert found.priorities is not None
    assert found.priorities.tolist() == [7, 65_535]
    assert senders is not None
    assert [senders.names[index] for index in senders.indices] == ["bob", "ann"]


@pytest.mark.parametrize("content", [b"", b"letters", encode(letters(), None)[:200]])
def test_what_is_no_letters_is_refused(content: bytes) -> None:
    with pytest.raises(BadRequest, match="content"):
        decode(content)


class Other:
    """A broker that is asked, and the stream that it opens."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.asked, self.opened = reply, "", WriteStream("none")

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert action == LETTERS
        self.asked = url
        return take(self.open_write, body)

    def open_write(self, stream: WriteStream, sender: Sender) -> Other:
        self.opened = stream
        return self

    def submit_columns(
        self, number: int, columns: SendColumns, senders: Words | None, reply: ReplyTo
    ) -> None:
        assert number == self.reply.number
        reply(self.reply)


def answer_of(other: Other) -> Reply:
    replies: list[Reply] = []
    box = FarLetterbox(other, "dejaq://b:1", WriteStream("orders", producer="p"))
    box.submit_columns(other.reply.number, letters(), None, replies.append)
    [reply] = replies
    return reply


def test_they_are_taken_by_the_producer_and_number_that_they_have() -> None:
    statuses = np.array([RowStatus.OK, RowStatus.DUPLICATE], np.uint8)
    other = Other(Reply(1 << 40, 2, statuses=statuses))
    found = answer_of(other)
    assert found.statuses is not None
    assert (found.statuses.tolist(), found.error) == (statuses.tolist(), None)
    assert (other.asked, other.opened) == ("dejaq://b:1", WriteStream("orders", producer="p"))
    assert answer_of(Other(Reply(7, 2))).statuses is None


def test_why_none_is_in_is_told() -> None:
    refused: DejaQError = TopicUnknown("orders")
    assert answer_of(Other(Reply(7, 2, error=refused))).error is refused


class Broken(Other):
    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        future.set_exception(KeyError("x"))
        return future


def test_what_nobody_foresaw_is_an_error_of_ours() -> None:
    assert isinstance(answer_of(Broken(Reply(7, 2))).error, InternalError)


def test_letters_have_a_producer_and_a_number() -> None:
    body = {"topic": "orders", "producer": "p", "number": "-1", "content": b""}
    with pytest.raises(BadRequest, match="number"):
        take(Other(Reply(7, 2)).open_write, body)
